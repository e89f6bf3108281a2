"""Compact batches: their buffers hold their own rows and nothing else.

When Arrow serializes a slice, it includes neighbouring bytes of the buffer as padding. So a slice and a copy of the
same rows have equal values, but different bytes. Bytes that are compared, such as those of frame checksums, must come
from compact batches (D12).
"""

from __future__ import annotations

import struct

import pyarrow as pa
import xxhash

from clonos_py.columns.page_samples import sample
from clonos_py.columns.views import Column

_COLUMN_BYTES = 32 << 10
"""Batches with fewer bytes per column on average are copied unchecked, as a check takes 4 us per column."""
_NUMBERS = (
    *(pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()),
    *(pa.float16(), pa.float32(), pa.float64(), pa.date32(), pa.date64(), pa.time32("s"), pa.time64("us")),
    *(pa.timestamp("us"), pa.duration("us"), pa.decimal128(1), pa.decimal256(1)),
)
VALUE_BYTES = {kind.id: kind.bit_width // 8 for kind in _NUMBERS}
"""By id of a type of fixed width: the bytes of a value."""
_OFFSETS = {
    kind.id: struct.Struct(form)
    for form, kinds in (("<i", (pa.string(), pa.binary())), ("<q", (pa.large_string(), pa.large_binary())))
    for kind in kinds
}


def compact(rows: pa.RecordBatch) -> pa.RecordBatch:
    """The same rows. Columns whose buffers may hold more than these rows are copied."""
    if rows.get_total_buffer_size() < rows.num_columns * _COLUMN_BYTES:
        copy: pa.RecordBatch = pa.concat_batches([rows])  # type: ignore[attr-defined]
        return copy
    columns = rows.columns
    copied = [column if _is_compact(column) else pa.concat_arrays([column]) for column in columns]
    if all(new is old for new, old in zip(copied, columns, strict=True)):
        return rows
    return pa.RecordBatch.from_arrays(copied, schema=rows.schema)


def checksum(rows: pa.RecordBatch) -> int:
    """A checksum of 64 bits: equal for equal rows in the same order."""
    return xxhash.xxh3_64_intdigest(compact(rows).serialize())


def sampled_checksum(rows: pa.RecordBatch) -> int:
    """As ``checksum``, but of a sample of the pages of each column. Most columns are read where they lie, so that
    nothing but the sample is copied."""
    hashed = xxhash.xxh3_64(seed=rows.num_rows)
    for column in rows.columns:
        for buffer in _exact_buffers(column):
            for part in sample(buffer):
                hashed.update(part)
    return hashed.intdigest()


def _exact_buffers(column: Column) -> list[pa.Buffer]:
    """The bytes of a column, which its values alone decide."""
    if len(column) and not column.null_count:
        if (width := VALUE_BYTES.get(column.type.id)) is not None:
            values = column.buffers()[1]
            assert values is not None
            return [values.slice(column.offset * width, len(column) * width)]
        if (offset := _OFFSETS.get(column.type.id)) is not None:
            return _exact_texts(column, offset)
    return [compact(pa.RecordBatch.from_arrays([column], names=[""])).serialize()]


def _exact_texts(column: Column, offset: struct.Struct) -> list[pa.Buffer]:
    _, offsets, texts = column.buffers()
    assert offsets is not None
    bounds = column.offset, column.offset + len(column)
    begin, end = (offset.unpack_from(offsets, bound * offset.size)[0] for bound in bounds)
    if begin:
        return _exact_texts(pa.concat_arrays([column]), offset)
    own = offsets.slice(column.offset * offset.size, (len(column) + 1) * offset.size)
    return [own] if texts is None else [own, texts.slice(0, end)]


def _is_compact(column: Column) -> bool:
    """Whether the buffers hold exactly these values; False if undecidable, as for booleans and nested columns."""
    if column.offset or not len(column):
        return False
    kind = column.type.id
    if (width := VALUE_BYTES.get(kind)) is not None:
        values = column.buffers()[1]
        return values is not None and values.size == len(column) * width
    if (offset := _OFFSETS.get(kind)) is not None:
        _, offsets, text = column.buffers()
        if offsets is None or offsets.size != (len(column) + 1) * offset.size:
            return False
        (end,) = offset.unpack_from(offsets, len(column) * offset.size)
        return bool(end == (0 if text is None else text.size))
    return False
