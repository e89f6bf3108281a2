"""Instructions of a link to its driver, and the events that it gets besides control messages (D8).

A connection is a number that the driver assigns. Receivers open connections: the subscriber names the channel, its
attempt and the sequence number of the frame that it needs next. The first frame that it gets is LOG_ONLY.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from clonos_py.channel.frames import Frame, FrameHeader
from clonos_py.model.errors import ClonosError, CodecError
from clonos_py.model.ids import Attempt, ChannelId
from clonos_py.model.messages import Restore, ToCoordinator
from clonos_py.model.operators import OutputSegment, PublishedOutput
from clonos_py.model.segments import LogSegment, Reach
from clonos_py.model.snapshots import FrameRun, RecordTail, TaskHandle, TaskSnapshot
from clonos_py.model.state import OperatorState
from clonos_py.process.contract import ToTask


class Hello(msgspec.Struct, frozen=True, array_like=True):
    """The first message of a subscriber. ``next_seq`` -1: start at the first retained frame, under the sender's
    numbering. ``covered``: the receiver's restart point covers the frames below; they are never requested again."""

    job: str
    channel: ChannelId
    receiver: Attempt
    sender: Attempt
    next_seq: int
    covered: int = 0


class SnapshotPosition(NamedTuple):
    """The snapshot of ``checkpoint`` (0: none) covers the frames of a channel below ``next_seq``."""

    checkpoint: int
    next_seq: int


class Acknowledgement(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False):
    """A receiver has taken all frames of a channel below ``next_seq``. ``held``: how far it holds upstream logs, some
    of them from other senders. ``rows_requested``, ``rows_at_once``: see the task's FramesTaken. ``covered``: see
    Hello. ``snapshot``: the last one that the receiver has taken, if its sender stores channel state."""

    next_seq: int
    held: list[Reach]
    rows_requested: int
    rows_at_once: int
    covered: int
    snapshot: SnapshotPosition


_hello_encoder = msgspec.msgpack.Encoder()
_hello_decoder: msgspec.msgpack.Decoder[Hello] = msgspec.msgpack.Decoder(Hello)


def encode_hello(hello: Hello) -> bytes:
    return _hello_encoder.encode(hello)


def decode_hello(data: bytes) -> Hello:
    """Raises CodecError on bytes that are not a Hello."""
    try:
        return _hello_decoder.decode(data)
    except (msgspec.MsgspecError, ValueError, RecursionError) as problem:
        raise CodecError(f"a subscription cannot be read: {problem}") from problem


# ---- driver to link (besides the control messages of model.messages and the task's events)


class Subscribed(msgspec.Struct, frozen=True):
    """A receiver's subscription has arrived on ``connection``."""

    connection: int
    hello: Hello


class Connected(msgspec.Struct, frozen=True):
    """The connection requested with ``Connect`` is open."""

    input: int
    connection: int
    hello: Hello


class Arrived(msgspec.Struct, frozen=True):
    """A frame from an upstream task has arrived. Its rows are decoded and its checksum is verified."""

    connection: int
    header: FrameHeader
    frame: Frame


class FeedReceived(msgspec.Struct, frozen=True):
    """A part of the feed has arrived at a standby. ``body``: the decoded rows of a chunk, or the body of a retained
    frame."""

    connection: int
    header: FrameHeader
    body: Any


class Acknowledged(msgspec.Struct, frozen=True):
    """The receiver at the other end has sent an acknowledgement."""

    connection: int
    acknowledgement: Acknowledgement


class Lost(msgspec.Struct, frozen=True):
    """A connection broke, or the one requested with ``hello`` could not be opened (then ``connection`` is -1)."""

    connection: int
    input: int = -1
    hello: Hello | None = None
    reason: str = ""


LoadedFrames = Mapping[int, Sequence[FrameRun]]
"""Stored frames of the restart point, by output channel, in order."""


class Loaded(msgspec.Struct, frozen=True):
    """The state requested with ``Load`` is loaded."""

    restore: Restore
    operators: Mapping[str, Sequence[OperatorState]]
    frames: LoadedFrames = msgspec.field(default_factory=dict)
    logs: Sequence[LogSegment] = ()


class LoadFailed(msgspec.Struct, frozen=True):
    """The state requested with ``Load`` cannot be read."""

    restore: Restore
    problem: ClonosError


class Persisted(msgspec.Struct, frozen=True):
    """A snapshot is durable."""

    handle: TaskHandle
    persist_ms: float
    persist_cpu_ms: float = 0.0
    requests: dict[str, int] = {}
    """See ``Snapshotted``."""


class PersistFailed(msgspec.Struct, frozen=True):
    """A snapshot is not durable. ``unavailable``: see ``SnapshotFailed``."""

    checkpoint: int
    reason: str
    unavailable: bool = False


class CommitDone(msgspec.Struct, frozen=True):
    """All results named by ``Commit`` are visible."""

    checkpoint: int


class OutputAcquired(msgspec.Struct, frozen=True):
    """This attempt has taken over the output of causal sink ``number``. ``published``: what the output holds."""

    number: int
    published: PublishedOutput


class OutputWritten(msgspec.Struct, frozen=True):
    """``pieces`` more pieces of causal sink ``number`` are visible."""

    number: int
    pieces: int


class FramesWritten(msgspec.Struct, frozen=True):
    """Bodies of output ``output`` can be read back: (sequence number, place)."""

    output: int
    places: Sequence[tuple[int, Any]]


class FramesNotWritten(msgspec.Struct, frozen=True):
    """These frames could not be stored because of ``reason``."""

    output: int
    seqs: Sequence[int]
    reason: str


class FramesRead(msgspec.Struct, frozen=True):
    """Bodies of output ``output`` have been read back: (sequence number, body). ``checkpoint``: see ReadFrames."""

    output: int
    bodies: Sequence[tuple[int, Any]]
    checkpoint: int = 0


class FramesNotRead(msgspec.Struct, frozen=True):
    """Stored frames cannot be read back."""

    problem: ClonosError


LinkEvent = (
    Subscribed
    | Connected
    | Arrived
    | FeedReceived
    | Acknowledged
    | Lost
    | Loaded
    | LoadFailed
    | Persisted
    | PersistFailed
    | CommitDone
    | OutputAcquired
    | OutputWritten
    | FramesWritten
    | FramesNotWritten
    | FramesRead
    | FramesNotRead
)


# ---- link to driver


class Connect(msgspec.Struct, frozen=True):
    """Subscribe to the upstream task at ``address``; any older connection of this input has been closed."""

    input: int
    address: str
    hello: Hello


class Disconnect(msgspec.Struct, frozen=True):
    """Close the connection for good. Nothing of it that was not read yet may be delivered any more."""

    connection: int


class SendFrame(msgspec.Struct, frozen=True):
    """Send a frame. ``body``: the encoded rows; None without rows."""

    connection: int
    header: FrameHeader
    body: Any


class SendAck(msgspec.Struct, frozen=True):
    """Send an acknowledgement; the sender at the other end gets it as ``Acknowledged``."""

    connection: int
    acknowledgement: Acknowledgement


class SendToCoordinator(msgspec.Struct, frozen=True):
    """Send a message to the coordinator."""

    message: ToCoordinator


class SendToTask(msgspec.Struct, frozen=True):
    """Pass an event to the task of this process."""

    item: ToTask


class Load(msgspec.Struct, frozen=True):
    """Read this state from storage. ``ahead``: the process is a standby, and no failed task waits for it."""

    restore: Restore
    ahead: bool = False


class Persist(msgspec.Struct, frozen=True):
    """Make this snapshot durable."""

    snapshot: TaskSnapshot
    attempt: Attempt


class AdoptState(msgspec.Struct, frozen=True):
    """Pass the sinks the state that the task starts from, since it was not loaded from storage. ``operators``: by
    name."""

    operators: Mapping[str, OperatorState]


class Commit(msgspec.Struct, frozen=True):
    """Have each sink commit the results that ``committables`` names, oldest first."""

    checkpoint: int
    committables: Mapping[str, Sequence[bytes]]


class AcquireOutput(msgspec.Struct, frozen=True):
    """Take over the output of causal sink ``name`` as ``attempt``, restarting from ``checkpoint``."""

    number: int
    name: str
    attempt: Attempt
    checkpoint: int
    shape: str
    lineage: str


class WriteOutput(msgspec.Struct, frozen=True):
    """Have the causal sink ``name`` write ``log``, then ``pieces``, which were cut in ``epoch``."""

    number: int
    name: str
    epoch: int
    log: Sequence[LogSegment]
    pieces: Sequence[OutputSegment]


class SettleOutput(msgspec.Struct, frozen=True):
    """Have the causal sink ``name`` make durable what it has written."""

    number: int
    name: str


class WriteFrames(msgspec.Struct, frozen=True):
    """Store these bodies of output ``output``, in this order, so that they can be read back until the process ends:
    (sequence number, body)."""

    output: int
    bodies: Sequence[tuple[int, Any]]


class ReadFrames(msgspec.Struct, frozen=True):
    """Read these bodies back soon: (sequence number, place). They will be sent next, or stored with the snapshot of
    ``checkpoint``."""

    output: int
    places: Sequence[tuple[int, Any]]
    checkpoint: int = 0


class FreeFrames(msgspec.Struct, frozen=True):
    """Free these places; their contents are not needed any more."""

    places: Sequence[Any]


class KeepTail(msgspec.Struct, frozen=True):
    """Make durable, if possible, what the process holds of logs: the job ends by an error. There is no answer."""

    tail: RecordTail


class Shutdown(msgspec.Struct, frozen=True):
    """End the process; it is not needed any more."""

    reason: str


Spilling = WriteFrames | ReadFrames | FreeFrames
"""Carried out one by one, in this order. Each of the first two is answered by one or two events."""
SinkWork = AdoptState | Commit | AcquireOutput | WriteOutput | SettleOutput
"""Carried out one by one, in this order, together with ``Load`` and ``Persist``. So a durable snapshot covers only
output that was visible and durable before it."""
Instruction = (
    Connect
    | Disconnect
    | SendFrame
    | SendAck
    | SendToCoordinator
    | SendToTask
    | Load
    | Persist
    | KeepTail
    | SinkWork
    | Spilling
    | Shutdown
)
