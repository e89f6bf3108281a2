"""Batches whose buffers hold their own rows and nothing else.

Arrow pads what it serializes with whatever follows in the buffer. So a slice has other bytes than the same rows by
themselves, although both have equal values. Bytes that are compared, as checksums of frames are, have to be of compact
batches (D12).
"""

from __future__ import annotations

import struct

import pyarrow as pa
import xxhash

from clonos_py.columns.views import Column

_COLUMN_BYTES = 32 << 10
"""Columns of less on average are copied sooner than looked at, which takes 4 us for each."""
_NUMBERS = (
    *(pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()),
    *(pa.float16(), pa.float32(), pa.float64(), pa.date32(), pa.date64(), pa.time32("s"), pa.time64("us")),
    *(pa.timestamp("us"), pa.duration("us"), pa.decimal128(1), pa.decimal256(1)),
)
_VALUE_BYTES = {kind.id: kind.bit_width // 8 for kind in _NUMBERS}
_OFFSETS = {
    kind.id: struct.Struct(form)
    for form, kinds in (("<i", (pa.string(), pa.binary())), ("<q", (pa.large_string(), pa.large_binary())))
    for kind in kinds
}


def compact(rows: pa.RecordBatch) -> pa.RecordBatch:
    """The same rows; what may hold more than these is copied."""
    if rows.get_total_buffer_size() < rows.num_columns * _COLUMN_BYTES:
        copy: pa.RecordBatch = pa.concat_batches([rows])  # type: ignore[attr-defined]
        return copy
    columns = rows.columns
    copied = [column if _is_compact(column) else pa.concat_arrays([column]) for column in columns]
    if all(new is old for new, old in zip(copied, columns, strict=True)):
        return rows
    return pa.RecordBatch.from_arrays(copied, schema=rows.schema)


def checksum(rows: pa.RecordBatch) -> int:
    """Of 64 bits: the same for equal rows in the same order."""
    return xxhash.xxh3_64_intdigest(compact(rows).serialize())


def _is_compact(column: Column) -> bool:
    """False where it is not known: booleans have a last byte, nested columns have children."""
    if column.offset or not len(column):
        return False
    kind = column.type.id
    if (width := _VALUE_BYTES.get(kind)) is not None:
        values = column.buffers()[1]
        return values is not None and values.size == len(column) * width
    if (offset := _OFFSETS.get(kind)) is not None:
        _, offsets, text = column.buffers()
        if offsets is None or offsets.size != (len(column) + 1) * offset.size:
            return False
        (end,) = offset.unpack_from(offsets, len(column) * offset.size)
        return bool(end == (0 if text is None else text.size))
    return False
