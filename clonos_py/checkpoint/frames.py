"""The file format of a run of frames: an index, then the body of each frame as an Arrow message.

    length of the index (4 bytes, little-endian) | index: schema and records, msgpack | bodies

Index and bodies begin at multiples of 64 bytes. A run can be decoded from its bytes alone; a manifest names only its
location and which of its frames are needed.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

import msgspec
import pyarrow as pa
import xxhash

from clonos_py.checkpoint.chunks import Scratch, padded
from clonos_py.model.errors import DAMAGED_REMEDY, CheckpointError, UnreadableCheckpointError
from clonos_py.model.snapshots import FrameRecord, FrameRun, StoredFrames

_LENGTH = struct.Struct("<I")


class _Index(msgspec.Struct, frozen=True, array_like=True):
    """``schema``: an Arrow message."""

    schema: bytes
    records: list[FrameRecord]


def add(run: FrameRun, scratch: Scratch) -> tuple[int, int, int]:
    """Appends a run to the buffer. Returns its offset, size in bytes and checksum."""
    index = msgspec.msgpack.encode(_Index(run.schema.serialize().to_pybytes(), list(run.records)))
    head = _LENGTH.pack(len(index)) + index
    bodies = [memoryview(body).cast("B") for body in run.bodies if body is not None]
    parts = [memoryview(head), *bodies]
    offset, room = scratch.room(sum(padded(part.nbytes) for part in parts))
    at = 0
    for part in parts:
        room[at : at + part.nbytes] = part
        at += padded(part.nbytes)
    return offset, len(room), xxhash.xxh3_64_intdigest(room)


def decode(content: pa.Buffer, checksum: int, path: str) -> FrameRun:
    """The run in these bytes; its bodies are slices of them. Raises CheckpointError if the bytes are damaged."""
    if xxhash.xxh3_64_intdigest(content) != checksum:
        raise UnreadableCheckpointError(f"{path} is corrupt: its checksum differs; {DAMAGED_REMEDY}")
    try:
        (length,) = _LENGTH.unpack_from(content)
        index = msgspec.msgpack.decode(content.slice(_LENGTH.size, length), type=_Index)
        schema = pa.ipc.read_schema(pa.py_buffer(index.schema))
        return FrameRun(schema, index.records, list(_bodies(content, index.records, _LENGTH.size + length)))
    except (pa.ArrowException, msgspec.MsgspecError, struct.error, IndexError, OSError, ValueError) as error:
        raise UnreadableCheckpointError(f"{path} cannot be decoded ({error}); {DAMAGED_REMEDY}") from error


def _bodies(content: pa.Buffer, records: list[FrameRecord], at: int) -> Iterator[pa.Buffer | None]:
    if not records:
        raise ValueError("there is no frame in it")
    for record in records:
        at = padded(at)
        yield content.slice(at, record.size_bytes) if record.size_bytes else None
        at += record.size_bytes
    if at > content.size:
        raise ValueError("it ends in the middle of a frame")


def between(run: FrameRun, stored: StoredFrames) -> FrameRun:
    """The frames of ``run`` that ``stored`` names. Raises CheckpointError if some of them are missing."""
    first, last = stored.start - run.start, stored.stop - run.start
    found = run.records[first:last] if first >= 0 else ()
    if [record.seq for record in found] != list(range(stored.start, stored.stop)) or not found:
        raise CheckpointError(
            f"{stored.location}: frames [{stored.start}, {stored.stop}) are to be there, it has "
            f"[{run.start}, {run.stop}); {DAMAGED_REMEDY}"
        )
    return run if len(found) == len(run.records) else FrameRun(run.schema, found, run.bodies[first:last])
