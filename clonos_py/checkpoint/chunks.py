"""The file format of a chunk: an Arrow IPC stream of one batch, with a checksum.

Chunks of state are not compressed: as measured, lz4 halves the bytes and doubles the CPU time, and a standby, which now
uses the bytes as read, would have to decompress them. Those of recorded logs are compressed: they are kept for long and
are seldom read.
"""

from __future__ import annotations

import pyarrow as pa
import xxhash

from clonos_py.model.errors import DAMAGED_REMEDY, UnreadableCheckpointError

_ALIGNMENT_BYTES = 64
_WRITE = pa.ipc.IpcWriteOptions(use_threads=False)
_CODEC = next((pa.Codec(name) for name in ("zstd", "lz4") if pa.Codec.is_available(name)), None)
_WRITE_COMPRESSED = pa.ipc.IpcWriteOptions(use_threads=False, compression=_CODEC)
_READ = pa.ipc.IpcReadOptions(use_threads=False)


class Scratch:
    """A growing buffer that chunks are encoded into, one after the other; reused, so that its pages stay mapped."""

    def __init__(self) -> None:
        self._bytes = bytearray(1 << 20)
        self.used_bytes = 0

    def add(self, batch: pa.RecordBatch, compressed: bool = False) -> tuple[int, int, int]:
        """Appends an encoded batch. Returns its offset, size in bytes and checksum. ``compressed``: if Arrow can."""
        if compressed:
            return self._add_compressed(batch)
        offset, view = self.room(encoded_bytes(batch))
        _write(pa.FixedSizeBufferWriter(pa.py_buffer(view)), batch)
        return offset, len(view), xxhash.xxh3_64_intdigest(view)

    def _add_compressed(self, batch: pa.RecordBatch) -> tuple[int, int, int]:
        sink = pa.BufferOutputStream()
        _write(sink, batch, _WRITE_COMPRESSED)
        encoded = sink.getvalue()
        offset, view = self.room(encoded.size)
        view[:] = memoryview(encoded).cast("B")
        return offset, len(view), xxhash.xxh3_64_intdigest(view)

    def room(self, size_bytes: int) -> tuple[int, memoryview]:
        """Reserves this many bytes at the end. Returns their offset, and the view to fill."""
        offset = padded(self.used_bytes)
        self._reserve(offset + size_bytes)
        self.used_bytes = offset + size_bytes
        return offset, memoryview(self._bytes)[offset : self.used_bytes]

    def content(self) -> memoryview:
        """Everything added so far. Valid until ``clear``."""
        return memoryview(self._bytes)[: self.used_bytes]

    def clear(self) -> None:
        self.used_bytes = 0

    def _reserve(self, size_bytes: int) -> None:
        if size_bytes > len(self._bytes):
            grown = bytearray(max(size_bytes, 2 * len(self._bytes)))
            grown[: self.used_bytes] = self.content()
            self._bytes = grown


def padded(size_bytes: int) -> int:
    """The size rounded up to a multiple of 64."""
    return -(-size_bytes // _ALIGNMENT_BYTES) * _ALIGNMENT_BYTES


def encoded_bytes(batch: pa.RecordBatch) -> int:
    mock = pa.MockOutputStream()
    _write(mock, batch)
    return mock.size()


def decode(stored: pa.Buffer, rows: int, checksum: int, path: str) -> pa.RecordBatch:
    """The batch in these bytes. Raises CheckpointError if the bytes are damaged."""
    if xxhash.xxh3_64_intdigest(stored) != checksum:
        raise UnreadableCheckpointError(f"{path} is corrupt: its checksum differs; {DAMAGED_REMEDY}")
    try:
        with pa.ipc.open_stream(stored, options=_READ) as reader:
            batch = reader.read_next_batch()
    except (pa.ArrowInvalid, StopIteration) as error:
        raise UnreadableCheckpointError(f"{path} cannot be decoded ({error}); {DAMAGED_REMEDY}") from error
    if batch.num_rows != rows:
        raise UnreadableCheckpointError(f"{path} has {batch.num_rows} rows, its manifest says {rows}; {DAMAGED_REMEDY}")
    return batch


def _write(sink: pa.NativeFile, batch: pa.RecordBatch, options: pa.ipc.IpcWriteOptions = _WRITE) -> None:
    with pa.ipc.new_stream(sink, batch.schema, options=options) as writer:
        writer.write_batch(batch)
