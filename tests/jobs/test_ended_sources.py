"""A source that has read all of its input is read again by the run that resumes, although others had not ended."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from clonos_py import Job, Record, Stream, col, count
from clonos_py.connectors import FileSink, FileSource, PartitionedSource, RowReader, read_results
from clonos_py.model.coordinator_events import SourceStaysEnded
from clonos_py.model.errors import CheckpointError
from clonos_py.observe.events import Event
from clonos_py.runtime.launch import run_job
from clonos_py.runtime.stop_switch import StopSwitch
from clonos_py.settings.protocols import INDUCED, UNALIGNED, UNCOORDINATED
from clonos_py.settings.resolution import resolve
from tests.waiting import WAIT_S_MAX, wait_while_running


class Row(Record):
    k: int
    at: int


def same(row: Row) -> Row:
    return row


def lines(*numbers: int) -> str:
    return "".join(f'{{"k": {number}, "at": {number}}}\n' for number in numbers)


class Lines(RowReader):
    """The rows of a file that had ended, and has grown."""

    def __init__(self, path: str) -> None:
        self._path = path

    def read(self, position: Any, rows_max: int) -> Any:
        found = Path(self._path).read_text().splitlines()[position : position + rows_max]
        rows = [Row(int(line.split()[1].rstrip(",")), 0) for line in found]
        return (rows, position + len(rows)) if rows else None


class Table(PartitionedSource[Row]):
    def __init__(self, path: str) -> None:
        super().__init__(Row)
        self._path = path

    def partitions(self) -> list[str]:
        return ["table"]

    def open(self, partition: str) -> RowReader:
        return Lines(self._path)


Rows = Stream[Any]
SHAPES: dict[str, Callable[[Rows, Rows], list[Rows]]] = {
    "united": lambda ended, open_: [ended.union(open_)],
    "on its own": lambda ended, open_: [ended, open_],
    "behind a function": lambda ended, open_: [ended.map(same).union(open_.map(same))],
    "rebalanced": lambda ended, open_: [ended.rebalance().map(same).union(open_)],
    "distinct": lambda ended, open_: [ended.union(open_).distinct("k")],
    "distinct on its own": lambda ended, open_: [ended.distinct("k"), open_],
    "read twice": lambda ended, open_: [ended.filter(col("k") >= 0), open_.union(ended.filter(col("k") < 0))],
}


HOW = list(product((False, True), (1, 2)))
"""Whether the source is one of the user's, and the parallelism."""
CASES = [
    pytest.param(shape, *how, marks=[] if number == place % len(HOW) else [pytest.mark.thorough])
    for place, shape in enumerate(SHAPES)
    for number, how in enumerate(HOW)
]


@pytest.fixture(autouse=True)
def _input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in ("ended", "open"):
        Path(folder).mkdir()
    Path("ended/1.jsonl").write_text(lines(1, 2))
    Path("open/1.jsonl").write_text(lines(100))


def visible() -> list[int]:
    return sorted(row["k"] for out in Path("out").glob("*") for row in read_results(str(out)))


def run_until(job: Job, *expected: int) -> None:
    run = job.start(runtime="local")
    wait_while_running(run, lambda: visible() == sorted(expected))
    run.stop()
    assert visible() == sorted(expected)


@pytest.mark.parametrize(("shape", "own", "parallelism"), CASES)
def test_a_resumed_run_reads_what_an_ended_source_has_got(shape: str, own: bool, parallelism: int) -> None:
    first = Path("ended/1.jsonl")

    def job() -> Job:
        job = Job("ended", checkpoints="checkpoints", checkpoint_interval="20ms", parallelism=parallelism)
        ended = job.source(Table(str(first)) if own else FileSource("ended/*.jsonl", Row)).named("ended")
        open_ = job.source(FileSource("open", Row, "jsonl", follow=True)).named("open")
        for number, rows in enumerate(SHAPES[shape](ended, open_)):
            rows.select("k").sink(FileSink(f"out/{number}")).named(f"out-{number}")
        return job

    run_until(job(), 1, 2, 100)
    if own:
        first.write_text(lines(1, 2, 3))
    else:
        Path("ended/2.jsonl").write_text(lines(3))
    run_until(job(), 1, 2, 3, 100)
    with Path("open/1.jsonl").open("a") as file:
        file.write(lines(101))
    run_until(job(), 1, 2, 3, 100, 101)


@pytest.mark.parametrize("protocol", [UNALIGNED.name, UNCOORDINATED.name, INDUCED.name])
def test_a_source_that_stays_ended_is_named(protocol: str) -> None:
    def job() -> Job:
        job = Job("ended", checkpoints="checkpoints", checkpoint_interval="20ms", protocol=protocol)
        for name, follow in (("ended", False), ("open", True)):
            rows = job.source(FileSource(f"{name}/*.jsonl", Row, follow=follow)).named(name)
            rows.select("k").sink(FileSink(f"out/{name}")).named(f"{name}-out")
        return job

    run_until(job(), 1, 2, 100)
    Path("ended/2.jsonl").write_text(lines(3))
    with Path("open/1.jsonl").open("a") as file:
        file.write(lines(101))
    said, stop = list[str](), StopSwitch()

    def listen(at_us: int, event: Event) -> None:
        said.extend([event.source] if isinstance(event, SourceStaysEnded) else [])
        if 101 in visible():
            stop.request()

    run_job(job(), resolve(job().settings, command_line={"runtime": "local"}), listen, stop)
    assert said == ([] if 3 in visible() else ["ended"])


def test_an_operator_that_has_emitted_its_final_results_takes_no_more_rows() -> None:
    """It emits none twice. An operator that has not ended goes on."""

    def job(parallelism: int = 1) -> Job:
        job = Job("ended", checkpoints="checkpoints", checkpoint_interval="20ms", parallelism=parallelism)
        ended = job.source(FileSource("ended/*.jsonl", Row)).named("ended")
        ended.key_by(k=col("k") * 10).aggregate(n=count()).at_end().named("counts").select("k").sink(
            FileSink("out/counts")
        ).named("counts-out")
        open_ = job.source(FileSource("open", Row, "jsonl", follow=True)).named("open")
        open_.select("k").sink(FileSink("out/open")).named("open-out")
        return job

    run_until(job(), 10, 20, 100)
    with Path("open/1.jsonl").open("a") as file:
        file.write(lines(101))
    run_until(job(), 10, 20, 100, 101)
    with Path("open/1.jsonl").open("a") as file:
        file.write(lines(102))
    run_until(job(parallelism=2), 10, 20, 100, 101, 102)
    Path("ended/2.jsonl").write_text(lines(3))
    run = job().start(runtime="local")
    with pytest.raises(CheckpointError, match="operator 'counts' has emitted its final results"):
        run.wait(WAIT_S_MAX)
