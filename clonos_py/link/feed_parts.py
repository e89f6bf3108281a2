"""The parts of a standby's feed (E17), as they travel in the ``meta`` of a frame header.

    FEED_CHUNK: new rows of a state table     FEED_FRAME: a retained frame     FEED_POINT: everything else

A point names the chunks of its tables by number. The chunks and the frames that it needs were sent before it on the
same connection. A part carries determinants like any frame, so the standby holds those that the point depends on.
"""

from __future__ import annotations

from typing import TypeVar

import msgspec

from clonos_py.model.errors import CodecError
from clonos_py.model.ids import ChannelId, TaskId
from clonos_py.model.segments import LogSegment
from clonos_py.model.snapshots import FrameRecord
from clonos_py.process.contract import FeedPosition, TaskProgress

P = TypeVar("P", bound=msgspec.Struct)
_NO_EDGE = -1


def feed_channel(task: TaskId) -> ChannelId:
    """The channel of a task's feed, which belongs to no edge."""
    return ChannelId(_NO_EDGE, task.index, task.index)


class ChunkPart(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Chunk ``number``; its rows are the body."""

    number: int


class FramePart(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A retained frame of an output, in the form in which it is stored; its rows are the body."""

    output: int
    record: FrameRecord
    checksum: int


class TableRows(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The chunks of a table: the first ``kept`` ones of the last point, then those numbered ``added``."""

    kept: int
    added: list[int]


class OperatorPart(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The state of an operator. ``values``: ``OperatorState.values`` as msgpack."""

    tables: dict[str, TableRows]
    values: bytes


class PointPart(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A feed point. ``aborted``: see ``FeedPointTaken``. ``committables``: by epoch whose checkpoint is not complete,
    the prepared results of each sink. ``first``: by output, frames below this number are covered. ``record``: of a task
    whose log is only recorded (F1), what it has logged since the point before; the first point has it all."""

    operators: dict[str, OperatorPart]
    progress: TaskProgress
    position: FeedPosition
    aborted: list[int]
    committables: dict[int, dict[str, list[bytes]]]
    first: list[int]
    record: list[LogSegment] = []


def encode_part(part: ChunkPart | FramePart | PointPart) -> bytes:
    return msgspec.msgpack.encode(part)


def decode_part(data: bytes, kind: type[P]) -> P:
    """Raises CodecError on bytes that are not such a part."""
    try:
        return msgspec.msgpack.decode(data, type=kind)
    except (msgspec.MsgspecError, ValueError, RecursionError) as problem:
        raise CodecError(f"{len(data)} bytes are no {kind.__name__} of a feed: {problem}") from problem
