"""Functions that take long for a row: checkpoints still complete, and no row is processed twice."""

from __future__ import annotations

import itertools
import time
from pathlib import Path

import pytest

from clonos_py import Context, Job, Process, Record
from clonos_py.connectors import FileSink, MemorySource
from clonos_py.model.coordinator_events import CheckpointAborted, CheckpointCompleted
from clonos_py.observe.events import Event, TaskFailed
from clonos_py.runtime.launch import run_job
from clonos_py.settings.resolution import resolve

KEYS = 97
SLEEP_S = 0.002


class Row(Record):
    key: int
    number: int


processed: list[int] = []


def slow(row: Row) -> Row:
    processed.append(row.number)
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


def assert_all_rows(out: Path, rows: int) -> None:
    lines = [line for part in out.glob("*.csv") for line in part.read_text().splitlines()[1:]]
    assert sorted(int(line.split(",")[1]) for line in lines) == list(range(rows))


@pytest.mark.parametrize("keyed", [False, True])
def test_checkpoints_complete_in_time_while_a_function_sleeps_for_each_row(keyed: bool, tmp_path: Path) -> None:
    """Rows, not seconds, are counted between checkpoints: a machine that stalls delays both."""
    events: list[Event] = []
    rows_before: list[int] = []
    processed.clear()

    def listen(at_us: int, event: Event) -> None:
        events.append(event)
        if isinstance(event, CheckpointCompleted):
            rows_before.append(len(processed))

    job = slow_job(2_500, keyed, tmp_path / "out")
    run_job(job, resolve(command_line={"runtime": "local", "checkpoint_interval": "1s"}), listen)
    assert len(processed) == rows_before[-1] == 2_500
    between = [after - before for before, after in itertools.pairwise([0, *rows_before])]
    assert max(between) * SLEEP_S < 2.5, "five seconds of rows come in one read, or wait in frames of a thousand"
    assert not [event for event in events if isinstance(event, TaskFailed | CheckpointAborted)]
    assert_all_rows(tmp_path / "out", 2_500)
