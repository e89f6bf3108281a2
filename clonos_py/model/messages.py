"""The control messages between the coordinator and the processes.

All messages are msgpack-encoded structs; nothing is pickled. The coordinator assigns each process a number
(``process``). A task is identified by its TaskId. A standby has the TaskId of the task that it stands by for, and no
attempt.
"""

from __future__ import annotations

import msgspec

from clonos_py.model.counters import ProcessCounters
from clonos_py.model.errors import ClonosError, CodecError, UserCodeError, type_and_text
from clonos_py.model.ids import Attempt, ChannelId, LogId, TaskId
from clonos_py.model.purposes import Purpose
from clonos_py.model.segments import Incarnation, LogSegment, StableMark
from clonos_py.model.snapshots import Manifest, OperatorHandle, StoredChunk, StoredFrames, TaskHandle
from clonos_py.model.user_metrics import UserMetric


class Fallback(msgspec.Struct, frozen=True):
    """The earlier snapshot to which a task may still have to go back. Sinks commit only what it names, and senders
    retain the frames that it does not cover."""

    checkpoint: int
    committables: dict[str, list[bytes]]
    covered: list[int]
    """By input channel: it covers the frames below this number."""


class Restore(msgspec.Struct, frozen=True):
    """The state to start from: by operator the snapshots of its instances; ``progress`` None: at a new parallelism."""

    checkpoint: int
    operators: dict[str, list[OperatorHandle]] = {}
    progress: bytes | None = None
    committables: dict[str, list[bytes]] = {}
    marks: list[StableMark] = []
    """Stable marks that a task restarting here needs."""
    frames: dict[int, list[StoredFrames]] = {}
    """By output channel: the frames before this snapshot that its receiver's restart point does not cover."""
    logs: StoredChunk | None = None
    """Determinants that the state depends on."""
    closed: frozenset[str] = frozenset()
    """The operators that had emitted, in an earlier run, what they emit at the end of all input."""
    fallback: Fallback | None = None
    """None: the task will not go back to an earlier snapshot than this one."""
    counts: dict[str, int] = {}
    """Without ``progress``: the counters with which operators go on, by ``operator.counter``."""
    metrics: dict[str, UserMetric] = {}
    """Without ``progress``: the metrics with which users' functions go on, by ``operator.name``."""


class Peer(msgspec.Struct, frozen=True):
    """An upstream task to subscribe to. ``reset``: it renumbers its frames, since it has restarted without its log."""

    channel: ChannelId
    address: str
    attempt: Attempt
    reset: bool = False


class Expectation(msgspec.Struct, frozen=True):
    """What a survivor has of a channel from a failed task: the next sequence number and checksums below it (D12)."""

    channel: ChannelId
    next_seq: int
    checksums: list[tuple[int, int]]


# ---- coordinator to process


class Prepare(msgspec.Struct, frozen=True, tag=True):
    """To a standby: load the state of this completed checkpoint."""

    restore: Restore


class Follow(msgspec.Struct, frozen=True, tag=True):
    """To a standby: subscribe to the feed of the process that is this attempt of your task (E17)."""

    address: str
    attempt: Attempt


class Promote(msgspec.Struct, frozen=True, tag=True):
    """To a standby: become this attempt of your task, start from ``restore`` and subscribe to ``inputs``.
    ``numbering``: see OperatorContext. ``run``: see ``Manifest``."""

    round: int
    attempt: Attempt
    restore: Restore
    inputs: list[Peer]
    numbering: str = ""
    run: str = ""


class Replay(msgspec.Struct, frozen=True, tag=True):
    """To a promoted process: the predecessor's merged log, the frames that receivers have, and the void checkpoints.
    ``upstream``: the logs of upstream tasks that the log depends on. Of the logs in ``complete``, these are all that
    any process holds. The log may depend on the logs of other tasks as far as the offsets in
    ``needs``. ``incarnation``: that of the log."""

    round: int
    log: list[LogSegment]
    expected: list[Expectation]
    aborted: list[int]
    upstream: list[LogSegment] = []
    complete: list[LogId] = []
    needs: dict[LogId, int] = {}
    incarnation: Incarnation = Incarnation()


class Complete(msgspec.Struct, frozen=True, tag=True):
    """A manifest is written that moves the restart point of the task to the beginning of epoch ``checkpoint`` (0: it
    has none). Sinks commit, and the determinants named by ``marks`` are stable."""

    checkpoint: int
    marks: list[StableMark] = []


class Sever(msgspec.Struct, frozen=True, tag=True):
    """To every process that may have received frames: the tasks in ``attempts`` have failed and continue as these
    attempts. Close the connections with older attempts, report what you hold of the failed tasks, then subscribe to
    ``replacements``."""

    round: int
    replacements: list[Peer]
    attempts: list[tuple[TaskId, Attempt]]
    completed: Complete
    """The last Complete message, which may not have arrived yet."""


class TriggerCheckpoint(msgspec.Struct, frozen=True, tag=True):
    """To the tasks that begin a checkpoint (the sources, if the others wait for barriers): take a snapshot for it.
    If the job ends with it, tasks stand still behind their snapshots."""

    checkpoint: int
    purpose: Purpose = Purpose.PERIODIC


class AbortCheckpoint(msgspec.Struct, frozen=True, tag=True):
    checkpoint: int


class Probe(msgspec.Struct, frozen=True, tag=True):
    """To the tasks of a loop: answer with Probed, in order with other events."""

    number: int


class EndLoop(msgspec.Struct, frozen=True, tag=True):
    """To the heads of a loop: it holds no rows, and none of its tasks can restart from where it held some."""


class AlignSource(msgspec.Struct, frozen=True, tag=True):
    """To a source: read only while its watermark is at most ``limit_us``, and answer with SourceReached."""

    limit_us: int


class EndSource(msgspec.Struct, frozen=True, tag=True):
    """To a source: further rows have no effect, so end as if all had been read."""


class Stop(msgspec.Struct, frozen=True, tag=True):
    """End: the job has finished or failed, or this process is not needed any more. ``failed``: the job has failed, and
    what the process holds of logs belongs to its record; see ``RecordTail.interval``."""

    reason: str
    failed: Manifest | None = None


class Ping(msgspec.Struct, frozen=True, tag=True):
    number: int


class StatusRequest(msgspec.Struct, frozen=True, tag=True):
    """A coordinator has replaced a lost one and requests a StatusReport. The lost one sends no message after this."""


ToProcess = (
    Prepare
    | Follow
    | Promote
    | Replay
    | Sever
    | TriggerCheckpoint
    | AbortCheckpoint
    | Complete
    | Probe
    | EndLoop
    | AlignSource
    | EndSource
    | Stop
    | Ping
    | StatusRequest
)


# ---- process to coordinator


class Started(msgspec.Struct, frozen=True, tag=True):
    """The process has started; peers connect to ``address``. ``host_process``: equal for all processes that share one
    process of the operating system and fail with it; 0 for a process that shares it with no other."""

    process: int
    address: str
    host_process: int = 0


class Prepared(msgspec.Struct, frozen=True, tag=True):
    process: int
    checkpoint: int


class NotPrepared(msgspec.Struct, frozen=True, tag=True):
    """The state of ``checkpoint`` cannot be read by this process, which remains a standby."""

    process: int
    checkpoint: int
    reason: str


class HeldLogsReport(msgspec.Struct, frozen=True, tag=True):
    """The answer to Sever: the logs held of failed tasks and of those upstream of them, the frames received from failed
    tasks, and what the process depends on (D10)."""

    process: int
    round: int
    logs: list[LogSegment]
    """The segments of each log in their order."""
    received: list[Expectation]
    depends: list[int] = []
    """Inputs on which it has received frames or a log of the sender since its restart point."""
    logs_received: dict[int, list[LogId]] = {}
    """By input: the logs that arrived on it. If only this process holds such a log, the log is
    replayed, so the process depends on everything that the log depends on."""
    replayed: list[int] = []
    """Inputs that occur in the log that it was sent to replay."""
    incomplete: dict[int, list[LogId]] = {}
    """By input: logs that its predecessor had received on it, and which it may hold in part only."""
    has_own_log: bool = True
    """False: it replaces a failed task and has not received that task's log."""
    ends: dict[LogId, int] = {}
    """By log of a task upstream of a failed one: the offset at which the held part ends."""
    whole: list[LogId] = []
    """Logs of tasks upstream of a failed one of which it holds everything that the logs of other tasks depend on, as
    far as it holds these."""
    needs: dict[LogId, int] = {}
    """The ``needs`` of Replay; void once the log is used up, or a checkpoint that it has taken is complete."""
    own: LogId | None = None
    """The log of its own task if that has not failed, the log is among ``logs``, and a failed task in a loop is to get
    all of it."""
    starts_in: int = 0
    """The epoch of the feed point at which it starts; 0: it starts at the restart point of its task."""
    incarnations: dict[LogId, int] = {}
    """As in StatusReport. Frames that were under way may have brought a newer incarnation since."""

    def end(self, log: LogId) -> int:
        """The offset at which a log ends in ``logs``; 0 if nothing of it is there."""
        return next((segment.stop for segment in reversed(self.logs) if segment.log == log), 0)


class Snapshotted(msgspec.Struct, frozen=True, tag=True):
    """A task's snapshot is durable. Its cost is the work that was lost for it (E20)."""

    process: int
    handle: TaskHandle
    persist_ms: float = 0.0
    persist_cpu_ms: float = 0.0
    """The processor time for persisting it, if all processors were busy: then tasks could not work meanwhile."""
    sync_ms: float = 0.0
    """How long the step took in which it was taken: no row is processed meanwhile."""
    blocked_ms: float = 0.0
    """How long the task had nothing else to take than rows on channels that were blocked for it."""
    busy_ms: float = 0.0
    """How long the task has worked since its last snapshot, the step not counted."""
    requests: dict[str, int] = {}
    """By operation: what the process has requested of an object store since its last durable snapshot."""

    @property
    def cost_ms(self) -> float:
        return self.sync_ms + self.blocked_ms + self.persist_cpu_ms


class SnapshotFailed(msgspec.Struct, frozen=True, tag=True):
    """A task's snapshot could not be made durable. ``unavailable``: storage did not answer, and may answer later."""

    process: int
    checkpoint: int
    reason: str
    unavailable: bool = False


class LoadDelayed(msgspec.Struct, frozen=True, tag=True):
    """The state that a promoted process starts from is requested again, since storage did not answer. Sent once."""

    process: int
    reason: str


class Running(msgspec.Struct, frozen=True, tag=True):
    """The replay has ended: everything that the predecessor is known to have done has been repeated."""

    process: int
    round: int
    rows_replayed: int


class NewEffect(msgspec.Struct, frozen=True, tag=True):
    """A replacement has sent its first frame or sink row that was not sent before the failure."""

    process: int


class Drained(msgspec.Struct, frozen=True, tag=True):
    """All inputs have ended and all output is handed on; a final checkpoint may commit it."""

    process: int


class Probed(msgspec.Struct, frozen=True, tag=True):
    """The answer of a task in a loop to Probe ``number``; see the task's ``LoopCounts``."""

    process: int
    number: int
    passive: bool
    epoch: int
    cut: list[int]
    taken: list[int]


class SourceReached(msgspec.Struct, frozen=True, tag=True):
    """The answer of a source to AlignSource: its watermark; MAX_TIME if it holds none back."""

    process: int
    reached_us: int


class Satisfied(msgspec.Struct, frozen=True, tag=True):
    """No further row has an effect in this task, since ``epoch``, where its state says so. Sent again with each frame
    that it takes."""

    process: int
    epoch: int


class Committed(msgspec.Struct, frozen=True, tag=True):
    """The sinks of this task have committed what ``checkpoint`` names."""

    process: int
    checkpoint: int


class RequestCheckpoint(msgspec.Struct, frozen=True, tag=True):
    """Half of the budget for retained frames is used."""

    process: int


class FramesNotSpilled(msgspec.Struct, frozen=True, tag=True):
    """Retained frames cannot be written to disk and stay in memory while there is room; a checkpoint would free it."""

    process: int
    reason: str


class FunctionHangNoticed(msgspec.Struct, frozen=True, tag=True):
    """A user's function has been processing one row for a long time. It may still return."""

    process: int
    reason: str


class Suspect(msgspec.Struct, frozen=True, tag=True):
    """A connection to this task broke or could not be opened. The task may have failed, or only the connection.
    ``failures``: how often in a row since the connection was last open."""

    process: int
    task: TaskId
    failures: int = 1


class Failed(msgspec.Struct, frozen=True, tag=True):
    """The process cannot continue. ``error``: the name of the error's type in model.errors."""

    process: int
    error: str
    message: str
    traceback: str = ""
    """The traceback of the user's function that failed."""


class Pong(msgspec.Struct, frozen=True, tag=True):
    process: int
    number: int
    counters: ProcessCounters = ProcessCounters()


class StatusReport(msgspec.Struct, frozen=True, tag=True):
    """The answer to StatusRequest. A process that is still starting reports only its number, and Started later."""

    process: int
    attempt: Attempt | None = None
    """None: it is a standby."""
    restore: int = 0
    """The checkpoint whose state it was last asked to start from."""
    begun: bool = False
    """Whether it has received its log. Then it is the task, or will be as soon as it has its state. A process that was
    only promoted has not."""
    replaying: bool = False
    """Whether it still replays its log."""
    drained: bool = False
    committed: int = 0
    """The newest epoch whose results it has committed."""
    round: int = 0
    """The last recovery round that it took part in."""
    checkpoint: int = 0
    """The highest number of a checkpoint, complete or not, that it has received."""
    peers: list[tuple[TaskId, Attempt]] = []
    """Its senders and receivers with their attempts."""
    failure: Failed | None = None
    incarnation: Incarnation = Incarnation()
    """The incarnation of its own log, if it has received that."""
    incarnations: dict[LogId, int] = {}
    """By log of a task that has restarted without it: the newest incarnation that it holds."""


ToCoordinator = (
    Started
    | Prepared
    | NotPrepared
    | HeldLogsReport
    | Snapshotted
    | SnapshotFailed
    | LoadDelayed
    | Running
    | NewEffect
    | Drained
    | Probed
    | SourceReached
    | Satisfied
    | Committed
    | RequestCheckpoint
    | FramesNotSpilled
    | FunctionHangNoticed
    | Suspect
    | Failed
    | Pong
    | StatusReport
)


def failed(process: int, task: TaskId, problem: BaseException) -> Failed:
    """The report about the error that ended a process. An error in user code names its operator instead of the task."""
    if isinstance(problem, UserCodeError):
        return Failed(process, UserCodeError.__name__, str(problem), problem.traceback)
    if isinstance(problem, ClonosError):
        return Failed(process, type(problem).__name__, f"{task}: {problem}")
    return Failed(process, ClonosError.__name__, f"{task}: {type_and_text(problem)}")


_encoder = msgspec.msgpack.Encoder()
_to_process: msgspec.msgpack.Decoder[ToProcess] = msgspec.msgpack.Decoder(ToProcess)
_to_coordinator: msgspec.msgpack.Decoder[ToCoordinator] = msgspec.msgpack.Decoder(ToCoordinator)


def encode(message: ToProcess | ToCoordinator) -> bytes:
    return _encoder.encode(message)


def decode_to_process(data: bytes) -> ToProcess:
    """Raises CodecError on bytes that are not such a message."""
    try:
        return _to_process.decode(data)
    except (msgspec.MsgspecError, ValueError, RecursionError) as problem:
        raise CodecError(f"a control message to a process cannot be read: {problem}") from problem


def decode_to_coordinator(data: bytes) -> ToCoordinator:
    """Raises CodecError on bytes that are not such a message."""
    try:
        return _to_coordinator.decode(data)
    except (msgspec.MsgspecError, ValueError, RecursionError) as problem:
        raise CodecError(f"a control message to the coordinator cannot be read: {problem}") from problem
