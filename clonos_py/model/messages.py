"""The control plane: what the coordinator tells processes and what they tell it.

All messages are msgpack-encoded structs; nothing is pickled. A process is named by the coordinator (``process``), a
task by its TaskId; a process that stands by has the task it mirrors and no attempt.
"""

from __future__ import annotations

import msgspec

from clonos_py.model.counters import ProcessCounters
from clonos_py.model.errors import ClonosError, CodecError, UserCodeError
from clonos_py.model.ids import Attempt, ChannelId, TaskId
from clonos_py.model.segments import Incarnation, LogSegment, StableMark
from clonos_py.model.snapshots import OperatorHandle, StoredChunk, StoredFrames, TaskHandle


class Fallback(msgspec.Struct, frozen=True):
    """The earlier snapshot to which a task may still have to go back: sinks commit what it names and no more, and
    senders keep the frames that it does not cover."""

    checkpoint: int
    committables: dict[str, list[bytes]]
    covered: list[int]
    """By input channel: the frames below this number."""


class Restore(msgspec.Struct, frozen=True):
    """The state to start from: by operator the snapshots of its instances; ``progress`` None: at a new parallelism."""

    checkpoint: int
    operators: dict[str, list[OperatorHandle]] = {}
    progress: bytes | None = None
    committables: dict[str, list[bytes]] = {}
    marks: list[StableMark] = []
    """What is stable for a task that restarts here."""
    frames: dict[int, list[StoredFrames]] = {}
    """By output channel: what its receiver's restart point does not cover of the frames before this one."""
    logs: StoredChunk | None = None
    """Determinants that the state depends on."""
    fallback: Fallback | None = None
    """None: the task will not go back behind this snapshot."""


class Peer(msgspec.Struct, frozen=True):
    """An upstream task to subscribe to. ``reset``: take its numbering as it comes (no determinants were kept)."""

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
    """To a standby: take this completed checkpoint's state in."""

    restore: Restore


class Promote(msgspec.Struct, frozen=True, tag=True):
    """Be this attempt of your task, start from ``restore`` and subscribe to ``inputs``. Sent again when they change.
    ``numbering``: see OperatorContext."""

    round: int
    attempt: Attempt
    restore: Restore
    inputs: list[Peer]
    numbering: str = ""


class Replay(msgspec.Struct, frozen=True, tag=True):
    """To a promoted process: your predecessor's merged log, what receivers have, and which checkpoints are void.
    ``upstream``: the logs of upstream tasks; on them depends what the log says. All there is to know of the logs of
    tasks number ``complete`` is in here; of others the log may depend on offsets below those in ``needs``.
    ``incarnation``: that of the log."""

    round: int
    log: list[LogSegment]
    expected: list[Expectation]
    aborted: list[int]
    upstream: list[LogSegment] = []
    complete: list[int] = []
    needs: dict[int, int] = {}
    incarnation: Incarnation = Incarnation()


class Complete(msgspec.Struct, frozen=True, tag=True):
    """A manifest is written that moves the restart point of the task to where ``checkpoint`` begins (0: it has none).
    Sinks commit, and what ``marks`` name is stable."""

    checkpoint: int
    marks: list[StableMark] = []


class Sever(msgspec.Struct, frozen=True, tag=True):
    """To everybody who has received anything: the tasks in ``attempts`` have failed and are these attempts now. Close
    connections with older ones, say what you hold of them, then subscribe to ``replacements``."""

    round: int
    replacements: list[Peer]
    attempts: list[tuple[TaskId, Attempt]]
    completed: Complete
    """The last of these messages, which may not have come yet."""


class TriggerCheckpoint(msgspec.Struct, frozen=True, tag=True):
    """To a source task: begin this checkpoint."""

    checkpoint: int


class AbortCheckpoint(msgspec.Struct, frozen=True, tag=True):
    checkpoint: int


class Probe(msgspec.Struct, frozen=True, tag=True):
    """To the tasks of a loop: answer with Probed, in your turn."""

    number: int


class EndLoop(msgspec.Struct, frozen=True, tag=True):
    """To the heads of a loop: no rows are left in it, and every task of it restarts at a point at which none were."""


class Stop(msgspec.Struct, frozen=True, tag=True):
    """End: the job is finished, has failed, or this process is not needed any more."""

    reason: str


class Ping(msgspec.Struct, frozen=True, tag=True):
    number: int


class StatusRequest(msgspec.Struct, frozen=True, tag=True):
    """A coordinator has taken the place of a lost one and asks for a StatusReport. After this comes no message of the
    lost one."""


ToProcess = (
    Prepare
    | Promote
    | Replay
    | Sever
    | TriggerCheckpoint
    | AbortCheckpoint
    | Complete
    | Probe
    | EndLoop
    | Stop
    | Ping
    | StatusRequest
)


# ---- process to coordinator


class Started(msgspec.Struct, frozen=True, tag=True):
    """The process is up; peers connect to ``address``. ``host_process``: equal for all processes that share one process
    of the operating system and die with it; 0 for one that shares with none."""

    process: int
    address: str
    host_process: int = 0


class Prepared(msgspec.Struct, frozen=True, tag=True):
    process: int
    checkpoint: int


class NotPrepared(msgspec.Struct, frozen=True, tag=True):
    """The state of ``checkpoint`` cannot be read here; the process stands by all the same."""

    process: int
    checkpoint: int
    reason: str


class HeldLogsReport(msgspec.Struct, frozen=True, tag=True):
    """The answer to Sever: logs of failed tasks and of those upstream of them, what was received from the failed ones,
    and what the process depends on (D10)."""

    process: int
    round: int
    logs: list[LogSegment]
    received: list[Expectation]
    depends: list[int] = []
    """Inputs of which it has received frames since its restart point, or a log of the sender."""
    logs_received: dict[int, list[int]] = {}
    """By input: numbers of the tasks whose logs came from there. Only this process may hold them, and they are replayed
    then: it depends on what they depend on."""
    replayed: list[int] = []
    """Inputs of which the log speaks that it was given to replay."""
    lacking: dict[int, list[int]] = {}
    """By input: numbers of tasks whose logs its predecessor had from there, and it may not have all of."""
    settled: bool = True
    """False: it takes a failed task's place and has not got that task's log."""
    ends: dict[int, int] = {}
    """By number of a task upstream of a failed one: where the log held of it ends."""
    whole: list[int] = []
    """Numbers of tasks upstream of a failed one, of whose logs it has everything that the failed task's log depends on,
    as far as it has that."""
    needs: dict[int, int] = {}
    """What Replay said; void once the log is used up, or a checkpoint that it has taken is complete."""
    own: int | None = None
    """The number of its own task, if that has not failed, its log is among ``logs``, and a failed task in a loop is to
    have all of it."""


class Snapshotted(msgspec.Struct, frozen=True, tag=True):
    """A task's snapshot is durable."""

    process: int
    handle: TaskHandle
    persist_ms: float = 0.0


class SnapshotFailed(msgspec.Struct, frozen=True, tag=True):
    process: int
    checkpoint: int
    reason: str


class Running(msgspec.Struct, frozen=True, tag=True):
    """The replay has ended: everything the predecessor was known to have done is done again."""

    process: int
    round: int
    rows_replayed: int


class NewEffect(msgspec.Struct, frozen=True, tag=True):
    """A replacement has sent its first frame or sink row that was never sent before."""

    process: int


class Drained(msgspec.Struct, frozen=True, tag=True):
    """All inputs have ended and all effects are handed on; a final checkpoint may commit them."""

    process: int


class Probed(msgspec.Struct, frozen=True, tag=True):
    """The answer of a task in a loop to Probe ``number``; see the task's ``LoopCounts``."""

    process: int
    number: int
    passive: bool
    epoch: int
    cut: list[int]
    taken: list[int]


class Committed(msgspec.Struct, frozen=True, tag=True):
    """The sinks of this task have committed what ``checkpoint`` names."""

    process: int
    checkpoint: int


class RequestCheckpoint(msgspec.Struct, frozen=True, tag=True):
    """Half of the in-flight budget is spent."""

    process: int


class FramesNotSpilled(msgspec.Struct, frozen=True, tag=True):
    """Retained frames cannot be written, they stay in memory as long as it lasts: a checkpoint would make room."""

    process: int
    reason: str


class FunctionHangNoticed(msgspec.Struct, frozen=True, tag=True):
    """A function of the user's has been at work on one row for long. It may end some time."""

    process: int
    reason: str


class Suspect(msgspec.Struct, frozen=True, tag=True):
    """A connection to this task broke or could not be made; it may be dead, or merely the connection. ``failures``:
    how many in a row, since the connection was last open."""

    process: int
    task: TaskId
    failures: int = 1


class Failed(msgspec.Struct, frozen=True, tag=True):
    """The process cannot go on. ``error`` is the type's name in model.errors."""

    process: int
    error: str
    message: str
    traceback: str = ""
    """Of the user's function that was at work."""


class Pong(msgspec.Struct, frozen=True, tag=True):
    process: int
    number: int
    counters: ProcessCounters = ProcessCounters()


class StatusReport(msgspec.Struct, frozen=True, tag=True):
    """The answer to StatusRequest. A process that is still starting gives only its number, and sends Started when it is
    up."""

    process: int
    attempt: Attempt | None = None
    """None: it stands by."""
    restore: int = 0
    """The checkpoint whose state it was last asked to start from."""
    begun: bool = False
    """Whether it has got its log: it is the task, or will be as soon as it has its state, and not only told to be."""
    replaying: bool = False
    """Whether its log is not used up yet."""
    drained: bool = False
    round: int = 0
    """The last recovery round that it has taken part in."""
    checkpoint: int = 0
    """The highest number of a checkpoint, complete or not, that it has heard of."""
    peers: list[tuple[TaskId, Attempt]] = []
    """Whom it listens to and whom it serves."""
    failure: Failed | None = None
    incarnation: Incarnation = Incarnation()
    """That of its own log, if it has that."""
    incarnations: dict[int, int] = {}
    """By number of a task that has restarted without its log: the newest incarnation whose log it holds."""


ToCoordinator = (
    Started
    | Prepared
    | NotPrepared
    | HeldLogsReport
    | Snapshotted
    | SnapshotFailed
    | Running
    | NewEffect
    | Drained
    | Probed
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
    """What a process says of what ended it. An error of user code names its operator, and needs no task."""
    if isinstance(problem, UserCodeError):
        return Failed(process, UserCodeError.__name__, str(problem), problem.traceback)
    if isinstance(problem, ClonosError):
        return Failed(process, type(problem).__name__, f"{task}: {problem}")
    return Failed(process, ClonosError.__name__, f"{task}: {type(problem).__name__}: {problem}")


_encoder = msgspec.msgpack.Encoder()
_to_process: msgspec.msgpack.Decoder[ToProcess] = msgspec.msgpack.Decoder(ToProcess)
_to_coordinator: msgspec.msgpack.Decoder[ToCoordinator] = msgspec.msgpack.Decoder(ToCoordinator)


def encode(message: ToProcess | ToCoordinator) -> bytes:
    return _encoder.encode(message)


def decode_to_process(data: bytes) -> ToProcess:
    """Raises CodecError on anything that is no such message."""
    try:
        return _to_process.decode(data)
    except (msgspec.MsgspecError, ValueError, RecursionError) as problem:
        raise CodecError(f"a control message to a process cannot be read: {problem}") from problem


def decode_to_coordinator(data: bytes) -> ToCoordinator:
    """Raises CodecError on anything that is no such message."""
    try:
        return _to_coordinator.decode(data)
    except (msgspec.MsgspecError, ValueError, RecursionError) as problem:
        raise CodecError(f"a control message to the coordinator cannot be read: {problem}") from problem
