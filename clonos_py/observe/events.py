"""What a run tells its listeners while it runs: one frozen dataclass per kind of news.

A listener is a function of one event. It is called by the driver, in order, from one thread at a time; it must return
soon and never raise. ``at_us`` counts microseconds since the run began, on a clock that never goes back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from clonos_py.model.counters import ProcessCounters
from clonos_py.model.ids import Attempt, TaskId


@dataclass(frozen=True, kw_only=True)
class Event:
    at_us: int


@dataclass(frozen=True, kw_only=True)
class Deployed(Event):
    """Every task runs and every standby waits."""

    tasks: int
    standbys: int


@dataclass(frozen=True, kw_only=True)
class CodeChanged(Event):
    """The run goes on from a checkpoint that other code wrote."""

    checkpoint: int


@dataclass(frozen=True, kw_only=True)
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


@dataclass(frozen=True, kw_only=True)
class Progress(Event):
    """Sent about four times a second."""

    vertices: tuple[VertexProgress, ...]
    in_flight_bytes: int
    """Retained frames, all tasks together."""
    determinant_bytes: int = 0
    """Determinants sent since the run began."""
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


@dataclass(frozen=True, kw_only=True)
class Measured(Event):
    """Sent before each progress: every process that has sent its counters since the last one."""

    readings: tuple[ProcessReading, ...]


@dataclass(frozen=True, kw_only=True)
class TraceStopped(Event):
    """The trace could not be written any further. The run goes on without it."""

    reason: str


@dataclass(frozen=True, kw_only=True)
class CheckpointCompleted(Event):
    checkpoint: int
    duration_ms: float
    bytes: int


@dataclass(frozen=True, kw_only=True)
class CheckpointsLeft(Event):
    """An earlier run of this job was killed and has left its checkpoints in a temporary ``folder``; this run starts
    from the beginning."""

    folder: str
    checkpoint: int


@dataclass(frozen=True, kw_only=True)
class CheckpointAborted(Event):
    checkpoint: int
    reason: str


@dataclass(frozen=True, kw_only=True)
class DeletionFailed(Event):
    """Checkpoints that are not kept cannot be deleted. It is tried again with every checkpoint."""

    reason: str


@dataclass(frozen=True, kw_only=True)
class StandbyUnready(Event):
    """A standby of ``task`` could not load a checkpoint's state. It tries again with the next one, or when it is
    promoted."""

    task: TaskId
    checkpoint: int
    reason: str


@dataclass(frozen=True, kw_only=True)
class SpillFailed(Event):
    """Retained frames of ``task`` cannot be written. They stay in memory, a checkpoint is asked for, and as long as it
    lasts the job goes no faster than checkpoints make room; when the reserve is spent it stops."""

    task: TaskId
    reason: str


@dataclass(frozen=True, kw_only=True)
class FunctionHangs(Event):
    """A function of the user's has been at work on one row for the function timeout. The job waits for it."""

    reason: str


@dataclass(frozen=True, kw_only=True)
class KillMissed(Event):
    """A failure on order, ``after_us`` after deployment, that never happened: the job had ended."""

    task: TaskId
    after_us: int


@dataclass(frozen=True, kw_only=True)
class TaskEvent(Event):
    task: TaskId


@dataclass(frozen=True, kw_only=True)
class TaskFailed(TaskEvent):
    """A task died at ``at_us``, so far as anybody knows (a kill on order is known exactly)."""

    how: str
    frames_at_stake: int = 0
    """Frames it had sent since its restart point (or received, if it sends none), when it was last heard of."""


@dataclass(frozen=True, kw_only=True)
class Detected(TaskEvent):
    """The coordinator knows that the task is gone."""


@dataclass(frozen=True, kw_only=True)
class StandbyActivated(TaskEvent):
    """A standby has taken the task over, as this attempt."""

    attempt: Attempt


@dataclass(frozen=True, kw_only=True)
class Replayed(TaskEvent):
    """The replacement has used up its predecessor's determinants."""

    rows: int


@dataclass(frozen=True, kw_only=True)
class FirstNewEffect(TaskEvent):
    """The replacement sent a frame, or wrote a row, that was never sent before."""


@dataclass(frozen=True, kw_only=True)
class Recovered(TaskEvent):
    """Latency is what it was before the failure, since ``at_us``; that is known a while later."""


@dataclass(frozen=True, kw_only=True)
class RolledBack(Event):
    """The whole job went back to a checkpoint."""

    checkpoint: int
    reason: str


@dataclass(frozen=True, kw_only=True)
class RestartedWithoutLog(Event):
    """Determinants were lost that somebody depends on, and the job preferred availability: what was sent since
    ``checkpoint`` may take effect again (at-least-once)."""

    checkpoint: int
    reason: str


@dataclass(frozen=True, kw_only=True)
class CoordinatorReplaced(Event):
    """The coordinator was lost, and another has taken its place. Tasks went on meanwhile; what happened to them, and
    the news that the lost one had not told, may be missing here."""


@dataclass(frozen=True, kw_only=True)
class CoordinatorAwaited(Event):
    """Ray has not started the coordinator yet, for ``waited_us``. ``seen``: what its node shows meanwhile, in words."""

    waited_us: int
    seen: str


@dataclass(frozen=True, kw_only=True)
class Finished(Event):
    """Every source ended and every sink has committed (or, with ``stopped``, the run was interrupted in order)."""

    stopped: bool = False


@dataclass(frozen=True, kw_only=True)
class Broken(Event):
    """The job ended with an error. Only the trace is told: whoever runs the job gets the error itself."""

    reason: str


Listener = Callable[[Event], None]


def unheard(event: Event) -> None:
    """The listener of runs that nobody watches."""
