"""Events that the coordinator reports about a running job: one frozen class for each kind.

An event holds no time; the time is passed beside it.
"""

from __future__ import annotations

import msgspec

from clonos_py.model.ids import Attempt, TaskId

# ---- the job


class CodeChanged(msgspec.Struct, frozen=True):
    """The run resumes from a checkpoint that was written by other code."""

    checkpoint: int


class SourceStaysEnded(msgspec.Struct, frozen=True):
    """This source, or some of its tasks, had read all of its input before the checkpoint from which the run resumes,
    while others had not. It is not read again there before the whole job has finished, since what is stored with the
    snapshots may hold the end of its channels."""

    source: str


class Deploying(msgspec.Struct, frozen=True):
    """A process has started. ``up`` of ``processes`` are running, standbys included. ``missing`` tasks have no process
    yet, of which ``awaited`` is the first."""

    up: int
    processes: int
    missing: int
    awaited: TaskId | None


class Deployed(msgspec.Struct, frozen=True):
    """Every task runs. ``tasks`` and ``standbys``: how many the plan has."""

    tasks: int
    standbys: int


class RolledBack(msgspec.Struct, frozen=True):
    """The whole job went back to a checkpoint."""

    checkpoint: int
    reason: str


class RestartedWithoutLog(msgspec.Struct, frozen=True):
    """Determinants that a task depends on were lost, and the job prefers availability: output since ``checkpoint`` may
    take effect again (at-least-once)."""

    checkpoint: int
    reason: str


class CoordinatorReplaced(msgspec.Struct, frozen=True):
    """The coordinator was lost, and another has replaced it. Tasks continued meanwhile. Events of that time, and events
    that the lost coordinator had not reported, may be missing."""


class FunctionHangs(msgspec.Struct, frozen=True):
    """A user's function has been processing one row for the function timeout. The job waits for it."""

    reason: str


class Finished(msgspec.Struct, frozen=True):
    """Every source has ended and every sink has committed; or the user ``stopped`` or interrupted the run."""

    stopped: bool = False


# ---- checkpoints


class WentBack(msgspec.Struct, frozen=True):
    """After a failure, ``tasks`` tasks went back to the recovery line, since nothing is logged (E9). ``invalid``
    snapshots were ahead of the line, of ``durable`` that have been taken in all."""

    tasks: int
    invalid: int
    durable: int


class SnapshotDurable(msgspec.Struct, frozen=True):
    """A task has taken a snapshot alone, and it is durable. It counts once a manifest names it."""

    task: TaskId


class CheckpointTriggered(msgspec.Struct, frozen=True):
    """The coordinator has triggered this checkpoint at the sources."""

    checkpoint: int


class CheckpointCompleted(msgspec.Struct, frozen=True):
    """The manifest is written. ``bytes``: written for this checkpoint. ``duration_ms``: since it was triggered.
    ``snapshots``: the number of new snapshots, of which ``forced`` were taken because of frames (E10). ``durable_ms``:
    the mean time from a trigger until its snapshots were durable, without the manifest, over ``durable`` triggers. A
    coordinated checkpoint is one trigger, durable with its last snapshot. If tasks take snapshots alone, each triggered
    snapshot is one trigger, and those that became durable since the last event count. ``cost_ms``: the work that the
    task with the most to do has lost for it (E20); None if tasks take snapshots alone. ``requests``: to an object
    store, by operation: for its snapshots and its manifest, and to delete what the checkpoint before has superseded."""

    checkpoint: int
    duration_ms: float
    bytes: int
    snapshots: int = 0
    forced: int = 0
    durable: int = 0
    durable_ms: float = 0.0
    cost_ms: float | None = None
    requests: dict[str, int] = {}


class CheckpointAborted(msgspec.Struct, frozen=True):
    """The pending checkpoint was aborted."""

    checkpoint: int
    reason: str


class IntervalExceeded(msgspec.Struct, frozen=True):
    """Snapshots of ``task``, which are taken alone, take longer to become durable than the checkpoint interval. It is
    called when the previous snapshot is durable, last after ``kept_ms`` instead of ``asked_ms``. Reported once."""

    task: TaskId
    asked_ms: float
    kept_ms: float


class CheckpointSkipped(msgspec.Struct, frozen=True):
    """A checkpoint is due, and is not triggered: the ``pending`` one, triggered ``pending_ms`` ago, is not complete. So
    the interval of ``asked_ms`` is not kept. ``in_a_row``: how many were skipped since a checkpoint was complete within
    the interval."""

    pending: int
    pending_ms: float
    asked_ms: float
    in_a_row: int


class IntervalChosen(msgspec.Struct, frozen=True):
    """The job has chosen its checkpoint interval after a checkpoint (E20). What is not measured yet is None.
    ``bound``: what keeps the interval from being the best one. ``failures_per_s``: of the whole job. ``utilization``:
    the share of time so far that was lost neither to checkpoints nor to failures."""

    interval_s: float
    best_s: float | None
    bound: str | None
    cost_s: float | None
    restart_s: float | None
    replay_speed: float | None
    failures_per_s: float
    utilization: float


class DeletionFailed(msgspec.Struct, frozen=True):
    """Checkpoints that are not retained cannot be deleted. This is tried again with every checkpoint."""

    reason: str


class SpillFailed(msgspec.Struct, frozen=True):
    """Retained frames of ``task`` cannot be written to disk. They stay in memory and a checkpoint is requested. Until
    the disk works again, checkpoints limit the speed of the job, since only they free memory; it stops when the reserve
    is used up."""

    task: TaskId
    reason: str


# ---- failures and recoveries


class TaskLost(msgspec.Struct, frozen=True):
    """The coordinator found that the process of ``task`` has failed. ``attempt``: the lost one; None if it was lost
    while there was no coordinator. ``planned``: it has not failed, but the task moves to another process."""

    task: TaskId
    reason: str
    attempt: Attempt | None = None
    planned: bool = False


class StandbyLost(msgspec.Struct, frozen=True):
    """A standby of ``task`` has failed or was removed."""

    task: TaskId
    reason: str


class TaskKeepsDying(msgspec.Struct, frozen=True):
    """Processes of ``task`` have died so many times, and no checkpoint was completed in between. ``how``: the last
    time."""

    task: TaskId
    times: int
    how: str


class StorageAwaited(msgspec.Struct, frozen=True):
    """Checkpoint storage does not answer and is asked again: for the state of ``task``, or, if that is None, for what
    the coordinator has to write. Reported once for each wait."""

    task: TaskId | None
    reason: str


class RoomAwaited(msgspec.Struct, frozen=True):
    """No node has what a process of ``task`` needs; it starts when one has. ``standby``: the task runs, or has another
    process. Reported once for each process."""

    task: TaskId
    standby: bool
    reason: str


class StandbyUnready(msgspec.Struct, frozen=True):
    """A standby of ``task`` could not load a checkpoint's state. It tries again with the next one, or when it is
    promoted."""

    task: TaskId
    checkpoint: int
    reason: str


class StandbyPromoted(msgspec.Struct, frozen=True):
    """A standby is promoted to this attempt of ``task``. It has no log yet."""

    task: TaskId
    attempt: Attempt


class StandbyActivated(msgspec.Struct, frozen=True):
    """A standby has taken over the task as this attempt. It was sent the log to replay."""

    task: TaskId
    attempt: Attempt


class Replayed(msgspec.Struct, frozen=True):
    """The replacement has replayed all of its predecessor's determinants."""

    task: TaskId
    rows: int


class FirstNewEffect(msgspec.Struct, frozen=True):
    """The replacement sent a frame, or wrote a row, that was not sent before the failure."""

    task: TaskId


class Restarted(msgspec.Struct, frozen=True):
    """The last of the ``tasks`` tasks that restarted after a failure has had its first effect: a frame sent, or a row
    written. This comes after the replay (``FirstNewEffect``). In a rollback the effect may be one that was rolled
    back."""

    tasks: int


PublishedEvent = (
    CodeChanged
    | SourceStaysEnded
    | Deploying
    | Deployed
    | RolledBack
    | WentBack
    | SnapshotDurable
    | RestartedWithoutLog
    | CoordinatorReplaced
    | FunctionHangs
    | Finished
    | CheckpointCompleted
    | CheckpointAborted
    | IntervalExceeded
    | IntervalChosen
    | CheckpointSkipped
    | DeletionFailed
    | SpillFailed
    | RoomAwaited
    | StandbyUnready
    | StorageAwaited
    | TaskKeepsDying
    | StandbyActivated
    | Replayed
    | FirstNewEffect
    | Restarted
)
"""The events that listeners of the run get."""

CoordinatorEvent = PublishedEvent | CheckpointTriggered | TaskLost | StandbyLost | StandbyPromoted
