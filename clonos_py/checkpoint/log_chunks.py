"""Segments of determinant logs as chunks: one encoded segment per row."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pyarrow as pa

from clonos_py.model.errors import DAMAGED_REMEDY, UnreadableCheckpointError
from clonos_py.model.segments import LogSegment
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
