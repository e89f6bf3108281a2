"""Type checkers on a job: the types of rows are known from the source on, and errors are found before it runs. A
comment in the job is mypy's message for the line; pyright's follows after a bar if it differs."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
JOB = """
from datetime import datetime, timedelta
from typing import Annotated

import polars as pl
import pyarrow as pa
from clonos_py import CoProcess, Context, Epoch, Job, OpenContext, Process, Record, col
from clonos_py.connectors import FileSink, FileSource, KafkaSource, MemorySource

class Line(Record):
    id: int

class Flight(Record):
    at: datetime
    landed: Annotated[datetime, Epoch("ms")] | None
    took: timedelta

def delayed(flight: Flight) -> Flight:
    return Flight(flight.at + timedelta(minutes=5), flight.landed, flight.took)

class Double(Record):
    twice: int

def doubled(row: Line) -> Double:
    return Double(2 * row.id)

def number(row: Line) -> int:
    return row.id

def framed(table: pa.Table) -> pl.DataFrame:
    return pl.DataFrame(pl.from_arrow(table))

def listed(table: pa.Table) -> list[int]:
    return []

class Doubling(Process[Line, Double]):
    def __init__(self, by: int = 2) -> None:
        self.by = by

    def open(self, ctx: OpenContext) -> None:
        ctx.time  # "OpenContext" has no attribute "time" | "time"

    def on_row(self, row: Line, ctx: Context) -> Double:
        return Double(self.by * row.id)

class Both(CoProcess[Line, Double, Line]):
    def on_left(self, row: Line, ctx: Context) -> Line:
        return Line(ctx.key)

    def on_right(self, row: Double, ctx: Context) -> Line:
        return Line(row.id)  # "Double" has no attribute "id" | "id"

job = Job("typed")
lines = job.source(FileSource("lines.jsonl", Line))
reveal_type(lines)  # Stream[Line]
reveal_type(job.source(MemorySource([Line(1)])))  # Stream[Line]
reveal_type(job.source(KafkaSource("lines", Line, bootstrap="kafka:9092")))  # Stream[Line]
reveal_type(job.source(KafkaSource("lines", bootstrap="kafka:9092", format="text")))  # Stream[Any]
reveal_type(job.source(FileSource("lines.txt")))  # Stream[Any]
reveal_type(lines.map(doubled))  # Mapped[Double]
reveal_type(lines.filter(col("id") > 0))  # Stream[Line]
reveal_type(lines.distinct("id", ttl="1h"))  # Stream[Line]
reveal_type(lines.map_batches(framed, returns=Double))  # Stream[Double]
keyed, doubles = lines.key_by("id"), lines.map(doubled).key_by("twice")
reveal_type(keyed.process(Doubling))  # Processed[Double]
reveal_type(keyed.process(Doubling(3)))  # Processed[Double]
reveal_type(keyed.connect(doubles))  # ConnectedStreams[Line, Double]
reveal_type(keyed.connect(doubles).process(Both()))  # Processed[Line]
lines.map_batches(listed, returns=Line)  # Argument 1 to "map_batches" of "Stream" | No overloads for "map_batches"
lines.distinct(3)  # Argument 1 to "distinct" of "Stream" | "columns"
keyed.process(Both)  # Argument 1 to "process" of "KeyedStream" | "process"
keyed.connect(lines)  # Argument 1 to "connect" of "KeyedStream" | "other"
keyed.connect(doubles).process(Doubling)  # Argument 1 to "process" of "ConnectedStreams" | "process"
lines.map(number)  # Argument 1 to "map" of "Stream" | No overloads for "map"
lines.filter(number, concurency=3)  # Unexpected keyword argument "concurency" | No overloads for "filter"
lines.sink(FileSink("out", delivery="atomic"))  # Argument "delivery" to "FileSink" | 'atomic'
FileSource("lines.jsonl", Line, folow=True)  # Unexpected keyword argument "folow" | "folow"
KafkaSource("lines", Line, server="kafka:9092")  # Unexpected keyword argument "server" | "bootstrap"
FileSource("lines.jsonl", 3)  # Argument 2 to "FileSource" | "schema"
flights = job.source(FileSource("flights.jsonl", Flight))
reveal_type(flights.map(delayed).with_event_time("at", delay="5s"))  # Stream[Flight]
flights.filter(col("at") + timedelta(hours=1) > datetime.now())
flights.with_event_time("at", dealy="5s")  # Unexpected keyword argument "dealy" | "dealy"
Flight(5, None, timedelta())  # Argument 1 to "Flight" has incompatible type | "at"
Epoch("minutes")  # Argument 1 to "Epoch" has incompatible type | "unit"
job.preview(3)  # Argument 1 to "preview" of "Job" | "stream"
job.start(runtime="local").stopp()  # "JobHandle" has no attribute "stopp" | "stopp"
"""


def test_mypy_finds_the_errors_in_a_job(tmp_path: Path) -> None:
    (tmp_path / "typed.py").write_text(JOB)
    command = [sys.executable, "-m", "mypy", "--strict", "--hide-error-context", str(tmp_path / "typed.py")]
    printed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout
    found = {int(number): said for number, said in re.findall(r"typed\.py:(\d+): (?:error|note): (.*)", printed)[::-1]}
    compare(
        {number: re.sub(r"clonos_py\.dsl\.streams\.|typed\.", "", said) for number, said in found.items()}, checker=0
    )


@pytest.mark.thorough
def test_pyright_finds_the_errors_in_a_job(tmp_path: Path) -> None:
    (tmp_path / "typed.py").write_text(JOB)
    command = [sys.executable, "-m", "pyright", "--outputjson", str(tmp_path / "typed.py")]
    printed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout
    noted = json.loads(printed)["generalDiagnostics"]
    compare({note["range"]["start"]["line"] + 1: note["message"] for note in noted[::-1]}, checker=1)


SOURCES = """
import pyarrow as pa
from clonos_py import Job, Record
from clonos_py.connectors import FileSource, KafkaSource, MemorySource, SocketSource, WebhookSource

class Row(Record):
    id: int

def same(row: Row) -> Row:
    return row

job = Job("installed")
reveal_type(job.source(FileSource("rows.jsonl", Row)))
reveal_type(job.source(KafkaSource("rows", Row, bootstrap="localhost:9092")))
reveal_type(job.source(SocketSource("localhost", 9000, Row)))
reveal_type(job.source(WebhookSource(9000, Row)))
reveal_type(job.source(MemorySource([Row(1)])))
reveal_type(job.source(FileSource("rows.jsonl", schema=Row, format="jsonl")).map(same))
columns = job.source(FileSource("rows.jsonl", pa.schema([])))
"""


@pytest.mark.thorough  # mypy checks the whole package once more
def test_rows_have_their_class_where_pyarrow_has_no_types(tmp_path: Path) -> None:
    """The environment of a user has this package installed, and no package of types beside it."""
    here = Path(sysconfig.get_path("purelib"))
    venv.create(tmp_path / "venv", symlinks=True, with_pip=False)
    (there,) = (tmp_path / "venv").glob("lib/*/site-packages")
    for path in here.iterdir():
        if path.suffix != ".pth" and "stubs" not in path.name:
            (there / path.name).symlink_to(path)
    (there / "clonos_py").symlink_to(ROOT / "clonos_py")
    (tmp_path / "typed.py").write_text(SOURCES)
    command = [sys.executable, "-m", "mypy", "--strict", "--allow-untyped-calls", "--cache-dir"]
    command += [str(ROOT / ".mypy_cache" / "installed"), "--python-executable", str(tmp_path / "venv/bin/python")]
    command += ["--disable-error-code", "import-untyped", "typed.py"]
    printed = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False).stdout
    *revealed, last = printed.splitlines()
    assert last.startswith("Success"), printed
    found = [line.partition("Revealed type is ")[2].strip('"').rpartition(".streams.")[2] for line in revealed]
    assert found == ["Stream[typed.Row]"] * 5 + ["Mapped[typed.Row]"], printed


def compare(found: dict[int, str], checker: int) -> None:
    """Every line with a comment has an error with these words, and no other line has one."""
    for number, line in enumerate(JOB.splitlines(), 1):
        _, marked, expected = line.partition("  # ")
        said = found.pop(number, "")
        assert bool(marked) == bool(said), f"{line}: {said or 'no error'}"
        words = expected.split(" | ")
        assert words[min(checker, len(words) - 1)] in said, f"{line}: {said}"
    assert not found
