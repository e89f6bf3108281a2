"""The events that a run sends to its listeners: one frozen dataclass per kind.

Most are events of the coordinator (``model/coordinator_events.py``); the others are here. A listener is a function of a
time and an event. The driver calls it in order, from one thread at a time. It must return soon and never raise. Times
are microseconds since the run began, on a monotonic clock.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from clonos_py.model.coordinator_events import FirstNewEffect, PublishedEvent, Replayed, StandbyActivated
from clonos_py.model.counters import ProcessCounters
from clonos_py.model.ids import Attempt, TaskId
from clonos_py.model.user_metrics import UserMetric

# ---- how far the run is


@dataclass(frozen=True, slots=True, kw_only=True)
class VertexProgress:
    """Totals of one vertex over all its tasks since the run began, from which listeners compute rates."""

    vertex: str
    parallelism: int
    rows_in: int
    """Rows received, or input events read by a source."""
    rows_out: int
    lag_us: int | None = None
    """The highest lag of a task: how far its watermark is behind the time at which rows were read; None before there is
    a watermark. For historical data this is their age."""
    event_time_us: int | None = None
    """The watermark in that task; None before there is one."""
    rows_waiting: int | None = None
    """The approximate number of rows that a source has not read yet; None if the source cannot tell."""
    reads: bool = False
    """Whether the vertex has a source."""
    rows_written: int = 0
    """Rows that the vertex's sinks have received since the job's first run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """The progress of the run, sent about four times a second."""

    vertices: tuple[VertexProgress, ...]
    in_flight_bytes: int
    """The size of retained frames, over all tasks."""
    determinant_bytes: int = 0
    """Determinants sent since the run began."""
    stamp_bytes: int = 0
    """Stamps of the checkpoint protocol sent since the run began."""
    data_bytes: int = 0
    """Rows sent between tasks since the run began."""
    feed_bytes: int = 0
    """What was sent to standbys since the run began, determinants not counted."""
    standby_lag_us: int | None = None
    """The furthest that a task's standbys were behind when they loaded their last feed point; None if none is fed."""
    extent: int | None = None
    """Footprints that restarts of all tasks would read; None if no task saves its state in parts."""
    replay_rows: int | None = None
    """The most rows of input that the restart of a task would take again for its footprints."""
    cpu_us: int = 0
    """Processor time of all task processes so far, if each task has its own process."""
    counts: Mapping[str, int] = field(default_factory=dict)
    """Counters of the operators since the job's first run, over all tasks, by ``operator.counter``: late rows, dead
    letters and so on. Replayed rows count once."""
    metrics: Mapping[str, Mapping[int, UserMetric]] = field(default_factory=dict)
    """Metrics of users' functions since the job's first run, by ``operator.name`` and by number of the task."""
    frames_at_stake: Mapping[TaskId, int] = field(default_factory=dict)
    """The number of frames that each task has sent since its restart point; for a task without outputs, the frames that
    it has received."""


@dataclass(frozen=True, slots=True)
class ProcessReading:
    """The counters of one process of a task, as they arrived at ``at_us``."""

    at_us: int
    task: TaskId
    process: int
    counters: ProcessCounters


@dataclass(frozen=True, slots=True)
class Measured:
    """The counters of every process that has sent them since the last event of this kind. Sent before each
    ``Progress``."""

    readings: tuple[ProcessReading, ...]


# ---- failures and recoveries


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskFailed:
    """A task failed. The event's time is that of the failure, as far as known (exact for a requested kill)."""

    task: TaskId
    how: str
    frames_at_stake: int = 0
    """The frames that it had sent since its restart point (or received, if it has no outputs), by its last counters."""
    planned: bool = False
    """It has not failed: the task moves to another process."""


@dataclass(frozen=True, slots=True)
class Detected:
    """The coordinator has detected the failure of the task."""

    task: TaskId


@dataclass(frozen=True, slots=True)
class Recovered:
    """Latency is back to that before the failure. The event's time is when it became normal; it is sent later."""

    task: TaskId


# ---- the run


@dataclass(frozen=True, slots=True, kw_only=True)
class ImplausibleEventTimes:
    """A source, or an operator that assigns event time, has produced rows with an implausible time: before 1990, or
    more than a day ahead of the clock. Sent once for each source or operator and column."""

    source: str
    column: str
    value_us: int
    reason: str
    """The problem and its remedy, as text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetMissed:
    """A task cannot save its state in parts as often as a setting demands. Sent once for each setting and vertex."""

    task: TaskId
    reason: str
    """The problem and its remedy, as text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricConflict:
    """Two operators keep metrics of different kinds under one name. Sent once for each name."""

    name: str
    reason: str
    """The problem and its remedy, as text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanWarning:
    """The job as written is probably a mistake, or runs slower than it could here. Sent before the run begins."""

    reason: str
    """The problem and its remedy, as text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointsLeft:
    """An earlier run of this job was killed and left its checkpoints in a temporary ``folder``. This run starts from
    the beginning."""

    folder: str
    checkpoint: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Preparing:
    """A step before the coordinator runs, such as ``starting Ray``."""

    doing: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorAwaited:
    """Ray has not started the coordinator for ``waited_us``. ``seen``: the state of its node, as text."""

    waited_us: int
    seen: str


@dataclass(frozen=True, slots=True, kw_only=True)
class KillMissed:
    """A kill requested for ``after_us`` after deployment did not happen, since the job had ended."""

    task: TaskId
    after_us: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionPrinted:
    """A user's function has printed or logged a line in another process. ``operator`` is empty if it is not known, and
    ``attempt`` None."""

    task: TaskId
    operator: str
    text: str
    attempt: Attempt | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessWarned:
    """The engine has logged a warning in a process of the task. ``attempt``: None if it is a standby."""

    task: TaskId
    text: str
    attempt: Attempt | None = None


@dataclass(frozen=True, slots=True)
class RescaleFailed:
    """The run was to have another parallelism, and goes on with the one that it had."""

    reason: str


@dataclass(frozen=True, slots=True)
class TraceStopped:
    """The trace could no longer be written. The run continues without it."""

    reason: str


@dataclass(frozen=True, slots=True)
class Broken:
    """The job ended with an error. Only the trace receives this event; the caller receives the error itself."""

    reason: str


RecoveryStep = Detected | StandbyActivated | Replayed | FirstNewEffect | Recovered

Event = (
    PublishedEvent
    | RecoveryStep
    | Progress
    | Measured
    | TaskFailed
    | CheckpointsLeft
    | Preparing
    | ImplausibleEventTimes
    | TargetMissed
    | MetricConflict
    | PlanWarning
    | CoordinatorAwaited
    | KillMissed
    | FunctionPrinted
    | ProcessWarned
    | RescaleFailed
    | TraceStopped
    | Broken
)

Listener = Callable[[int, Event], None]


def no_listener(at_us: int, event: Event) -> None:
    """A listener that ignores all events."""
