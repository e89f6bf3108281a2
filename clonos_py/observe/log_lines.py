"""What a run reports while it runs, as lines: plain text, or one JSON object for each event."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from clonos_py.model.coordinator_events import (
    CheckpointCompleted,
    Deployed,
    FirstNewEffect,
    IntervalChosen,
    Replayed,
    StandbyActivated,
)
from clonos_py.model.ids import TaskId
from clonos_py.model.reports import LogFormat, LogLevel
from clonos_py.observe.events import Event, FunctionPrinted, Recovered, TaskFailed
from clonos_py.observe.status import RunStatus, interval_text, news_text
from clonos_py.observe.units import bytes_text

_ORDER = (LogLevel.INFO, LogLevel.WARNING, LogLevel.OFF)


def log_line(status: RunStatus, at_us: int, event: Event) -> tuple[LogLevel, str] | None:
    """What to report of an event that ``status`` has taken; None if nothing."""
    if (news := news_text(at_us, event)) is not None:
        return LogLevel.WARNING, news
    match event:
        case Deployed(tasks, standbys):
            running = "1 task runs" if tasks == 1 else f"{tasks} tasks run"
            return LogLevel.INFO, f"{running}, with {standbys} standby{'s' * (standbys != 1)}"
        case CheckpointCompleted():
            taken = f"after {event.duration_ms:,.0f} ms, {bytes_text(event.bytes)}"
            sent = f", {requests:,} requests" if (requests := sum(event.requests.values())) else ""
            return LogLevel.INFO, f"checkpoint {event.checkpoint} completed {taken}{sent}"
        case IntervalChosen() if status.interval_changed:
            return LogLevel.INFO, interval_text(event)
        case TaskFailed(task=task, how=how, planned=planned):
            return (LogLevel.INFO, f"{task} moves: {how}") if planned else (LogLevel.WARNING, f"{task} failed: {how}")
        case StandbyActivated() | Replayed() | FirstNewEffect() | Recovered():
            recovery = status.recovery(event.task)
            assert recovery is not None
            step, after_ms = recovery.step(type(event))
            return LogLevel.INFO, f"{event.task}: {step} {after_ms:,.0f} ms after the failure"
        case _:
            return None


def stop_text(job: str) -> str:
    """How another terminal stops the run."""
    return f"to stop it: clonos stop {shlex.quote(job)}"


class LogLines:
    """A listener that writes the lines of one run, from the level on. ``write`` takes a line without its end.
    ``began``: the time of day at which the run began, for JSON."""

    def __init__(
        self,
        job: str,
        status: RunStatus,
        level: LogLevel,
        format_: LogFormat,
        write: Callable[[str], None],
        began: datetime,
    ) -> None:
        self._job, self._status, self._level, self._format = job, status, level, format_
        self._write, self._began = write, began

    def __call__(self, at_us: int, event: Event) -> None:
        """The status has taken the event before. What functions print is written at any level."""
        if isinstance(event, FunctionPrinted):
            self._printed(at_us, event)
            return
        found = log_line(self._status, at_us, event)
        if found is not None and isinstance(event, Deployed):
            found = found[0], f"{found[1]}; {stop_text(self._job)}"
        if found is not None and _ORDER.index(found[0]) >= _ORDER.index(self._level):
            self._report(at_us, *found, event)

    def _printed(self, at_us: int, event: FunctionPrinted) -> None:
        if self._format is LogFormat.JSON:
            self._write(self._json(at_us, LogLevel.INFO, event.text, event))
        else:
            self._write(f"{event.operator or event.task.vertex}[{event.task.index}] {event.text}")

    def report(self, at_us: int, text: str) -> None:
        """Writes a line that belongs to no event."""
        if self._level is LogLevel.INFO:
            self._report(at_us, LogLevel.INFO, text, None)

    def conclude(self, at_us: int, line: str) -> None:
        """Writes a line of the summary, at any level."""
        if self._format is LogFormat.JSON:
            self._write(self._json(at_us, LogLevel.INFO, line.strip(), None))
        else:
            self._write(line)

    def _report(self, at_us: int, level: LogLevel, text: str, event: Event | None) -> None:
        if self._format is LogFormat.JSON:
            self._write(self._json(at_us, level, text, event))
        elif level is LogLevel.WARNING:
            self._write(f"warning: {text}")
        else:
            self._write(f"{self._job} {at_us / 1e6:.1f} s: {text}")

    def _json(self, at_us: int, level: LogLevel, text: str, event: Event | None) -> str:
        more = {} if event is None else {"event": type(event).__name__, **event_fields(event), **self._attempt(event)}
        return json_line(self._began + timedelta(microseconds=at_us), level.value, self._job, text, more)

    def _attempt(self, event: Event) -> dict[str, str]:
        """The attempt of the task that the event is about, if it does not say so itself."""
        task = getattr(event, "task", None)
        known = self._status.attempts.get(task) if isinstance(task, TaskId) else None
        return {} if known is None or getattr(event, "attempt", None) is not None else {"attempt": str(known)}


def json_line(time: datetime, level: str, job: str, text: str, more: Mapping[str, Any] | None = None) -> str:
    """A line of a log in JSON. ``more``: further fields."""
    shown = f"{time.astimezone(UTC):%Y-%m-%dT%H:%M:%S.%f}"[:-3] + "Z"
    return msgspec.json.encode({"time": shown, "level": level, "job": job, "message": text, **(more or {})}).decode()


def event_fields(event: Event) -> dict[str, Any]:
    """The fields of an event by name, as JSON shows them. Events are structs and dataclasses."""
    names = event.__struct_fields__ if isinstance(event, msgspec.Struct) else [field.name for field in fields(event)]
    return {name: _plain(getattr(event, name)) for name in names}


def _plain(value: Any) -> Any:
    """A value of an event as JSON shows it: tasks and attempts as text."""
    return value if value is None or isinstance(value, bool | int | float | str | dict) else str(value)
