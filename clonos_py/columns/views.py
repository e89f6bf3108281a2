"""Views of Arrow arrays in numpy: raw values and validity, without copies where Arrow allows it.

All kernels in this package build on these two. The value at a null is undefined.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

if TYPE_CHECKING:
    Column = pa.Array[Any]
else:
    Column = pa.Array

Bools = npt.NDArray[np.bool_]
Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]

_SIGNED = {8: np.int8, 16: np.int16, 32: np.int32, 64: np.int64}
_LARGE = (pa.types.is_large_string, pa.types.is_large_binary, pa.types.is_large_list)


def plain_type(kind: Any) -> Any:
    """The type of the values, whether a dictionary encodes them or not."""
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def plain(array: Column) -> Column:
    """The array without extension types and dictionaries, which do not change its values."""
    while True:
        if isinstance(array, pa.ExtensionArray):
            array = array.storage
        elif isinstance(array, pa.DictionaryArray):
            array = array.dictionary_decode()
        else:
            return array


def valid(array: Column) -> Bools | None:
    """The validity mask: True where the array has a value; None if it has no nulls."""
    if array.null_count == 0:
        return None
    mask: Bools = array.is_valid().to_numpy(zero_copy_only=False)
    return mask


def has_fixed_values(data_type: pa.DataType) -> bool:
    """Whether ``fixed`` supports arrays of this type: integers, floats and all types stored as integers."""
    return (pa.types.is_primitive(data_type) and not pa.types.is_boolean(data_type)) and data_type.bit_width <= 64


def is_integral(data_type: pa.DataType) -> bool:
    """Whether values are stored as integers of at most 64 bits: integers, timestamps, dates, times, durations."""
    return has_fixed_values(data_type) and not pa.types.is_floating(data_type) and not pa.types.is_decimal(data_type)


def fixed(array: Column) -> npt.NDArray[Any]:
    """The values of a fixed-width array in place: floats as floats, unsigned as unsigned, the rest as signed."""
    kind = array.type
    if pa.types.is_floating(kind) or pa.types.is_unsigned_integer(kind):
        dtype = np.dtype(kind.to_pandas_dtype())
    else:
        dtype = np.dtype(_SIGNED[kind.bit_width])
    return raw(array, dtype)


def raw(array: Column, dtype: np.dtype[Any] | type[Any], items: int = 1) -> npt.NDArray[Any]:
    """The data buffer of a fixed-width array, or of its slice, as ``dtype``, with ``items`` elements per row."""
    buffer = array.buffers()[1]
    if buffer is None or len(array) == 0:
        return np.zeros(len(array) * items, dtype)
    start = array.offset * items * np.dtype(dtype).itemsize
    return np.frombuffer(memoryview(buffer), dtype, len(array) * items, start)


def offsets(array: Column) -> Ints:
    """The offsets of a string, binary or list array: the start of each value, and the end of the last one."""
    large = any(is_large(array.type) for is_large in _LARGE)
    dtype: np.dtype[Any] = np.dtype(np.int64 if large else np.int32)
    buffer = array.buffers()[1]
    if buffer is None or len(array) == 0:
        return np.zeros(len(array) + 1, np.int64)
    found = np.frombuffer(memoryview(buffer), dtype, len(array) + 1, array.offset * dtype.itemsize)
    return found.astype(np.int64, copy=False)


def texts(array: Column) -> tuple[Ints, Bytes]:
    """The offsets of a string or binary array, from 0, and the bytes of its values, including those under nulls."""
    bounds = offsets(array)
    found = np.frombuffer(memoryview(array.buffers()[2] or b""), np.uint8)[bounds[0] : bounds[-1]]
    return bounds - bounds[0], found


def is_one_text(array: Column) -> bool:
    """Whether all values of a non-empty array are the same text, as a date is in most batches. If the first and the
    last value differ, the others are not compared."""
    if len(array) == 0 or not (pa.types.is_string(array.type) or pa.types.is_large_string(array.type)):
        return False
    if array.null_count or not array[0].equals(array[len(array) - 1]):
        return False
    bounds, text = texts(array)
    size = int(bounds[1])
    if not size:
        return not len(text)
    return bool((np.diff(bounds) == size).all() and (text[size:] == text[:-size]).all())


def take(array: Column, rows: Ints) -> Any:
    """The values at ``rows``, in that order."""
    return array.take(pa.array(rows, pa.int64()))


def concat(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """Concatenates at least one batch into one."""
    if len(batches) == 1:
        return batches[0]
    whole: pa.RecordBatch = pa.concat_batches(batches)  # type: ignore[attr-defined]
    return whole
