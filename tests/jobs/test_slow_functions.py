"""Functions that take long for a row: checkpoints still complete, and no row is processed twice."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from clonos_py import Context, Job, Process, Record
from clonos_py.connectors import FileSink, MemorySource
from clonos_py.model.coordinator_events import CheckpointAborted, CheckpointCompleted, Deployed
from clonos_py.observe.events import Event, TaskFailed
from clonos_py.runtime.launch import run_job
from clonos_py.settings.resolution import resolve

KEYS = 97
SLEEP_S = 0.002


class Row(Record):
    key: int
    number: int


def slow(row: Row) -> Row:
    time.sleep(SLEEP_S)
    return row


class Slow(Process[Row, Row]):
    def on_row(self, row: Row, ctx: Context) -> Row:
        return slow(row)


def slow_job(rows: int, keyed: bool, out: Path) -> Job:
    """One read of the source may have all rows."""
    job = Job("slow")
    source = MemorySource([Row(number % KEYS, number) for number in range(rows)], batch_rows=1 << 20)
    stream = job.source(source).named("rows")
    made = stream.key_by("key").process(Slow) if keyed else stream.map(slow)
    made.named("slow").sink(FileSink(str(out), format="csv")).named("out")
    return job


def intervals_s(events: list[tuple[int, Event]]) -> list[float]:
    """The seconds between completed checkpoints, from the deployment on; without the last one, which the end of the job
    takes."""
    (deployed,) = (at_us for at_us, event in events if isinstance(event, Deployed))
    completed = [at_us for at_us, event in events if isinstance(event, CheckpointCompleted)][:-1]
    return [(after - before) / 1e6 for before, after in zip([deployed, *completed], completed, strict=False)]


def assert_all_rows(out: Path, rows: int) -> None:
    lines = [line for part in out.glob("*.csv") for line in part.read_text().splitlines()[1:]]
    assert sorted(int(line.split(",")[1]) for line in lines) == list(range(rows))


@pytest.mark.parametrize("keyed", [False, True])
def test_checkpoints_complete_in_time_while_a_function_sleeps_for_each_row(keyed: bool, tmp_path: Path) -> None:
    events: list[tuple[int, Event]] = []
    job = slow_job(2_500, keyed, tmp_path / "out")
    settings = resolve(command_line={"runtime": "local", "checkpoint_interval": "1s"})
    run_job(job, settings, lambda at_us, event: events.append((at_us, event)))
    found = intervals_s(events)
    assert len(found) >= 4
    assert max(found) < 2.5, "five seconds of rows come in one read, or wait in frames of a thousand"
    assert not [event for _, event in events if isinstance(event, TaskFailed | CheckpointAborted)]
    assert_all_rows(tmp_path / "out", 2_500)
