"""Errors in a job or its data are reported in one line that names the cause and the remedy."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from clonos_py.cli.main import invoke
from tests.observed import without_warnings

BEGINNING = """
from __future__ import annotations
import threading
from clonos_py import *
from clonos_py.connectors import *

class Row(Record):
    key: int
    value: int
    at: Instant

class Text(Record):
    key: str

rows = [Row(number % 3, number, number * 1_000_000) for number in range(30)]
job = Job("wrong", runtime="local")
s = job.source(MemorySource(rows), event_time="at").named("rows")
out = BlackholeSink()
"""

FUNCTIONS = """
def with_a_lock():
    lock = threading.Lock()
    def locked(row: Row) -> Row:
        with lock:
            return row
    return locked

def fails(row: Row) -> Row:
    return Row(row.key, 1 // (row.value - 7), row.at)

def misfits(row: Row) -> Row:
    return Row("x", row.value, row.at) if row.value == 9 else row

def gives_nothing(row: Row) -> Row:
    pass

def breaks(batch):
    raise RuntimeError("boom")

def short(batch):
    return batch.select(["key"])

@service
def closed():
    raise OSError("no database")
    yield str

def asks(row: Row, ctx: Context) -> Row:
    return ctx.call(closed, 1)

class Fails(Process[Row, Row]):
    def on_row(self, row: Row, ctx: Context) -> Row:
        if row.value == 11:
            raise KeyError("eleven")
        return row

class Undeclared(Process[Row, Row]):
    def on_row(self, row: Row, ctx: Context) -> Row:
        self.total = 3
        return row

class Rings(Process[Row, Row]):
    tick = event_timer()
    def on_row(self, row: Row, ctx: Context) -> None:
        if row.value == 1:
            self.tick.set(ctx.event_time + 1)
    @tick.fires
    def ticked(self, ctx: Context) -> None:
        raise KeyError("rung")
"""

numbers = itertools.count()


pytestmark = pytest.mark.usefixtures("in_an_empty_folder")


def run(text: str, *arguments: str) -> int:
    name = f"wrong_job_{next(numbers)}.py"
    Path(name).write_text(BEGINNING + FUNCTIONS + text + "\n")
    return invoke(["run", name, *arguments])


def said(capsys: pytest.CaptureFixture[str]) -> list[str]:
    """Standard error without the warning that the rows are of 1970."""
    return without_warnings(capsys.readouterr().err)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("s.filter(col('nope') > 1).sink(out)", "filter: no column 'nope'; there are key, value, at"),
        ("s.key_by('nope').aggregate(n=count())", "key_by: no column 'nope'; there are key, value, at"),
        ("s.filter(col('value') + 'a' == 3).sink(out)", "value is int64 and 'a' is string, and there is no + for that"),
        ("s.filter(col('value') + 1).sink(out)", "filter: (value + 1) is int64, not bool"),
        ("s.select(Text).sink(out)", "select: Text.key is string, but key is int64; cast() changes types"),
        ("s.named('a')\ns.filter(col('key') > 1).named('a')", "named: 'a' is the name of the source at"),
        ("s.map(with_a_lock()).sink(out)", "map: it cannot be sent to a task because of lock (lock)"),
        ("s.map(lambda row: row).sink(out)", "map: <lambda> does not say what it returns"),
        ("s.union(s).sink(out)", "union: a stream cannot be united with itself: every row would count twice"),
        ("s.filter(col('key') > 1)", "job 'wrong' has no sink"),
        ("s.map(fails).named('m').sink(out)", 'operator \'m\' failed on record {"key":1,"value":7,'),
        ("s.map(fails).sink(out)", "ZeroDivisionError: integer division or modulo by zero; .catch() would skip it"),
        ("s.map(misfits).sink(out)", "field 'key' is 'x' (str) where an int is declared"),
        ("s.map(gives_nothing).sink(out)", "None is neither a Record nor a dict"),
        (
            "s.map_batches(breaks, returns=Row).named('b').sink(out)",
            "operator 'b' failed on a batch of 1 rows, the first {",
        ),
        ("s.map_batches(short, returns=Row).named('b').sink(out)", "operator 'b': column 'value' of the batch"),
        ("s.map(asks).sink(out)", "closed cannot be opened: OSError: no database"),
        ("s.key_by('key').process(Fails).named('p').sink(out)", 'operator \'p\' failed on record {"key":2,"value":11,'),
        ("s.key_by('key').process(Undeclared).sink(out)", "Undeclared.total is not declared; write 'total = state"),
        ("s.key_by('key').process(Rings).named('p').sink(out)", "operator 'p' failed on timer 'tick' at 1000001"),
        ("s.select('key', x=col('value') // (col('value') - 5)).sink(out)", "divide by zero, at row {'key': 2, "),
        ("s.select(x=col('value') + 9223372036854775807).sink(out)", "overflow, at row {"),
        ("job.source(FileSource('no-such-file')).sink(out)", "no such file; FileSource takes a file, a folder or"),
        ("s.sink(FileSink('afile/out'))\nopen('afile', 'w').close()", "afile/out: cannot be written"),
    ],
)
def test_an_error_is_one_line(text: str, expected: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(text) == 1
    (line,) = said(capsys)
    assert line.startswith("error: ")
    assert expected in line
    assert "Traceback" not in line
    assert "traceback" not in line


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--kill", "window[0]@1s"], "--kill window[0]@1s: there is no such task; there are rows[0..0]"),
        (["--kill", "rows[3]@1s"], "--kill rows[3]@1s: there is no such task; there are rows[0..0]"),
        (["--kill", "rows@1s"], "'rows@1s' is not a kill: write OPERATOR[INDEX]@TIME"),
        (["--parallelism", "1000"], "contradicts key_groups = 128 (default): every task needs a key group of its own"),
        (["--checkpoint-interval", "5"], "'5' has no unit: write one of us, ms, s"),
        (["--guarantee", "at-most-once", "--sharing-depth", "1"], "at-most-once replays nothing"),
        (["--protocol", "uncoordinated", "--sharing-depth", "1"], "fit together by all determinants"),
        (["--protocol", "chandy-lamport"], "is not one of aligned, unaligned, uncoordinated, communication-induced"),
        (["--address", "1.2.3.4:5"], "only the ray runtime joins a cluster"),
        (["--checkpoints", "xx://folder"], "is no checkpoint folder"),
    ],
)
def test_a_wrong_setting_is_one_line(arguments: list[str], expected: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("s.sink(out)", *arguments) == 1
    (line,) = said(capsys)
    assert expected in line


@pytest.mark.parametrize("place", ["Job(...)", "clonos.toml", "CLONOS_PARALLELISM", "--parallelism"])
def test_a_wrong_setting_is_reported_with_its_place(
    place: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    written = {
        found: "0" if found == place else "2" for found in ("clonos.toml", "CLONOS_PARALLELISM", "--parallelism")
    }
    Path("clonos.toml").write_text(f"parallelism = {written['clonos.toml']}\n")
    monkeypatch.setenv("CLONOS_PARALLELISM", written["CLONOS_PARALLELISM"])
    in_job = "job.settings = {'parallelism': 0}\n" if place == "Job(...)" else ""
    assert run(f"{in_job}s.sink(out)", "--parallelism", written["--parallelism"]) == 1
    (line,) = said(capsys)
    assert line == f"error: parallelism ({place}): {'0' if in_job or place == 'clonos.toml' else repr('0')} is not " + (
        "a whole number of at least 1"
    )


def test_caught_rows_go_to_their_sink(capsys: pytest.CaptureFixture[str]) -> None:
    text = "good, failed = s.map(fails).named('m').catch()\ngood.sink(out)\nfailed.sink(PrintSink())"
    assert run(text) == 0
    captured = capsys.readouterr()
    (letter,) = captured.out.splitlines()
    assert '"operator":"m","error":"ZeroDivisionError: integer division or modulo by zero"' in letter
    assert '\\"value\\":7' in letter
