"""Columns to which values are appended, and whose values are taken by position.

An Arrow array cannot grow, and taking from many small ones is slow. Values of up to 128 bits lie in one numpy array
here, which doubles when it is full. Others, such as text and lists, lie in Arrow arrays, of which neighbours of similar
size are merged.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from clonos_py.columns.ordering import inverse
from clonos_py.columns.views import Bools, Column, Ints, valid

_RAW = {8: np.int8, 16: np.int16, 32: np.int32, 64: np.int64, 128: np.complex128}
"""By width in bits, a type whose values numpy copies without a look at them."""


class GrowingArray:
    """Values of one numpy type."""

    def __init__(self, dtype: npt.DTypeLike) -> None:
        self._values: npt.NDArray[Any] = np.empty(16, dtype)
        self._count = 0

    def append(self, values: npt.NDArray[Any]) -> None:
        end = self._count + len(values)
        if end > len(self._values):
            grown = np.empty(max(2 * len(self._values), end), self._values.dtype)
            grown[: self._count] = self._values[: self._count]
            self._values = grown
        self._values[self._count : end] = values
        self._count = end

    @property
    def values(self) -> npt.NDArray[Any]:
        """All values, as a view."""
        return self._values[: self._count]


class GrowingRows:
    """Rows of named columns."""

    def __init__(self) -> None:
        self._columns: dict[str, _Fixed | _Chunked] = {}

    def append(self, columns: Mapping[str, Column]) -> None:
        for name, column in columns.items():
            if name not in self._columns:
                self._columns[name] = _Fixed(column.type) if _is_fixed(column.type) else _Chunked()
            self._columns[name].append(column)

    def take(self, positions: Ints) -> dict[str, Column]:
        return {name: column.take(positions) for name, column in self._columns.items()}


def _is_fixed(kind: pa.DataType) -> bool:
    return pa.types.is_primitive(kind) and not pa.types.is_boolean(kind) and kind.bit_width in _RAW


class _Fixed:
    def __init__(self, kind: pa.DataType) -> None:
        self._kind = kind
        self._dtype = np.dtype(_RAW[kind.bit_width])
        self._values = GrowingArray(self._dtype)
        self._valid: GrowingArray | None = None
        """None: no value so far is null."""

    def append(self, column: Any) -> None:
        mask = valid(column)
        if mask is not None and self._valid is None:
            self._valid = GrowingArray(bool)
            self._valid.append(np.ones(len(self._values.values), bool))
        if self._valid is not None:
            self._valid.append(np.ones(len(column), bool) if mask is None else mask)
        start = column.offset * self._dtype.itemsize
        data = column.buffers()[1]
        self._values.append(
            np.frombuffer(data, self._dtype, len(column), start) if len(column) else np.empty(0, self._dtype)
        )

    def take(self, positions: Ints) -> Any:
        mask: Bools | None = None if self._valid is None else self._valid.values[positions]
        parts: list[Any] = [
            None if mask is None else np.packbits(mask, bitorder="little"),
            self._values.values[positions],
        ]
        buffers = [None if part is None else pa.py_buffer(part) for part in parts]
        return pa.Array.from_buffers(self._kind, len(positions), buffers)


class _Chunked:
    def __init__(self) -> None:
        self._chunks: list[Any] = []

    def append(self, column: Any) -> None:
        while self._chunks and len(self._chunks[-1]) < 2 * len(column):
            column = pa.concat_arrays([self._chunks.pop(), column])
        self._chunks.append(column)

    def take(self, positions: Ints) -> Any:
        starts = np.cumsum([0, *(len(chunk) for chunk in self._chunks)])
        owners = starts.searchsorted(positions, side="right") - 1
        order = owners.argsort(kind="stable")
        bounds = owners[order].searchsorted(np.arange(len(self._chunks) + 1))
        parts = [
            chunk.take(pa.array(positions[order[low:high]] - start))
            for chunk, start, low, high in zip(self._chunks, starts[:-1], bounds[:-1], bounds[1:], strict=True)
        ]
        return pa.concat_arrays(parts).take(pa.array(inverse(order)))
