"""What a run tells its listeners while it runs: one frozen dataclass per kind of event.

Most are events of the coordinator (``model/coordinator_events.py``); the others are here. A listener is a function of a
time and an event. It is called by the driver, in order, from one thread at a time; it must return soon and never raise.
Times are microseconds since the run began, on a clock that never goes back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from clonos_py.model.coordinator_events import FirstNewEffect, PublishedEvent, Replayed, StandbyActivated
from clonos_py.model.counters import ProcessCounters
from clonos_py.model.ids import TaskId

# ---- how far the run is


@dataclass(frozen=True, slots=True, kw_only=True)
class VertexProgress:
    """Totals of one vertex over all its tasks since the run began; listeners make rates of them."""

    vertex: str
    parallelism: int
    rows_in: int
    """Rows received, or input events read by a source."""
    rows_out: int
    lag_us: int | None = None
    """How far the watermark is behind the time at which rows were read, in the task where it is farthest; None before
    any is known. Of data from the past, as old as they are."""
    event_time_us: int | None = None
    """The watermark in that task; None before any is known."""
    rows_waiting: int | None = None
    """Of a source that knows: about how many rows are there that it has not read."""
    reads: bool = False
    """Whether a source is in it."""
    rows_written: int = 0
    """Taken by the sinks in it since the job's first run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Sent about four times a second."""

    vertices: tuple[VertexProgress, ...]
    in_flight_bytes: int
    """Retained frames, all tasks together."""
    determinant_bytes: int = 0
    """Determinants sent since the run began."""
    stamp_bytes: int = 0
    """Stamps of the checkpoint protocol sent since the run began."""
    data_bytes: int = 0
    """Rows sent between tasks since the run began."""
    cpu_us: int = 0
    """Processor time of all task processes so far, where each task has a process of its own."""
    counts: Mapping[str, int] = field(default_factory=dict)
    """What operators have counted since the job's first run, all tasks together, by ``operator.counter``: late rows,
    dead letters and the like. Rows that a recovery replayed count once."""
    frames_at_stake: Mapping[TaskId, int] = field(default_factory=dict)
    """Frames that each task has sent since its restart point; of a task that sends none, frames it has received."""


@dataclass(frozen=True, slots=True)
class ProcessReading:
    """The counters of one process of a task, as they arrived at ``at_us``."""

    at_us: int
    task: TaskId
    process: int
    counters: ProcessCounters


@dataclass(frozen=True, slots=True)
class Measured:
    """Sent before each progress: every process that has sent its counters since the last one."""

    readings: tuple[ProcessReading, ...]


# ---- failures and recoveries


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskFailed:
    """A task died at the time of the event, so far as is known (a kill on order is known exactly)."""

    task: TaskId
    how: str
    frames_at_stake: int = 0
    """Frames it had sent since its restart point (or received, if it sends none), as its last counters said."""


@dataclass(frozen=True, slots=True)
class Detected:
    """The coordinator knows that the task is gone."""

    task: TaskId


@dataclass(frozen=True, slots=True)
class Recovered:
    """Latency is what it was before the failure, since the time of the event; that is known a while later."""

    task: TaskId


# ---- the run


@dataclass(frozen=True, slots=True, kw_only=True)
class ImplausibleEventTimes:
    """A source, or an operator that assigns event time, has given rows with a time that is hardly meant: before 1990,
    or more than a day ahead of the clock. Told once for each."""

    source: str
    column: str
    value_us: int
    reason: str
    """What was found and what to do, in words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointsLeft:
    """An earlier run of this job was killed and has left its checkpoints in a temporary ``folder``; this run starts
    from the beginning."""

    folder: str
    checkpoint: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Preparing:
    """What is done before the coordinator runs, such as ``starting Ray``."""

    doing: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorAwaited:
    """Ray has not started the coordinator yet, for ``waited_us``. ``seen``: what its node shows meanwhile, in words."""

    waited_us: int
    seen: str


@dataclass(frozen=True, slots=True, kw_only=True)
class KillMissed:
    """A failure on order, ``after_us`` after deployment, that never happened: the job had ended."""

    task: TaskId
    after_us: int


@dataclass(frozen=True, slots=True)
class TraceStopped:
    """The trace could not be written any further. The run goes on without it."""

    reason: str


@dataclass(frozen=True, slots=True)
class Broken:
    """The job ended with an error. Only the trace gets this: the caller gets the error itself."""

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
    | CoordinatorAwaited
    | KillMissed
    | TraceStopped
    | Broken
)

Listener = Callable[[int, Event], None]


def unheard(at_us: int, event: Event) -> None:
    """The listener of runs that are not watched."""
