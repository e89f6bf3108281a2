"""Runs one process of a Bytewax dataflow, in the environment of Bytewax.

``python bytewax_job.py SPEC PROCESS``: ``PROCESS`` is the number of the process. ``SPEC`` is a JSON file with
``query``, ``events`` (the folder), ``addresses`` (of all processes), ``checkpoint_s``, ``seconds`` (how long to read at
most), ``late_s`` (how far an event may be behind), ``recovery`` (a folder for snapshots), ``out`` (a folder) and
``results`` (whether to write results there). Each process appends its progress to ``out/PROCESS.jsonl``, as
``[time in us, file, rows read]``.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, TextIO

import bytewax.operators as op  # pyright: ignore[reportMissingImports]
import bytewax.operators.windowing as windowing  # pyright: ignore[reportMissingImports]
import pyarrow.parquet as pq
from bytewax._bytewax import cluster_main  # pyright: ignore[reportMissingImports]
from bytewax.dataflow import Dataflow  # pyright: ignore[reportMissingImports]
from bytewax.inputs import (  # pyright: ignore[reportMissingImports]
    FixedPartitionedSource,
    StatefulSourcePartition,
)
from bytewax.outputs import DynamicSink, StatelessSinkPartition  # pyright: ignore[reportMissingImports]
from bytewax.recovery import RecoveryConfig  # pyright: ignore[reportMissingImports]

_BATCH_ROWS = 1_000
_REPORT_EVERY_US = 500_000
_EURO = Decimal("0.908")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LOCAL = ("OR", "ID", "CA")


class EventFile(StatefulSourcePartition):  # type: ignore[misc]
    """The rows of one file as tuples. Its state is the number of rows read."""

    def __init__(self, path: Path, columns: list[str], resume: int | None, progress: TextIO, until_s: float) -> None:
        self._name = f"{path.parent.name}/{path.name}"
        self._batches = pq.ParquetFile(path).iter_batches(_BATCH_ROWS, columns=columns, use_threads=False)
        self._read = 0
        self._progress, self._reported_us, self._until_us = progress, 0, int((time.monotonic() + until_s) * 1e6)
        while self._read < (resume or 0):
            self._read += next(self._batches).num_rows

    def next_batch(self) -> list[Any]:
        now_us = int(time.monotonic() * 1e6)
        rows = next(self._batches, None)
        if rows is None or now_us > self._until_us:
            self._report(now_us)
            raise StopIteration
        if now_us - self._reported_us >= _REPORT_EVERY_US:
            self._report(now_us)
        self._read += rows.num_rows
        return list(zip(*(column.to_pylist() for column in rows.columns), strict=True))

    def snapshot(self) -> int:
        return self._read

    def _report(self, now_us: int) -> None:
        self._reported_us = now_us
        self._progress.write(json.dumps([now_us, self._name, self._read]) + "\n")
        self._progress.flush()


class ReplayedFiles(FixedPartitionedSource):  # type: ignore[misc]
    """A source of the files of one kind of events."""

    def __init__(self, folder: Path, columns: list[str], progress: TextIO, until_s: float) -> None:
        self._folder, self._columns, self._progress, self._until_s = folder, columns, progress, until_s

    def list_parts(self) -> list[str]:
        return sorted(path.name for path in self._folder.glob("*.parquet"))

    def build_part(self, step_id: str, for_part: str, resume_state: int | None) -> EventFile:
        return EventFile(self._folder / for_part, self._columns, resume_state, self._progress, self._until_s)


class DroppedOrWritten(DynamicSink):  # type: ignore[misc]
    """A sink that drops results, or writes them as lines of JSON."""

    def __init__(self, lines: TextIO | None) -> None:
        self._lines = lines

    def build(self, step_id: str, worker_index: int, worker_count: int) -> ResultLines:
        return ResultLines(self._lines)


class ResultLines(StatelessSinkPartition):  # type: ignore[misc]
    """The part of the sink that belongs to one worker."""

    def __init__(self, lines: TextIO | None) -> None:
        self._lines = lines

    def write_batch(self, items: list[Any]) -> None:
        if self._lines is not None:
            self._lines.writelines(json.dumps(item, default=_plain) + "\n" for item in items)
            self._lines.flush()


def _plain(value: Any) -> Any:
    """A value as JSON: times as microseconds, decimals by name."""
    if isinstance(value, Decimal):
        return {"decimal": str(value)}
    return (value.replace(tzinfo=UTC) - _EPOCH) // timedelta(microseconds=1)


class Flow:
    """Builds the dataflow of a query."""

    def __init__(self, spec: dict[str, Any], progress: TextIO, lines: TextIO | None) -> None:
        self._spec, self._progress, self._lines = spec, progress, lines
        self.flow = Dataflow(spec["query"])

    def build(self) -> Dataflow:
        """Returns the whole dataflow: files, query, sink."""
        op.output("out", getattr(self, f"_{self._spec['query']}")(), DroppedOrWritten(self._lines))
        return self.flow

    def _rows(self, kind: str, *columns: str) -> Any:
        folder = Path(self._spec["events"]) / kind
        source = ReplayedFiles(folder, list(columns), self._progress, self._spec["seconds"])
        return op.input(kind, self.flow, source)

    def _q1(self) -> Any:
        bids = self._rows("bid", "auction", "bidder", "price", "date_time", "extra")
        return op.map("euros", bids, lambda bid: (bid[0], bid[1], bid[2] * _EURO, bid[3], bid[4]))

    def _q2(self) -> Any:
        return op.filter("123rd", self._rows("bid", "auction", "price"), lambda bid: bid[0] % 123 == 0)

    def _q3(self) -> Any:
        people = op.filter("local", self._rows("person", "id", "name", "city", "state"), lambda row: row[3] in _LOCAL)
        auctions = op.filter("ten", self._rows("auction", "id", "seller", "category"), lambda row: row[2] == 10)
        sides = op.merge(
            "sides",
            op.map("people", people, lambda row: (str(row[0]), row[1:])),
            op.map("auctions", auctions, lambda row: (str(row[1]), row[0])),
        )
        return op.map("values", op.stateful_flat_map("join", sides, suggestions), lambda pair: pair[1])

    def _q8(self) -> Any:
        people = op.map("people", self._rows("person", "id", "name", "date_time"), lambda row: (str(row[0]), row))
        sellers = op.map("sellers", self._rows("auction", "seller", "date_time"), lambda row: (str(row[0]), row))
        clock = windowing.EventClock(_moment, wait_for_system_duration=timedelta(seconds=self._spec["late_s"]))
        begin = datetime(2023, 1, 1, tzinfo=UTC)
        windower = windowing.TumblingWindower(length=timedelta(seconds=10), align_to=begin)
        joined = windowing.join_window("join", clock, windower, people, sellers).down
        both = op.filter("both", joined, lambda pair: None not in pair[1][1])
        return op.map("values", both, new_seller)


def _moment(row: tuple[Any, ...]) -> datetime:
    moment: datetime = row[-1].replace(tzinfo=UTC)
    return moment


def suggestions(state: Any, row: Any) -> tuple[Any, Iterator[Any] | list[Any]]:
    """Query 3's join for one seller. ``row``: the person (a tuple) or the number of an auction. The state holds the
    person, or the auctions that wait for the person."""
    person, waiting = state or (None, [])
    if isinstance(row, tuple):
        return (row, []), [(*row, auction) for auction in waiting]
    if person is None:
        return (None, [*waiting, row]), []
    return (person, []), [(*person, row)]


def new_seller(pair: Any) -> tuple[Any, ...]:
    """A result row of query 8. The window begins at the last multiple of ten seconds."""
    _, (_, (person, _)) = pair
    moment = _moment(person)
    begin = moment.replace(second=moment.second // 10 * 10, microsecond=0)
    return person[0], person[1], begin


def main(spec: dict[str, Any], process: int) -> None:
    """Runs one process to the end."""
    out = Path(spec["out"])
    with (out / f"{process}.jsonl").open("w") as progress, (out / f"results-{process}.jsonl").open("w") as lines:
        cluster_main(
            Flow(spec, progress, lines if spec["results"] else None).build(),
            spec["addresses"],
            process,
            epoch_interval=timedelta(seconds=spec["checkpoint_s"]),
            recovery_config=RecoveryConfig(spec["recovery"]),
        )


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text()), int(sys.argv[2]))
