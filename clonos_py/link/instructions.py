"""What a link asks of its driver, and the events that it gets besides control messages (D8).

A connection is a number that the driver gives out. Connections are opened by receivers: the subscriber names the
channel, its attempt and the sequence number it wants next; the first frame back is LOG_ONLY.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec

from clonos_py.channel.frames import Frame, FrameHeader
from clonos_py.model.errors import ClonosError, CodecError
from clonos_py.model.ids import Attempt, ChannelId
from clonos_py.model.messages import Restore, ToCoordinator
from clonos_py.model.operators import OutputSegment, PublishedOutput
from clonos_py.model.segments import LogSegment, Reach
from clonos_py.model.snapshots import FrameRun, TaskHandle, TaskSnapshot
from clonos_py.model.state import OperatorState
from clonos_py.process.contract import ToTask


class Hello(msgspec.Struct, frozen=True, array_like=True):
    """The first message of a subscriber. ``next_seq`` -1: start where you are (nothing was kept for me). The restart
    point of the receiver covers the frames below ``covered``: they are never asked for again."""

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
    """A receiver has taken all frames of a channel below ``next_seq``, and holds ``held`` of upstream logs, some of it
    from other senders. ``rows_wanted``: see the task's event of that name; 0 where it does not matter. ``covered``: see
    Hello. ``snapshot``: the last one that the receiver has taken, where its sender stores channel state."""

    next_seq: int
    held: list[Reach]
    rows_wanted: int
    covered: int
    snapshot: SnapshotPosition


_hello_encoder = msgspec.msgpack.Encoder()
_hello_decoder: msgspec.msgpack.Decoder[Hello] = msgspec.msgpack.Decoder(Hello)


def encode_hello(hello: Hello) -> bytes:
    return _hello_encoder.encode(hello)


def decode_hello(data: bytes) -> Hello:
    """Raises CodecError on anything that is no Hello."""
    try:
        return _hello_decoder.decode(data)
    except (msgspec.MsgspecError, ValueError, RecursionError) as problem:
        raise CodecError(f"a subscription cannot be read: {problem}") from problem


# ---- driver to link (besides the control messages of model.messages and the task's events)


@dataclass(frozen=True, slots=True)
class Subscribed:
    """A receiver's subscription has arrived on ``connection``."""

    connection: int
    hello: Hello


@dataclass(frozen=True, slots=True)
class Connected:
    """The connection asked for with ``Connect`` stands."""

    input: int
    connection: int
    hello: Hello


@dataclass(frozen=True, slots=True)
class Arrived:
    """A frame came in on a connection to an upstream task; its rows are decoded and its checksum verified."""

    connection: int
    header: FrameHeader
    frame: Frame


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """The receiver at the other end has sent this."""

    connection: int
    acknowledgement: Acknowledgement


@dataclass(frozen=True, slots=True)
class Lost:
    """A connection broke, or the one asked for with ``hello`` could not be made (then ``connection`` is -1)."""

    connection: int
    input: int = -1
    hello: Hello | None = None
    reason: str = ""


LoadedFrames = Mapping[int, Sequence[FrameRun]]
"""Frames of the restart point, by output channel, in their order."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """State asked for with ``Load`` is here."""

    restore: Restore
    operators: Mapping[str, Sequence[OperatorState]]
    frames: LoadedFrames = field(default_factory=dict)
    logs: Sequence[LogSegment] = ()


@dataclass(frozen=True, slots=True)
class LoadFailed:
    """State asked for with ``Load`` cannot be read."""

    restore: Restore
    problem: ClonosError


@dataclass(frozen=True, slots=True)
class Persisted:
    """A snapshot is durable."""

    handle: TaskHandle
    persist_ms: float


@dataclass(frozen=True, slots=True)
class PersistFailed:
    checkpoint: int
    reason: str


@dataclass(frozen=True, slots=True)
class CommitDone:
    """Everything asked for with ``Commit`` is visible."""

    checkpoint: int


@dataclass(frozen=True, slots=True)
class OutputClaimed:
    """The output of causal sink ``number`` is this attempt's; what it holds."""

    number: int
    published: PublishedOutput


@dataclass(frozen=True, slots=True)
class OutputWritten:
    """So many pieces more of causal sink ``number`` are visible."""

    number: int
    pieces: int


@dataclass(frozen=True, slots=True)
class FramesWritten:
    """Bodies of output ``output`` can be read back: (sequence number, place)."""

    output: int
    places: Sequence[tuple[int, Any]]


@dataclass(frozen=True, slots=True)
class FramesNotWritten:
    """These could not be stored, as ``reason`` says."""

    output: int
    seqs: Sequence[int]
    reason: str


@dataclass(frozen=True, slots=True)
class FramesRead:
    """Bodies of output ``output`` are back: (sequence number, body). ``checkpoint``: see ReadFrames."""

    output: int
    bodies: Sequence[tuple[int, Any]]
    checkpoint: int = 0


@dataclass(frozen=True, slots=True)
class FramesNotRead:
    """What was written cannot be read back."""

    problem: ClonosError


LinkEvent = (
    Subscribed
    | Connected
    | Arrived
    | Acknowledged
    | Lost
    | Loaded
    | LoadFailed
    | Persisted
    | PersistFailed
    | CommitDone
    | OutputClaimed
    | OutputWritten
    | FramesWritten
    | FramesNotWritten
    | FramesRead
    | FramesNotRead
)


# ---- link to driver


@dataclass(frozen=True, slots=True)
class Connect:
    """Subscribe to the upstream task at ``address``; an older connection of this input is closed already."""

    input: int
    address: str
    hello: Hello


@dataclass(frozen=True, slots=True)
class Disconnect:
    """Close for good; nothing unread of it may be delivered any more."""

    connection: int


@dataclass(frozen=True, slots=True)
class SendFrame:
    """``body`` is what the codec made of the rows, None without rows."""

    connection: int
    header: FrameHeader
    body: Any


@dataclass(frozen=True, slots=True)
class SendAck:
    """The sender at the other end gets it as ``Acknowledged``."""

    connection: int
    acknowledgement: Acknowledgement


@dataclass(frozen=True, slots=True)
class SendToCoordinator:
    """To the coordinator."""

    message: ToCoordinator


@dataclass(frozen=True, slots=True)
class SendToTask:
    """To the task of this process."""

    item: ToTask


@dataclass(frozen=True, slots=True)
class Load:
    """Read this state from storage. ``ahead``: the process stands by, no failed task waits for it."""

    restore: Restore
    ahead: bool = False


@dataclass(frozen=True, slots=True)
class Persist:
    """Make this snapshot durable."""

    snapshot: TaskSnapshot
    attempt: Attempt


@dataclass(frozen=True, slots=True)
class Commit:
    """Have the sinks commit what ``committables`` names, by sink, oldest first."""

    checkpoint: int
    committables: Mapping[str, Sequence[bytes]]


@dataclass(frozen=True, slots=True)
class ClaimOutput:
    """Take over what the causal sink ``name`` writes to, as ``attempt``, which restarts from ``checkpoint``. See
    ``CausalSink.claim``."""

    number: int
    name: str
    attempt: Attempt
    checkpoint: int
    shape: str
    lineage: str


@dataclass(frozen=True, slots=True)
class WriteOutput:
    """Have the causal sink ``name`` write ``log``, then ``pieces``, which were cut in ``epoch``."""

    number: int
    name: str
    epoch: int
    log: Sequence[LogSegment]
    pieces: Sequence[OutputSegment]


@dataclass(frozen=True, slots=True)
class SettleOutput:
    """Have the causal sink ``name`` make durable what it has written."""

    number: int
    name: str


@dataclass(frozen=True, slots=True)
class WriteFrames:
    """Store these bodies of output ``output``, in this order, so that they can be read back as long as the process
    lives: (sequence number, body)."""

    output: int
    bodies: Sequence[tuple[int, Any]]


@dataclass(frozen=True, slots=True)
class ReadFrames:
    """Read these bodies back soon: (sequence number, place). They are to be sent next, or stored with the snapshot of
    ``checkpoint``."""

    output: int
    places: Sequence[tuple[int, Any]]
    checkpoint: int = 0


@dataclass(frozen=True, slots=True)
class FreeFrames:
    """What is stored there is not needed any more."""

    places: Sequence[Any]


@dataclass(frozen=True, slots=True)
class Shutdown:
    """The process is not needed any more."""

    reason: str


Spilling = WriteFrames | ReadFrames | FreeFrames
"""Carried out one after the other, in this order; each of the first two is answered by one event or two."""
SinkWork = Commit | ClaimOutput | WriteOutput | SettleOutput
"""Carried out with ``Load`` and ``Persist`` one after the other, in this order: a snapshot that is durable covers only
what is visible and durable by then."""
Instruction = (
    Connect
    | Disconnect
    | SendFrame
    | SendAck
    | SendToCoordinator
    | SendToTask
    | Load
    | Persist
    | SinkWork
    | Spilling
    | Shutdown
)
