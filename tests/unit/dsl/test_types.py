"""What type checkers say of a job: rows are known from the source on, and what is wrong is found before it runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from mypy import api

ROOT = Path(__file__).resolve().parents[3]
JOB = """
from clonos_py import Job, Record, col
from clonos_py.connectors import FileSink, FileSource, MemorySource

class Line(Record):
    id: int

class Double(Record):
    twice: int

def doubled(row: Line) -> Double:
    return Double(2 * row.id)

def number(row: Line) -> int:
    return row.id

job = Job("typed")
lines = job.source(FileSource("lines.jsonl", Line))
reveal_type(lines)  # Stream[typed.Line]
reveal_type(job.source(MemorySource([Line(1)])))  # Stream[typed.Line]
reveal_type(job.source(FileSource("lines.txt")))  # Stream[Any]
reveal_type(lines.map(doubled))  # Mapped[typed.Double]
reveal_type(lines.filter(col("id") > 0))  # Stream[typed.Line]
lines.map(number)  # Argument 1 to "map" of "Stream"
lines.filter(number, concurency=3)  # Unexpected keyword argument "concurency"
lines.sink(FileSink("out", delivery="atomic"))  # Argument "delivery" to "FileSink"
FileSource("lines.jsonl", Line, folow=True)  # Unexpected keyword argument "folow"
FileSource("lines.jsonl", 3)  # No overload variant of "FileSource"
job.preview(3)  # Argument 1 to "preview" of "Job"
job.start(runtime="local").stopp()  # "JobHandle" has no attribute "stopp"
"""


def test_what_is_wrong_in_a_job_is_found_by_mypy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "typed.py").write_text(JOB)
    monkeypatch.chdir(ROOT)
    printed, problem, _ = api.run(["--strict", "--hide-error-context", str(tmp_path / "typed.py")])
    assert not problem
    found = dict(re.findall(r"typed\.py:(\d+): (?:error|note): (.*)", printed)[::-1])
    for number, line in enumerate(JOB.splitlines(), 1):
        _, marked, expected = line.partition("  # ")
        said = found.pop(str(number), "")
        assert bool(marked) == bool(said), f"{line}: {said or 'nothing is said'}"
        assert expected in said.replace("clonos_py.dsl.streams.", ""), f"{line}: {said}"
    assert not found
