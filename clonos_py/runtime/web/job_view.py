"""What the web pages of a run show: its status, the newest counters of each process, and its latest events.

The run calls a view as its listener, and the server's thread reads it; a lock keeps both apart.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from operator import itemgetter
from typing import Any, NamedTuple

from clonos_py.model.coordinator_events import CheckpointCompleted
from clonos_py.model.counters import ProcessCounters
from clonos_py.model.ids import TaskId
from clonos_py.model.plan import PhysicalPlan, Vertex
from clonos_py.observe.events import Event, FunctionPrinted, Measured, Progress
from clonos_py.observe.log_lines import event_fields, log_line
from clonos_py.observe.status import STEPS, Recovery, RunStatus
from clonos_py.runtime.web.user_metrics import as_json
from clonos_py.settings.definitions import Guarantee, Settings

_EVENTS_KEPT = 1_000
_LISTED_MAX = 50
_SILENT_US = 5_000_000
"""A process that has sent no counters for this long is not shown as running."""
_SHARES_US = 5_000_000
"""The time over which shares of time are measured."""
_LATE_INTERVALS = 5
"""A run is not ready when no checkpoint has completed for so many intervals,"""
_LATE_US_MIN = 10_000_000
"""but for this long at least: short intervals are missed by a busy machine now and then."""


class SeenProcess:
    """The counters of one process: the newest, and some from before, which give the shares of time since then."""

    def __init__(self) -> None:
        self._readings: deque[tuple[int, ProcessCounters]] = deque()

    def read(self, at_us: int, counters: ProcessCounters) -> None:
        """Takes new counters. Those from before the window are dropped, but for the newest of them."""
        self._readings.append((at_us, counters))
        while len(self._readings) > 2 and self._readings[1][0] <= at_us - _SHARES_US:
            self._readings.popleft()

    @property
    def at_us(self) -> int:
        """When the newest counters came."""
        return self._readings[-1][0]

    @property
    def counters(self) -> ProcessCounters:
        """The newest counters."""
        return self._readings[-1][1]

    def share(self, attribute: str) -> float | None:
        """The share of the last seconds that the task's thread spent so; None if it is not known."""
        before = self._readings[0][1] if len(self._readings) > 1 else ProcessCounters()
        elapsed = self.counters.alive_us - before.alive_us
        if elapsed <= 0:
            return None
        spent: int = getattr(self.counters, attribute) - getattr(before, attribute)
        return min(max(spent / elapsed, 0.0), 1.0)

    @property
    def busy(self) -> float | None:
        """The share of time with work."""
        idle, held_back = self.share("idle_us"), self.share("held_back_us")
        return None if idle is None or held_back is None else max(1.0 - idle - held_back, 0.0)


class ShownEvent(NamedTuple):
    """An event as JSON shows it. ``number``: its place among all events of the run, from 1."""

    number: int
    fields: Mapping[str, Any]


class JobView:
    """The view of one run, fed with its events."""

    def __init__(self, plan: PhysicalPlan, settings: Settings, began: datetime) -> None:
        self.plan, self.settings, self.began = plan, settings, began
        self.lock = threading.Lock()
        self.status = RunStatus()
        self.processes: dict[tuple[TaskId, int], SeenProcess] = {}
        self._events: deque[ShownEvent] = deque(maxlen=_EVENTS_KEPT)
        self._numbered = 0
        self._deployed_us: int | None = None
        self._checkpoint_us: int | None = None

    def __call__(self, at_us: int, event: Event) -> None:
        with self.lock:
            self.status.on(at_us, event)
            match event:
                case Measured(readings=readings):
                    for reading in readings:
                        seen = self.processes.setdefault((reading.task, reading.process), SeenProcess())
                        seen.read(reading.at_us, reading.counters)
                case CheckpointCompleted():
                    self._checkpoint_us = at_us
                case _:
                    pass
            if self._deployed_us is None and self.status.tasks:
                self._deployed_us = at_us
            if not isinstance(event, Measured | Progress | FunctionPrinted):
                self._add(at_us, event)

    def _add(self, at_us: int, event: Event) -> None:
        line = log_line(self.status, at_us, event)
        self._numbered += 1
        fields = {
            "number": self._numbered,
            "time": self.time_of(at_us),
            "at_s": at_us / 1e6,
            "event": type(event).__name__,
            "level": line[0].value if line else "debug",
            "message": line[1] if line else "",
            **event_fields(event),
        }
        self._events.append(ShownEvent(self._numbered, fields))

    def time_of(self, at_us: int) -> str:
        """The time of day of an event, in UTC."""
        time = (self.began + timedelta(microseconds=at_us)).astimezone(UTC)
        return f"{time:%Y-%m-%dT%H:%M:%S.%f}"[:-3] + "Z"

    # ---- what the server reads

    def events_after(self, number: int) -> list[ShownEvent]:
        """The events behind that number which are kept still, oldest first."""
        with self.lock:
            return [event for event in self._events if event.number > number]

    @property
    def last_event(self) -> int:
        """The number of the newest event."""
        return self._numbered

    def late_checkpoint_s(self) -> float | None:
        """For how long no checkpoint has completed, if that is longer than several intervals."""
        if self.settings.guarantee is Guarantee.AT_MOST_ONCE or self._deployed_us is None:
            return None
        interval_us = self.settings.checkpoint_interval_us
        if self.settings.finds_interval:
            chosen = self.status.interval
            interval_us = round(chosen.interval_s * 1e6) if chosen else self.settings.checkpoint_interval_max_us
        since_us = self.status.at_us - max(self._checkpoint_us or 0, self._deployed_us)
        return since_us / 1e6 if since_us > max(_LATE_INTERVALS * interval_us, _LATE_US_MIN) else None

    def unready(self) -> list[str]:
        """Why the run is not ready; empty if it is."""
        with self.lock:
            if self.status.finished is not None:
                return ["the job has finished"]
            if not self.status.tasks:
                return [f"the job is not deployed yet: {self.status.deployment or 'preparing'}"]
            late_s = self.late_checkpoint_s()
            return [] if late_s is None else [f"no checkpoint has completed for {late_s:.0f} s"]

    def recent(self) -> Iterator[tuple[TaskId, int, SeenProcess]]:
        """The processes that have sent counters lately."""
        for (task, number), seen in sorted(self.processes.items(), key=itemgetter(0)):
            if seen.at_us > self.status.at_us - _SILENT_US:
                yield task, number, seen

    def job(self) -> dict[str, Any]:
        """The run as JSON."""
        with self.lock:
            status, recent = self.status, list(self.recent())
            return {
                "job": self.plan.job,
                "began": self.time_of(0),
                "at_s": status.at_us / 1e6,
                "state": "finished" if status.finished else "running" if status.tasks else "starting",
                "waits_for": status.waits_for[0],
                "vertices": [self._vertex(vertex, recent) for vertex in self.plan.vertices],
                "edges": [{"from": e.source, "to": e.target, "feedback": e.feedback} for e in self.plan.edges],
                "tasks": [self._task(*found) for found in recent],
                "checkpoints": {
                    "completed": status.checkpoints.amount,
                    "aborted": status.aborted.amount,
                    "skipped": status.skipped.amount,
                    "last": [_checkpoint(event) for event in status.checkpoints[-_LISTED_MAX:]],
                },
                "recoveries": [self._recovery(recovery) for recovery in status.recoveries[-_LISTED_MAX:]],
                "rollbacks": status.rollbacks.amount,
                "counts": dict(status.progress.counts) if status.progress else {},
                "metrics": as_json(status.progress.metrics if status.progress else {}),
                "news": list(status.news),
                "settings": {key: value for key, value, _ in self.settings.shown()},
                "last_event": self._numbered,
            }

    def _vertex(self, vertex: Vertex, recent: Sequence[tuple[TaskId, int, SeenProcess]]) -> dict[str, Any]:
        status, name = self.status, vertex.name
        seen = status.progress.vertices if status.progress else ()
        progress = next((found for found in seen if found.vertex == name), None)
        tasks = [found for task, _, found in recent if task.vertex == name and found.counters.active]
        held_back = [share for found in tasks if (share := found.share("held_back_us")) is not None]
        busy = [share for found in tasks if (share := found.busy) is not None]
        return {
            "name": name,
            "parallelism": vertex.parallelism,
            "operators": [operator.name for operator in vertex.operators],
            "source": vertex.source is not None,
            "rows_in": progress.rows_in if progress else 0,
            "rows_out": progress.rows_out + progress.rows_written if progress else 0,
            "rows_in_per_s": status.rows_in[name].per_second if name in status.rows_in else 0.0,
            "rows_out_per_s": status.rows_out[name].per_second if name in status.rows_out else 0.0,
            "lag_s": None if progress is None or progress.lag_us is None else progress.lag_us / 1e6,
            "rows_waiting": progress.rows_waiting if progress else None,
            "busy": max(busy, default=None),
            "held_back": max(held_back, default=None),
        }

    def _task(self, task: TaskId, number: int, seen: SeenProcess) -> dict[str, Any]:
        counters = seen.counters
        return {
            "task": str(task),
            "vertex": task.vertex,
            "index": task.index,
            "process": number,
            "role": "task" if counters.active else "standby",
            "rows_in": counters.rows_in,
            "rows_out": counters.rows_out,
            "busy": seen.busy,
            "held_back": seen.share("held_back_us"),
            "resident_bytes": counters.resident_bytes,
            "in_flight_bytes": counters.in_flight_bytes,
            "spilled_bytes": counters.spilled_bytes,
            "log_bytes": counters.log_bytes,
            "state": {name: {"rows": size.rows, "bytes": size.bytes} for name, size in counters.state.items()},
            "standby_lag_s": None if counters.standby_lag_us is None else counters.standby_lag_us / 1e6,
        }

    def _recovery(self, recovery: Recovery) -> dict[str, Any]:
        steps = (recovery.step(kind) for kind in STEPS)
        return {
            "task": str(recovery.task),
            "how": recovery.how,
            "planned": recovery.planned,
            "time": self.time_of(recovery.failed_at_us),
            "at_s": recovery.failed_at_us / 1e6,
            "rows_replayed": recovery.rows_replayed,
            "attempt": None if recovery.attempt is None else str(recovery.attempt),
            "steps": [{"step": words, "after_ms": after_ms} for words, after_ms in steps],
        }


def _checkpoint(event: CheckpointCompleted) -> dict[str, Any]:
    return {
        "checkpoint": event.checkpoint,
        "duration_ms": event.duration_ms,
        "bytes": event.bytes,
        "snapshots": event.snapshots,
        "requests": event.requests,
    }
