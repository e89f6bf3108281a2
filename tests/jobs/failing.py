"""A job file whose functions fail, each in its own way, and the places that the errors must name."""

from __future__ import annotations

from pathlib import Path

FAILING = """
from __future__ import annotations

import ctypes
import os
import sys
import time

from clonos_py import *
from clonos_py.connectors import *


class Row(Record):
    key: int
    value: int
    at: Instant


def checked(value: int) -> int:
    if value == 7:
        raise ValueError(f"{value} is too much")  # LINE checked
    return value


def mapped(row: Row) -> Row:
    return Row(row.key, checked(row.value), row.at)  # LINE mapped


def several(row: Row) -> list[Row]:
    yield row
    yield Row(row.key, 10 // (row.value - 7), row.at)  # LINE several


def kept(row: Row) -> bool:
    return [10 // (row.value - number) for number in (7,)]  # LINE kept


def wrong(row: Row) -> Row:  # LINE wrong
    return Row("x", row.value, row.at) if row.value == 7 else row


async def waits(row: Row, ctx: AsyncContext) -> Row:
    await ctx.sleep("1ms")
    return mapped(row)


def batch(rows):
    raise RuntimeError("boom")  # LINE batch


def column(values):
    raise RuntimeError("boom")  # LINE column


def recursive(row: Row) -> Row:
    return deeper(row) if row.value == 7 else row  # LINE recursive


def deeper(row: Row) -> Row:
    return deeper(row)


def returns_nothing(row: Row) -> Row:  # LINE returns_nothing
    pass


def leaves(row: Row) -> Row:
    if row.value == 7:
        sys.exit(3)  # LINE leaves
    return row


def interrupts(row: Row) -> Row:
    if row.value == 7:
        raise KeyboardInterrupt  # LINE interrupts
    return row


def exits(row: Row) -> Row:
    if row.value == 7:
        os._exit(0)  # LINE exits
    return row


def crashes(row: Row) -> Row:
    if row.value == 7:
        ctypes.string_at(0)  # LINE crashes
    return row


def aborts(row: Row) -> Row:
    if row.value == 7:
        os.abort()  # LINE aborts
    return row


def hangs(row: Row) -> Row:
    if row.value == 7:
        time.sleep(1.5)  # LINE hangs
    return row


def sleeps(row: Row) -> Row:
    if row.value == 7:
        print("asleep", file=sys.stderr, flush=True)
        time.sleep(600)
    return row


class Timed(Process[Row, Row]):
    tick = event_timer()

    def on_row(self, row: Row, ctx: Context) -> None:
        self.tick.set(row.at)

    @tick.fires
    def ticked(self, ctx: Context) -> None:
        {}["key"]  # LINE ticked


class Totals(Process[Row, Row]):
    total: int = state(0)

    def on_row(self, row: Row, ctx: Context) -> Row:
        self.total += checked(row.value)
        return row


job = Job("failing")
rows = job.source(MemorySource([Row(n % 2, n, n * 1_000_000) for n in range(30)]), event_time="at").named("rows")
out = BlackholeSink()
"""

FAILURES = [
    ("rows.map(mapped).sink(out)", '{"key":1,"value":7,"at":7000000}', "checked", "checked"),
    ("rows.flat_map(several).sink(out)", '{"key":1,"value":7,"at":7000000}', "several", "several"),
    ("rows.filter(kept).sink(out)", '{"key":1,"value":7,"at":7000000}', "kept", "kept"),
    ("rows.map(wrong).sink(out)", '{"key":1,"value":7,"at":7000000}', "wrong", "wrong"),
    ("rows.map(waits).sink(out)", '{"key":1,"value":7,"at":7000000}', "checked", "checked"),
    ("rows.map_batches(batch, returns=Row).sink(out)", '{"key":0,"value":0,"at":0}', "batch", "batch"),
    ("rows.map(recursive).sink(out)", '{"key":1,"value":7,"at":7000000}', "recursive", "recursive"),
    ("rows.map(leaves).sink(out)", '{"key":1,"value":7,"at":7000000}', "leaves", "leaves"),
    (
        "rows.map(interrupts).sink(out)",
        '{"key":1,"value":7,"at":7000000}',
        "interrupts",
        "interrupts",
    ),
    ("rows.map(returns_nothing).sink(out)", '{"key":0,"value":0,"at":0}', "returns_nothing", "returns_nothing"),
    ("rows.key_by('key').process(Timed).named('timed').sink(out)", '{"key":0}', "ticked", "ticked"),
    (
        "rows.key_by('key').process(Totals).named('totals').sink(out)",
        '{"key":1,"value":7,"at":7000000}',
        "checked",
        "checked",
    ),
    ("rows.select(x=col('value') // (col('value') - 7)).sink(out)  # LINE verb", "'value': 7", "verb", ""),
]
"""What is written, the record that the error shows, the line that it ends with, and the function."""

FATAL = [
    ("exits", "ended its process with os._exit(0)"),
    ("crashes", "crashed its process: "),
    ("aborts", "crashed its "),
]
"""Functions that end their process, and what the error says."""

PARAMETERS = [failure[0] for failure in FAILURES]


def written(folder: Path, name: str, verbs: str) -> Path:
    """The job file, with the verbs on its rows."""
    file = folder / f"{name}.py"
    file.write_text(f"{FAILING}{verbs}\n")
    return file


def place(file: Path, marked: str, function: str) -> str:
    """As errors name the marked line: ``fraud.py:31 in on_row``."""
    lines = file.read_text().splitlines()
    number = next(number for number, line in enumerate(lines, 1) if line.endswith(f"# LINE {marked}"))
    return f"{file.name}:{number}" + (f" in {function}" if function else "")
