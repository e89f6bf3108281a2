"""What a run reports while it runs, where no live view shows it."""

from __future__ import annotations

import errno
import io
import json
from datetime import UTC, datetime
from typing import Any

import pytest
from rich.console import Console

from clonos_py.model.coordinator_events import (
    CheckpointAborted,
    CheckpointCompleted,
    CoordinatorReplaced,
    Deployed,
    Finished,
    FirstNewEffect,
    Replayed,
    StandbyActivated,
)
from clonos_py.model.counters import ProcessCounters
from clonos_py.model.ids import Attempt, TaskId
from clonos_py.model.reports import LogFormat, LogLevel
from clonos_py.observe.console import watch
from clonos_py.observe.events import (
    Event,
    FunctionPrinted,
    Measured,
    Preparing,
    ProcessReading,
    ProcessWarned,
    Recovered,
    TaskFailed,
)
from clonos_py.observe.log_lines import LogLines
from clonos_py.observe.status import RunStatus

JOIN = TaskId("join", 0)
STORY: tuple[tuple[int, Event], ...] = (
    (0, Deployed(tasks=4, standbys=4)),
    (1_100_000, CheckpointCompleted(checkpoint=1, duration_ms=42.4, bytes=3_000_000, requests={"put": 3, "list": 4})),
    (2_000_000, TaskFailed(task=JOIN, how="killed by --kill", frames_at_stake=7)),
    (2_050_000, StandbyActivated(task=JOIN, attempt=Attempt(1, 2))),
    (2_200_000, Replayed(task=JOIN, rows=123)),
    (2_210_000, FirstNewEffect(task=JOIN)),
    (3_000_000, Recovered(task=JOIN)),
    (3_100_000, TaskFailed(task=JOIN, how="its process has another task", planned=True)),
    (3_200_000, CheckpointAborted(checkpoint=2, reason="a task failed")),
    (3_300_000, CoordinatorReplaced()),
    (4_000_000, Finished()),
)
WARNINGS = [
    "warning: join[0] failed: killed by --kill",
    "warning: checkpoint 2 aborted: a task failed",
    "warning: the coordinator was lost and replaced",
]


def lines(level: LogLevel, format_: LogFormat = LogFormat.PLAIN, terminal: bool = False) -> list[str]:
    text = io.StringIO()
    with watch("hot", level, format_, Console(file=text, force_terminal=terminal, width=40)) as listener:
        for at_us, event in STORY:
            listener(at_us, event)
    return text.getvalue().splitlines()


def test_checkpoints_and_the_steps_of_a_recovery_are_lines_as_they_happen() -> None:
    assert lines(LogLevel.INFO)[: len(STORY) - 1] == [
        "hot 0.0 s: 4 tasks run, with 4 standbys; to stop it: clonos stop hot",
        "hot 1.1 s: checkpoint 1 completed after 42 ms, 3.0 MB, 7 requests",
        WARNINGS[0],
        "hot 2.0 s: join[0]: standby activated 50 ms after the failure",
        "hot 2.2 s: join[0]: replayed 200 ms after the failure",
        "hot 2.2 s: join[0]: first new result 210 ms after the failure",
        "hot 3.0 s: join[0]: latency normal 1,000 ms after the failure",
        "hot 3.1 s: join[0] moves: its process has another task",
        *WARNINGS[1:],
    ]


def test_each_line_of_json_about_a_task_has_its_attempt() -> None:
    found: list[str] = []
    status = RunStatus()
    write = LogLines("hot", status, LogLevel.INFO, LogFormat.JSON, found.append, datetime(2026, 5, 1, tzinfo=UTC))

    def shown(event: Event) -> dict[str, Any]:
        status.on(0, event)
        write(0, event)
        line: dict[str, Any] = json.loads(found[-1])
        assert line["job"] == "hot"
        return line

    first = ProcessReading(0, JOIN, 1, ProcessCounters(active=True, attempt=Attempt(1, 1)))
    standby = ProcessReading(0, JOIN, 2, ProcessCounters())
    status.on(0, Measured((first, standby)))
    failed = shown(TaskFailed(task=JOIN, how="its process died"))
    assert (failed["task"], failed["attempt"], failed["event"]) == ("join[0]", "1.1", "TaskFailed")
    assert shown(StandbyActivated(task=JOIN, attempt=Attempt(1, 2)))["attempt"] == "1.2"
    assert shown(Replayed(task=JOIN, rows=3))["attempt"] == "1.2"
    warned = shown(ProcessWarned(task=JOIN, text="closed a connection", attempt=Attempt(1, 3)))
    assert (warned["level"], warned["message"], warned["attempt"]) == ("warning", "join[0]: closed a connection", "1.3")
    printed = shown(FunctionPrinted(task=JOIN, operator="map", text="seen", attempt=Attempt(1, 2)))
    assert (printed["message"], printed["operator"], printed["attempt"]) == ("seen", "map", "1.2")
    assert shown(FunctionPrinted(task=TaskId("new", 0), operator="map", text="seen"))["attempt"] is None
    assert "attempt" not in shown(CheckpointAborted(checkpoint=2, reason="a task failed"))


def summary_of(found: list[str]) -> str:
    (line,) = [line for line in found if line.startswith("hot finished")]
    return line


def test_at_the_level_of_warnings_only_these_come_before_the_summary() -> None:
    found = lines(LogLevel.WARNING)
    assert found[:3] == WARNINGS
    assert found[3] == summary_of(found)


class Unwritable(io.StringIO):
    """A file on a full disk, or a pipe whose reader is gone."""

    def __init__(self, problem: OSError) -> None:
        super().__init__()
        self._problem = problem

    def write(self, text: str) -> int:
        raise self._problem


@pytest.mark.parametrize("problem", [OSError(errno.ENOSPC, "No space left on device"), BrokenPipeError()])
def test_a_run_goes_on_although_its_lines_cannot_be_written(problem: OSError) -> None:
    with watch("hot", console=Console(file=Unwritable(problem), width=40)) as listener:
        for at_us, event in STORY:
            listener(at_us, event)


def test_one_task_is_named_as_one() -> None:
    text = io.StringIO()
    with watch("hot", console=Console(file=text, width=40)) as listener:
        listener(0, Deployed(tasks=1, standbys=1))
    assert text.getvalue() == "hot 0.0 s: 1 task runs, with 1 standby; to stop it: clonos stop hot\n"


def test_off_leaves_only_the_summary() -> None:
    found = lines(LogLevel.OFF)
    assert found[0] == summary_of(found)


def test_a_terminal_has_the_live_view_instead_of_lines() -> None:
    assert not [line for line in lines(LogLevel.INFO, terminal=True) if line.startswith(("hot 1.1 s", "warning"))]


@pytest.mark.parametrize("terminal", [True, False])
def test_each_line_of_json_is_an_object_with_time_level_job_and_the_fields_of_the_event(terminal: bool) -> None:
    found: list[dict[str, Any]] = [json.loads(line) for line in lines(LogLevel.INFO, LogFormat.JSON, terminal)]
    failed = next(row for row in found if row.get("event") == "TaskFailed")
    time = failed.pop("time")
    assert failed == {
        "level": "warning", "job": "hot", "message": "join[0] failed: killed by --kill", "event": "TaskFailed",
        "task": "join[0]", "how": "killed by --kill", "frames_at_stake": 7, "planned": False,
    }  # fmt: skip
    assert found[0]["time"] < time
    assert time.endswith("Z")
    assert summary_of([row["message"] for row in found])


@pytest.mark.parametrize("level", LogLevel)
def test_what_functions_print_is_written_at_any_level_and_on_a_terminal(level: LogLevel) -> None:
    for terminal in (True, False):
        text = io.StringIO()
        with watch("hot", level, console=Console(file=text, force_terminal=terminal, width=40)) as listener:
            listener(0, FunctionPrinted(task=JOIN, operator="enriched", text="a [b] line"))
            listener(0, FunctionPrinted(task=JOIN, operator="", text="of a coroutine"))
        assert "enriched[0] a [b] line" in text.getvalue()
        assert "join[0] of a coroutine" in text.getvalue()


def test_what_a_start_waits_for_has_the_form_of_the_other_lines() -> None:
    written: list[str] = []
    status = RunStatus()
    status.on(0, Preparing(doing="starting Ray"))
    made = LogLines("hot", status, LogLevel.INFO, LogFormat.PLAIN, written.append, datetime(2026, 1, 1, tzinfo=UTC))
    made.report(2_000_000, "starting Ray, 2 s so far")
    assert written == ["hot 2.0 s: starting Ray, 2 s so far"]
