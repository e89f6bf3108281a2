"""Jobs with a record, and replays of it in the process of the test."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from contextlib import chdir, redirect_stderr, redirect_stdout
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple
from unittest.mock import patch

from clonos_py.cli.main import invoke
from tests.jobs import in_process

ROWS, ACCOUNTS = 600, 7
"""The rows of the input: one each second, of each account in turn, with growing amounts. It is in two files, so
that both tasks read; all rows of an account are in one, so their order is known."""

JOB = """
from __future__ import annotations
from collections.abc import AsyncIterator, Iterator
import pyarrow as pa
from clonos_py import *
from clonos_py.connectors import *

class Txn(Record):
    id: int
    account: int
    amount: int
    at: Instant

class Doubled(Record):
    id: int
    account: int
    twice: int
    at: Instant

class Seen(Record):
    id: int
    account: int
    nth: int

class Over(Record):
    account: int
    seen: int

class Sum(Record):
    account: int
    window_start: Instant
    window_end: Instant
    total: int

class Pair(Record):
    id: int
    nth: int

def double(row: Txn) -> Doubled:
    return Doubled(row.id, row.account, row.amount * 2, row.at)

def halves(row: Txn) -> Iterator[Pair]:
    for half in range(2):
        yield Pair(row.id, half)

async def slow(row: Txn) -> Pair:
    return Pair(row.id, -1)

async def both(row: Txn) -> AsyncIterator[Pair]:
    yield Pair(row.id, -2)
    yield Pair(row.id, -3)

def whole(rows: pa.RecordBatch) -> pa.RecordBatch:
    return rows.select(["id", "account"]).rename_columns(["id", "nth"])

class Count(Process[Doubled, Seen | Over]):
    seen: int = state(0)
    quiet = event_timer()

    def on_row(self, row: Doubled, ctx: Context) -> Iterator[Seen | Over]:
        ctx.time.now()
        self.seen += 1
        self.quiet.set(row.at + at("1h"))
        yield Seen(row.id, row.account, self.seen)

    @quiet.fires
    def over(self, ctx: Context) -> Iterator[Seen | Over]:
        yield Over(ctx.key, self.seen)

job = Job("recorded", runtime="local", parallelism=2, checkpoint_interval="50ms")
txns = job.source(FileSource("in-*.jsonl", Txn)).named("txns").with_event_time("at")
doubled = txns.filter(col("amount") >= 0).named("positive").map(double).named("double")
seen, over = doubled.key_by("account").process(Count).named("count").split(Seen, Over)
seen.sink(MemorySink()).named("seen")
over.sink(MemorySink()).named("over")
sums = doubled.key_by("account").window(tumbling("10s")).aggregate(Sum, total=col("twice").sum()).named("sums")
sums.sink(MemorySink()).named("totals")
"""


def until(number: int, first: int = 0) -> list[int]:
    """The ids of the rows of an account up to row ``number``, from row ``first`` on."""
    return [n for n in range(first, number + 1) if n % ACCOUNTS == number % ACCOUNTS]


class Ended(NamedTuple):
    """How a replay ended. ``stops``: the variables of each frame in which it stopped."""

    returncode: int
    stdout: str
    stderr: str
    stops: list[dict[str, Any]]


def recorded(folder: Path, job: str = JOB, rows: int = ROWS) -> None:
    """Runs the job ``job.py`` in the folder, with a record in its folder ``checkpoints``."""
    (folder / "job.py").write_text(job)
    lines = [{"id": n, "account": n % ACCOUNTS, "amount": n, "at": n * 1_000_000} for n in range(rows)]
    for file in range(2):
        own = [line for line in lines if line["account"] % 2 == file]
        (folder / f"in-{file}.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in own))
    with chdir(folder):
        done = in_process.run(folder / "job.py", "--checkpoints", "checkpoints", "--record", "1h")
    assert done.returncode == 0, done.stderr


def replayed(folder: Path, *options: str, typed: str = "", seen: Callable[[FrameType], None] | None = None) -> Ended:
    """``clonos replay job.py ...`` in the folder. ``typed``: what pdb reads. ``seen`` is called in place of a debugger,
    with the frame in which it would stop."""
    said, complained, stops = io.StringIO(), io.StringIO(), []

    def stop() -> None:
        frame = sys._getframe(1)
        stops.append(dict(frame.f_locals))
        if seen is not None:
            seen(frame)

    script = folder / "job.py"
    with (
        chdir(folder),
        in_process.loaded_once(script),
        redirect_stdout(said),
        redirect_stderr(complained),
        patch.object(sys, "breakpointhook", stop),
        patch.object(sys, "stdin", io.StringIO(typed)),
    ):
        code = invoke(["replay", str(script), "--checkpoints", "checkpoints", *options])
    return Ended(code, said.getvalue(), complained.getvalue(), stops)
