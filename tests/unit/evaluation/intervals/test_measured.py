"""What a trace says about the checkpoint interval; reports are in ``tests/unit/cli/test_interval.py``."""

from __future__ import annotations

from pathlib import Path

import pytest

from clonos_py.evaluation.intervals.measured import MeasuredRun, measured
from clonos_py.model.coordinator_events import (
    CheckpointCompleted,
    Deployed,
    Finished,
    Replayed,
    Restarted,
    StandbyActivated,
)
from clonos_py.model.errors import SettingError
from clonos_py.model.ids import Attempt
from clonos_py.observe import events as e
from clonos_py.observe.trace import TraceWriter
from tests.unit.observe.traces import HEADER, MS, SECOND, SINK, SOURCE, reading
from tests.unit.observe.traces import measured as counted

SETTINGS = {"guarantee": "exactly-once", "sharing_depth": "full", "checkpoint_interval": "2s"}
DEPLOYED_US = 3 * SECOND


def traced(folder: Path, events: list[tuple[int, e.Event]], **settings: str) -> MeasuredRun:
    """What a run of 20 seconds says, with these events at times since its deployment."""
    writer = TraceWriter(folder / "trace", {**HEADER, "settings": {**SETTINGS, **settings}})
    for at_us, event in ((0, Deployed(tasks=2, standbys=2)), *events, (20 * SECOND, Finished())):
        writer(DEPLOYED_US + at_us, event)
    writer.close()
    return measured(folder / "trace")


def failure(at_us: int, rows: int, replay_us: int) -> list[tuple[int, e.Event]]:
    """It is detected after 10 ms and the standby active after 40 ms."""
    return [
        (at_us, e.TaskFailed(task=SINK, how="killed")),
        (at_us + 10 * MS, e.Detected(task=SINK)),
        (at_us + 40 * MS, StandbyActivated(task=SINK, attempt=Attempt(1, 1))),
        (at_us + 40 * MS + replay_us, Replayed(task=SINK, rows=rows)),
        (at_us + 500 * MS, Restarted(tasks=1)),
    ]


def rows_taken(process: int, since_us: int, until_us: int, replayed: int = 0) -> list[tuple[int, e.Event]]:
    """A task takes 1,000 rows a second, and before these the replayed ones."""
    found = []
    for at_us in range(since_us, until_us + 1, 250 * MS):
        rows = replayed + (at_us - since_us) * 1_000 // SECOND
        found.append(counted(reading(DEPLOYED_US + at_us, SINK, process, rows, replayed=replayed)))
    return [(event.readings[-1].at_us - DEPLOYED_US, event) for _, event in found]


def test_a_trace_holds_the_rate_of_failures_the_restart_the_replay_speed_and_the_completion(tmp_path: Path) -> None:
    found = traced(
        tmp_path,
        [
            (2 * SECOND, CheckpointCompleted(checkpoint=1, duration_ms=100.0, bytes=1, cost_ms=20.0)),
            (3 * SECOND, CheckpointCompleted(checkpoint=2, duration_ms=200.0, bytes=1)),
            (4 * SECOND, CheckpointCompleted(checkpoint=3, duration_ms=300.0, bytes=1, cost_ms=40.0)),
            *rows_taken(2, 0, 5 * SECOND),
            *failure(5 * SECOND, rows=700, replay_us=250 * MS),
            *rows_taken(3, 6 * SECOND, 12 * SECOND, replayed=700),
            *failure(12 * SECOND, rows=300, replay_us=150 * MS),
            *rows_taken(4, 13 * SECOND, 15 * SECOND, replayed=300),
        ],
    )
    assert (found.rolls_back, found.interval_s) == (False, 2.0)
    assert found.failures_per_s == pytest.approx(0.1)
    assert found.restart_s == pytest.approx(0.04)
    assert found.replay_speed == pytest.approx(1.0 / 0.4)
    assert found.lag_s == pytest.approx(0.2)
    assert found.cost_s == pytest.approx(0.03)


def test_time_after_the_last_row_does_not_count_as_normal_speed(tmp_path: Path) -> None:
    idle = [(at_us, counted(reading(DEPLOYED_US + at_us, SINK, 2, 5_000))[1]) for at_us in (7 * SECOND, 9 * SECOND)]
    events = [*rows_taken(2, 0, 5 * SECOND), *idle, *failure(10 * SECOND, rows=500, replay_us=250 * MS)]
    assert traced(tmp_path, events).replay_speed == pytest.approx(2)


def test_steps_of_the_next_failure_of_a_task_are_not_those_of_the_one_before(tmp_path: Path) -> None:
    events = [(SECOND, e.TaskFailed(task=SINK, how="killed")), *failure(2 * SECOND, rows=500, replay_us=MS)]
    found = traced(tmp_path, events)
    assert found.failures_per_s == pytest.approx(0.1)
    assert found.restart_s == pytest.approx(0.04)


def test_in_rollback_recovery_the_restart_ends_when_all_tasks_have_restarted(tmp_path: Path) -> None:
    found = traced(tmp_path, failure(5 * SECOND, rows=700, replay_us=250 * MS), sharing_depth="0")
    assert (found.rolls_back, found.replay_speed) == (True, None)
    assert found.restart_s == pytest.approx(0.5)


def test_what_a_trace_does_not_hold_is_none(tmp_path: Path) -> None:
    found = traced(tmp_path, [(SECOND, e.TaskFailed(task=SOURCE, how="killed"))])
    assert (found.restart_s, found.replay_speed, found.lag_s, found.cost_s) == (None, None, None, None)


def test_a_trace_without_failures_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="nothing failed, so it has no rate of failures: name a run with failures"):
        traced(tmp_path, [])
