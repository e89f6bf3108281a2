"""Functions that take long for a row, on actors, beside programs that take half of the processors."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from clonos_py import Context, Job, Process
from clonos_py.connectors import FileSink, MemorySource
from clonos_py.model.coordinator_events import CheckpointAborted, CheckpointCompleted
from clonos_py.observe.events import Event, Measured, TaskFailed
from clonos_py.plan.physical import plan
from clonos_py.runtime.ray.cluster import Cluster
from clonos_py.runtime.ray.run import run
from clonos_py.settings.resolution import resolve
from tests.jobs.test_slow_functions import Row, assert_all_rows, slow_job

pytestmark = pytest.mark.ray

ROWS = 4_000


def _busy() -> None:
    while True:
        pass


@pytest.fixture
def busy_processors() -> Iterator[None]:
    context = multiprocessing.get_context("spawn")
    programs = [context.Process(target=_busy, daemon=True) for _ in range(max(1, (os.cpu_count() or 1) // 2))]
    for program in programs:
        program.start()
    yield
    for program in programs:
        program.kill()
        program.join()


@pytest.mark.thorough
def test_checkpoints_complete_in_time_and_no_process_is_replaced(
    cluster: Cluster, busy_processors: None, tmp_path: Path
) -> None:
    events: list[tuple[int, Event]] = []
    settings = resolve(command_line={"checkpoint_interval": "1s"})
    run(
        plan(slow_job(ROWS, True, tmp_path / "out"), settings),
        settings,
        lambda at_us, event: events.append((at_us, event)),
    )
    completed = [event for _, event in events if isinstance(event, CheckpointCompleted)]
    assert len(completed) >= 4, "all rows are in one read, or wait in frames before the first barrier"
    assert not [event for _, event in events if isinstance(event, TaskFailed | CheckpointAborted)]
    assert_all_rows(tmp_path / "out", ROWS)


def test_a_function_that_holds_the_gil_is_waited_for(cluster: Cluster, tmp_path: Path) -> None:
    """It answers no heartbeat, and neither would its replacement."""
    events: list[tuple[int, Event]] = []
    settings = resolve(command_line={"checkpoint_interval": "1s"})
    run(
        plan(locking_job(_steps(7.0), tmp_path / "out"), settings),
        settings,
        lambda at_us, event: events.append((at_us, event)),
    )
    assert not [event for _, event in events if isinstance(event, TaskFailed)]
    assert_all_rows(tmp_path / "out", 20)
    measured = [reading for _, event in events if isinstance(event, Measured) for reading in event.readings]
    counters = [reading.counters for reading in measured if reading.counters.active]
    assert max(found.resident_bytes for found in counters) > 10_000_000
    assert all(found.idle_us + found.held_back_us <= found.alive_us for found in counters)
    assert max(found.alive_us - found.idle_us - found.held_back_us for found in counters) > 1_000_000


def _steps(seconds: float) -> int:
    """How far ``sum`` counts in this time, while it holds the interpreter's lock."""
    began = time.perf_counter()
    sum(range(10_000_000))
    return int(10_000_000 * seconds / (time.perf_counter() - began))


def each_instance_locks(out: str) -> Job:
    """Each of the two tasks ``locking`` holds the interpreter's lock for some seconds."""
    steps = _steps(4.0)

    class Locking(Process[Row, Row]):
        def on_row(self, row: Row, ctx: Context) -> Iterator[Row]:
            if row.number in (9, 10, 11, 12):
                sum(range(steps))
            yield row

    job = Job("locking")
    rows = job.source(MemorySource([Row(number, number) for number in range(20)])).named("rows")
    rows.key_by("key").process(Locking).named("locking").sink(FileSink(out, format="csv")).named("out")
    return job


def locking_job(steps: int, out: Path) -> Job:
    def locking(row: Row) -> Row:
        if row.number == 10:
            sum(range(steps))
        return row

    job = Job("locking")
    rows = job.source(MemorySource([Row(number % 3, number) for number in range(20)])).named("rows")
    rows.map(locking).sink(FileSink(str(out), format="csv")).named("out")
    return job
