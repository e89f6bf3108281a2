"""What the coordinator's machine takes from its driver and asks of it, besides the control messages."""

from __future__ import annotations

from dataclasses import dataclass, field

from clonos_py.job.claims import Claims
from clonos_py.model.coordinator_events import CoordinatorEvent
from clonos_py.model.ids import TaskId
from clonos_py.model.messages import ToProcess
from clonos_py.model.snapshots import Manifest


@dataclass(frozen=True)
class JobPolicy:
    """How often and how patiently. Times in microseconds; ``checkpoint_interval_us`` 0: only the final checkpoint."""

    checkpoint_interval_us: int = 5_000_000
    checkpoint_timeout_us: int = 60_000_000
    manifest_timeout_us: int = 60_000_000
    """How long checkpoint storage may take to write a manifest: until then recoveries wait for it."""
    heartbeat_us: int = 500_000
    """0: no heartbeats, since the platform reports every failure."""
    heartbeat_timeout_us: int = 2_000_000
    """The least time after which a silent process has failed. It grows with what answers take."""
    connection_timeout_us: int = 20_000_000
    """After so long without a data connection between two tasks that both answer, one of them is replaced."""
    start_timeout_us: int = 60_000_000
    """How long a process that was asked for may keep everybody waiting, while no other comes up."""
    recoveries_max: int = 5
    """How often a task may fail by itself, each time replaced, without a checkpoint completed in between."""
    rollbacks_max: int = 3
    """Rollbacks without a checkpoint completed in between, after which the job is given up."""
    deduplicate: bool = True
    """False below exactly-once: replacements renumber their frames and receivers take what comes."""
    availability: bool = False
    """When determinants are lost that a task depends on: False rolls the job back, True goes on at-least-once."""
    replay: bool = True
    """False for at-most-once: a replacement goes on at the present (gap recovery)."""
    claims: Claims = field(default_factory=Claims)
    """What becomes of state that no operator claims."""
    lineage: str = ""
    """Drawn by the driver: names the lineage of checkpoints that begins where none is resumed, in idempotency keys."""
    staggered: bool = True
    """Whether tasks that take snapshots alone are called after their receivers; False: at independent times."""


# ---- driver to coordinator


@dataclass(frozen=True, slots=True)
class ProcessDied:
    """The platform says that a process has ended."""

    process: int
    reason: str


@dataclass(frozen=True, slots=True)
class AtWork:
    """The platform says that a process which does not answer uses its processor, as it does in native code that lets no
    other thread run. It has not failed."""

    process: int


@dataclass(frozen=True, slots=True)
class ManifestWritten:
    checkpoint: int


@dataclass(frozen=True, slots=True)
class CheckpointsRetired:
    """Checkpoints that are not kept have been deleted, or could not be: for this ``problem``."""

    problem: str | None = None


@dataclass(frozen=True, slots=True)
class ManifestFailed:
    checkpoint: int
    reason: str


@dataclass(frozen=True, slots=True)
class EndedByFunction:
    """A function of the user's has ended its process: another process would end in the same way."""

    message: str
    traceback: str = ""


@dataclass(frozen=True, slots=True)
class StopRequested:
    """The job takes a last checkpoint, commits it and ends. A later run goes on from there."""


JobEvent = (
    EndedByFunction | ProcessDied | AtWork | ManifestWritten | ManifestFailed | CheckpointsRetired | StopRequested
)


# ---- coordinator to driver


@dataclass(frozen=True, slots=True)
class StartProcess:
    """A process that stands by for ``task``. It answers with Started. ``shares``: no failed task waits for it,
    so that it may share a process of the operating system with standbys of other tasks. ``reuse``: it begins where that
    process is, which ends; its host process stays (E9). If that cannot be, it has died."""

    process: int
    task: TaskId
    shares: bool = False
    reuse: int | None = None


@dataclass(frozen=True, slots=True)
class DismissProcess:
    """It stands by where another has become a task: it leaves, and no other process there."""

    process: int


@dataclass(frozen=True, slots=True)
class KillProcess:
    """It is hung; its messages are ignored from now on. It takes along all that share its host process."""

    process: int


@dataclass(frozen=True, slots=True)
class Send:
    process: int
    message: ToProcess


@dataclass(frozen=True, slots=True)
class WriteManifest:
    manifest: Manifest


@dataclass(frozen=True, slots=True)
class OpenGeneration:
    """A rollback begins generation ``generation``: storage must refuse the manifests of earlier ones (D11)."""

    generation: int


@dataclass(frozen=True, slots=True)
class ReportEvent:
    """Pass this event on to the listener."""

    event: CoordinatorEvent


@dataclass(frozen=True, slots=True)
class EndJob:
    """Everything is committed and stopped, or ``error`` (a type of model.errors) and ``message`` say why not."""

    error: str | None = None
    message: str = ""
    traceback: str = ""
    """Of the user's function that was at work."""
    stopped: bool = False
    """A stop was requested, and no error came first: the sources may have more."""


JobInstruction = (
    StartProcess | DismissProcess | KillProcess | Send | WriteManifest | OpenGeneration | ReportEvent | EndJob
)
