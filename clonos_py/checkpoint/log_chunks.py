"""Segments of determinant logs as chunks, one encoded segment per row, and as files of their own."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pyarrow as pa
import xxhash

from clonos_py.model.errors import DAMAGED_REMEDY, UnreadableCheckpointError
from clonos_py.model.segments import LogSegment
from clonos_py.model.snapshots import RecordTail
from clonos_py.model.state import Chunk


def log_chunk(logs: Sequence[LogSegment]) -> Chunk:
    """A chunk of log segments."""
    return Chunk(pa.record_batch({"segment": pa.array([msgspec.msgpack.encode(s) for s in logs], pa.binary())}))


def logs_in(chunk: Chunk) -> list[LogSegment]:
    """The segments in a chunk made by ``log_chunk``. Raises CheckpointError on anything else."""
    try:
        rows: list[bytes] = chunk.rows.column("segment").to_pylist()  # type: ignore[assignment]
        return [msgspec.msgpack.decode(row, type=LogSegment) for row in rows]
    except (msgspec.MsgspecError, KeyError, TypeError, ValueError) as error:
        raise UnreadableCheckpointError(
            f"{chunk.location} holds no determinants ({error}); {DAMAGED_REMEDY}"
        ) from error


_TAIL = b"clonos-tail 2 "


def encode_tail(tail: RecordTail) -> bytes:
    """A file: a header line with a checksum of the rest, then msgpack."""
    body = msgspec.msgpack.encode(tail)
    return b"%s%016x\n%s" % (_TAIL, xxhash.xxh3_64_intdigest(body), body)


def decode_tail(content: bytes, path: str) -> RecordTail:
    """Decodes such a file. Raises CheckpointError if it is damaged."""
    header, _, body = content.partition(b"\n")
    if header != b"%s%016x" % (_TAIL, xxhash.xxh3_64_intdigest(body)):
        raise UnreadableCheckpointError(f"{path} is corrupt: its checksum differs; {DAMAGED_REMEDY}")
    try:
        return msgspec.msgpack.decode(body, type=RecordTail)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise UnreadableCheckpointError(f"{path} cannot be decoded ({error}); {DAMAGED_REMEDY}") from error
