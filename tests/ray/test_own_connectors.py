"""A source and a sink of one's own on real actors, killed with real SIGKILLs."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest

from clonos_py import Job, Record
from clonos_py.connectors import PartitionedSource, RowReader
from clonos_py.model.coordinator_events import CheckpointCompleted, RolledBack
from clonos_py.model.ids import TaskId
from clonos_py.observe.events import Event
from clonos_py.runtime.launch import run_job
from clonos_py.runtime.ray.cluster import Cluster
from clonos_py.settings.resolution import resolve
from examples.sqlite_sink import SqliteSink
from tests.observed import killed

pytestmark = pytest.mark.ray

ROWS, RATE = 4_000, 800


class Number(Record):
    partition: str
    number: int


class PacedNumbers(PartitionedSource[Number]):
    """A source of two partitions; rows come one by one, ``RATE`` a second."""

    poll_every_us = 5_000

    def __init__(self, began: Path) -> None:
        super().__init__(Number)
        self._began = began

    def partitions(self) -> Sequence[str]:
        return ["a", "b"]

    def open(self, partition: str) -> RowReader:
        return PacedReader(partition, self._began)


class PacedReader(RowReader):
    """The first reader creates a file, whose time is the beginning for all: rows that were available once stay
    available."""

    def __init__(self, partition: str, began: Path) -> None:
        self._partition = partition
        began.open("a").close()  # an existing file keeps its time
        self._began_s = began.stat().st_mtime

    def read(self, position: int, rows_max: int) -> tuple[list[Number], int] | None:
        if position >= ROWS:
            return None
        available = min(ROWS, int((time.time() - self._began_s) * RATE))
        stop = max(position, min(available, position + rows_max))
        return [Number(self._partition, number) for number in range(position, stop)], stop


@pytest.mark.thorough
def test_each_row_is_in_the_database_once_although_tasks_of_source_and_sink_are_killed(
    cluster: Cluster, tmp_path: Path
) -> None:
    events: list[Event] = []
    database = str(tmp_path / "numbers.sqlite")
    job = Job("own-connectors")
    numbers = job.source(PacedNumbers(tmp_path / "began")).named("numbers")
    numbers.rebalance().sink(SqliteSink(database, "numbers")).named("out")
    kills = ["out[0]@1.2s", "numbers[1]@2.5s", "out[1]@3.7s"]
    settings = {"kills": kills, "checkpoint_interval": "500ms", "parallelism": 2}
    run_job(job, resolve(command_line=settings), lambda at_us, event: events.append(event))

    assert sorted(killed(events)) == [TaskId("numbers", 1), TaskId("out", 0), TaskId("out", 1)]
    assert not [event for event in events if isinstance(event, RolledBack)]
    assert len([event for event in events if isinstance(event, CheckpointCompleted)]) > 1
    with closing(sqlite3.connect(database)) as connection:
        found = connection.execute("SELECT * FROM numbers").fetchall()
        owners = connection.execute("SELECT owner, checkpoint FROM _commits").fetchall()
    assert sorted(found) == [(partition, number) for partition in "ab" for number in range(ROWS)]
    assert len(owners) == 2, "all attempts of a task are one owner"
    assert min(checkpoint for _, checkpoint in owners) > 0
