"""What the coordinator reports of a running job: one frozen class for each kind of event.

An event has no time. The time is passed beside it.
"""

from __future__ import annotations

from dataclasses import dataclass

from clonos_py.model.ids import Attempt, TaskId

# ---- the job


@dataclass(frozen=True, slots=True)
class CodeChanged:
    """The run goes on from a checkpoint that other code wrote."""

    checkpoint: int


@dataclass(frozen=True, slots=True)
class Deploying:
    """A process has come up. ``up`` of ``processes`` are, standbys among them. So many tasks have none yet
    (``missing``), the first of which is ``awaited``."""

    up: int
    processes: int
    missing: int
    awaited: TaskId | None


@dataclass(frozen=True, slots=True)
class Deployed:
    """Every task runs. ``tasks`` and ``standbys`` are how many of them the plan asks for."""

    tasks: int
    standbys: int


@dataclass(frozen=True, slots=True)
class RolledBack:
    """The whole job went back to a checkpoint."""

    checkpoint: int
    reason: str


@dataclass(frozen=True, slots=True)
class RestartedWithoutLog:
    """Determinants were lost that a task depends on, and the job preferred availability: what was sent since
    ``checkpoint`` may take effect again (at-least-once)."""

    checkpoint: int
    reason: str


@dataclass(frozen=True, slots=True)
class CoordinatorReplaced:
    """The coordinator was lost, and another has taken its place. Tasks went on meanwhile. What happened to them, and
    events that the lost coordinator had not reported, may be missing."""


@dataclass(frozen=True, slots=True)
class FunctionHangs:
    """A function of the user's has been at work on one row for the function timeout. The job waits for it."""

    reason: str


@dataclass(frozen=True, slots=True)
class Finished:
    """Every source ended and every sink has committed; or the run was ``stopped`` or interrupted, in order."""

    stopped: bool = False


# ---- checkpoints


@dataclass(frozen=True, slots=True)
class WentBack:
    """After a failure so many tasks go back to the recovery line, since nothing is logged (E9). ``invalid`` snapshots
    were ahead of it; ``durable`` ones have been taken in all."""

    tasks: int
    invalid: int
    durable: int


@dataclass(frozen=True, slots=True)
class SnapshotDurable:
    """A task has taken a snapshot alone, and it is stored. It counts once a manifest names it."""

    task: TaskId


@dataclass(frozen=True, slots=True)
class CheckpointTriggered:
    """The sources were asked to begin this checkpoint."""

    checkpoint: int


@dataclass(frozen=True, slots=True)
class CheckpointCompleted:
    """The manifest is written. ``bytes`` were written for this checkpoint, ``duration_ms`` after it was triggered. It
    has new snapshots of so many tasks; ``forced`` of them were taken because of frames (E10). ``durable_ms``: from a
    trigger until what it asked for was durable, manifests left out, in the mean over ``durable`` of them. A coordinated
    checkpoint is one, durable with its last snapshot. Of tasks that take theirs alone each snapshot that was asked for
    is one; those count that became durable since the last event."""

    checkpoint: int
    duration_ms: float
    bytes: int
    snapshots: int = 0
    forced: int = 0
    durable: int = 0
    durable_ms: float = 0.0


@dataclass(frozen=True, slots=True)
class CheckpointAborted:
    """The pending checkpoint was given up."""

    checkpoint: int
    reason: str


@dataclass(frozen=True, slots=True)
class DeletionFailed:
    """Checkpoints that are not kept cannot be deleted. It is tried again with every checkpoint."""

    reason: str


@dataclass(frozen=True, slots=True)
class SpillFailed:
    """Retained frames of ``task`` cannot be written. They stay in memory, a checkpoint is asked for, and as long as it
    lasts the job goes no faster than checkpoints make room; when the reserve is spent it stops."""

    task: TaskId
    reason: str


# ---- failures and recoveries


@dataclass(frozen=True, slots=True)
class TaskLost:
    """The coordinator found that the process of ``task`` is gone. ``attempt``: the one that was lost; None if it was
    lost while there was no coordinator."""

    task: TaskId
    reason: str
    attempt: Attempt | None = None


@dataclass(frozen=True, slots=True)
class StandbyLost:
    """A standby of ``task`` is gone."""

    task: TaskId
    reason: str


@dataclass(frozen=True, slots=True)
class StandbyUnready:
    """A standby of ``task`` could not load a checkpoint's state. It tries again with the next one, or when it is
    promoted."""

    task: TaskId
    checkpoint: int
    reason: str


@dataclass(frozen=True, slots=True)
class StandbyPromoted:
    """A standby was asked to become this attempt of ``task``. It has no log yet."""

    task: TaskId
    attempt: Attempt


@dataclass(frozen=True, slots=True)
class StandbyActivated:
    """A standby has taken the task over, as this attempt. It was sent the log to replay."""

    task: TaskId
    attempt: Attempt


@dataclass(frozen=True, slots=True)
class Replayed:
    """The replacement has used up its predecessor's determinants."""

    task: TaskId
    rows: int


@dataclass(frozen=True, slots=True)
class FirstNewEffect:
    """The replacement sent a frame, or wrote a row, that was never sent before."""

    task: TaskId


@dataclass(frozen=True, slots=True)
class Restarted:
    """The last of the ``tasks`` that a failure made restart has had its first effect: a frame sent, or a row written. A
    replay comes before it (``FirstNewEffect``); in a rollback the effect may be one of those taken back."""

    tasks: int


PublishedEvent = (
    CodeChanged
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
    | DeletionFailed
    | SpillFailed
    | StandbyUnready
    | StandbyActivated
    | Replayed
    | FirstNewEffect
    | Restarted
)
"""Those that listeners of the run get."""

CoordinatorEvent = PublishedEvent | CheckpointTriggered | TaskLost | StandbyLost | StandbyPromoted
