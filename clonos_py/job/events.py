"""Events and instructions between the coordinator's machine and its driver, besides the control messages."""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec

from clonos_py.job.state_mapping import StateMapping
from clonos_py.model.coordinator_events import CoordinatorEvent
from clonos_py.model.ids import TaskId
from clonos_py.model.messages import ToProcess
from clonos_py.model.resources import NO_RESOURCES, Resources
from clonos_py.model.snapshots import Manifest


@dataclass(frozen=True)
class AutoInterval:
    """The job finds its checkpoint interval itself, within these bounds (E20)."""

    shortest_us: int = 1_000_000
    longest_us: int = 600_000_000
    mtbf_us: int = 86_400_000_000
    """The mean time between failures of a task that is expected."""
    budget_bytes: int | None = None
    """The memory for the retained frames of a task; None if frames are written to disk."""


@dataclass(frozen=True)
class JobPolicy:
    """Intervals, timeouts, limits. Times in microseconds; ``checkpoint_interval_us`` 0: only the final checkpoint."""

    checkpoint_interval_us: int = 5_000_000
    checkpoint_timeout_us: int = 60_000_000
    manifest_timeout_us: int = 60_000_000
    """How long checkpoint storage may take to write a manifest; recoveries wait for it until then."""
    heartbeat_us: int = 500_000
    """0: no heartbeats, since the platform reports every failure."""
    heartbeat_timeout_us: int = 2_000_000
    """The least time after which a silent process has failed. The limit grows with the time that answers take."""
    connection_timeout_us: int = 20_000_000
    """After this time without a data connection between two tasks that both answer, one of them is replaced."""
    start_timeout_us: int = 60_000_000
    """How long the job may wait for a process that was requested, while no other process starts."""
    recoveries_max: int = 5
    """How often a task may fail with an error of its own and be replaced, without a completed checkpoint in between."""
    rollbacks_max: int = 3
    """Rollbacks without a completed checkpoint in between, after which the job ends with an error."""
    deduplicate: bool = True
    """False below exactly-once: replacements renumber their frames, and receivers take all frames that come."""
    availability: bool = False
    """What happens when determinants that a task depends on are lost. False: the job rolls back. True: the task
    restarts at-least-once."""
    replay: bool = True
    """False for at-most-once: a replacement continues with new input and replays nothing (gap recovery)."""
    state_mapping: StateMapping = field(default_factory=StateMapping)
    """The user's decisions about state that maps to no operator."""
    lineage: str = ""
    """The name of the lineage that begins if no checkpoint is resumed; drawn by the driver, for idempotency keys."""
    staggered: bool = True
    """Whether tasks that take snapshots alone are triggered after their receivers. False: at independent times."""
    auto_interval: AutoInterval | None = None
    """None: ``checkpoint_interval_us`` stays. Otherwise it is used until the cost of a checkpoint is known."""


# ---- driver to coordinator


class ProcessDied(msgspec.Struct, frozen=True):
    """The platform reports that a process has ended."""

    process: int
    reason: str


class ProcessBusy(msgspec.Struct, frozen=True):
    """The platform reports that a process that does not answer uses its processor, for example in native code that lets
    no other thread run. It has not failed."""

    process: int


class ManifestWritten(msgspec.Struct, frozen=True):
    """``requests``: by operation, what the coordinator has requested of an object store since it started."""

    checkpoint: int
    requests: dict[str, int] = {}


class CheckpointsRetired(msgspec.Struct, frozen=True):
    """Checkpoints that are not retained have been deleted, or could not be because of ``problem``."""

    problem: str | None = None


class ManifestFailed(msgspec.Struct, frozen=True):
    """``unavailable``: storage did not answer. It may have written the manifest, which has to be written again."""

    checkpoint: int
    reason: str
    unavailable: bool = False


class NoRoom(msgspec.Struct, frozen=True):
    """No node has what a requested process needs. The platform starts it when one has. ``reason``: what it needs, and
    what there is; empty when there is room now."""

    process: int
    reason: str


class EndedByFunction(msgspec.Struct, frozen=True):
    """A function of the user has ended its process. Another process would end in the same way, so the job ends."""

    message: str
    traceback: str = ""


class StopRequested(msgspec.Struct, frozen=True):
    """The job takes a last checkpoint, commits it and ends. A later run continues from there."""


JobEvent = (
    EndedByFunction
    | ProcessDied
    | ProcessBusy
    | NoRoom
    | ManifestWritten
    | ManifestFailed
    | CheckpointsRetired
    | StopRequested
)


# ---- coordinator to driver


class StartProcess(msgspec.Struct, frozen=True):
    """Start a standby of ``task``; it answers with Started. ``shares``: no failed task waits for it, so it may share a
    host process with standbys of other tasks. ``reuse``: end this process and start the new one in its host process,
    which stays (E9). If that is impossible, report the new process as failed. ``demand``: what it needs of its node."""

    process: int
    task: TaskId
    shares: bool = False
    reuse: int | None = None
    demand: Resources = NO_RESOURCES


class DismissProcess(msgspec.Struct, frozen=True):
    """Stop a process whose host process is another task's. No other process in that host process stops."""

    process: int


class KillProcess(msgspec.Struct, frozen=True):
    """Kill a process that hangs, with all processes in its host process. Its messages are ignored from now on."""

    process: int


class Send(msgspec.Struct, frozen=True):
    process: int
    message: ToProcess


class WriteManifest(msgspec.Struct, frozen=True):
    manifest: Manifest


class OpenGeneration(msgspec.Struct, frozen=True):
    """A rollback begins ``generation``: storage must refuse the manifests of earlier generations (D11)."""

    generation: int


class ReportEvent(msgspec.Struct, frozen=True):
    """Pass this event to the listener."""

    event: CoordinatorEvent


class EndJob(msgspec.Struct, frozen=True):
    """The job has ended. ``error`` (a type of model.errors) and ``message`` say why it failed; None: it finished."""

    error: str | None = None
    message: str = ""
    traceback: str = ""
    """The traceback of the user's function that failed."""
    stopped: bool = False
    """Whether a requested stop ended the job, without an error: the sources may have more input."""
    checkpoint: int = 0
    """The last completed checkpoint of a job that failed; 0: there is none, or the job finished."""


JobInstruction = (
    StartProcess | DismissProcess | KillProcess | Send | WriteManifest | OpenGeneration | ReportEvent | EndJob
)
Instructions = list[JobInstruction]
"""In the order in which they are carried out."""
