"""Rows of several batches put together in any order: by the kernels in ``kernels/gather.c``, or else by Arrow.

Both give the same bytes, also in the places of nulls: frames are compared by their bytes.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from clonos_py.columns.kernels.library import Library, check_rows, library, pointer
from clonos_py.columns.ordering import inverse
from clonos_py.columns.views import Column, Ints, Words, concat

_ROWS_FOR_EACH_CHUNK = 16
"""With fewer rows Arrow is faster: a kernel needs the addresses of all chunks."""
_WIDTHS = frozenset({8, 16, 32, 64, 128})
_TEXTS = frozenset({pa.string().id, pa.binary().id})
_BOOLEAN = pa.bool_().id
_MOST_BYTES = 2**31 - 1
"""Of the texts of one column."""


class ChunkColumns:
    """Where the columns of chunks lie, as kernels need it. Looking this up takes some microseconds for each column of
    each chunk, so it is kept as long as the same chunks are asked for again. The chunks of the last call are held: an
    owner that drops chunks calls ``forget``."""

    def __init__(self) -> None:
        self._chunks: list[pa.RecordBatch] = []
        self._parts: dict[str, list[_Part]] = {}

    def follow(self, chunks: Sequence[pa.RecordBatch]) -> None:
        """The next columns are those of these chunks. What is known of those that were at the same places is kept."""
        same = 0
        for one, other in zip(self._chunks, chunks, strict=False):
            if one is not other:
                break
            same += 1
        for parts in self._parts.values():
            del parts[same:]
        self._chunks[same:] = chunks[same:]

    def forget(self) -> None:
        """Holds no chunks any more."""
        self._chunks, self._parts = [], {}

    def of(self, name: str) -> Sequence[_Part]:
        """The parts of a column, one of each chunk."""
        parts = self._parts.setdefault(name, [])
        parts.extend(_part(chunk.column(name)) for chunk in self._chunks[len(parts) :])
        return parts


class _Part(NamedTuple):
    """Where a column of a chunk lies. An address is 0 if there is no such buffer."""

    rows: int
    """The number of the first row in the buffers."""
    has_nulls: bool
    validity: int
    """The address of the bitmap, if the column has nulls."""
    values: int
    """The address of the first buffer after it: of values, of the offsets of texts, or of a bitmap."""
    texts: int
    texts_bytes: int


def _part(column: Column) -> _Part:
    buffers = [(0, 0) if buffer is None else (buffer.address, buffer.size) for buffer in column.buffers()]
    texts, texts_bytes = buffers[2] if len(buffers) > 2 else (0, 0)
    has_nulls = column.null_count > 0
    return _Part(column.offset, has_nulls, buffers[0][0] if has_nulls else 0, buffers[1][0], texts, texts_bytes)


def gathered(
    chunks: Sequence[pa.RecordBatch],
    starts: Ints,
    numbers: Ints,
    columns: Sequence[str] | None = None,
    known: ChunkColumns | None = None,
) -> pa.RecordBatch:
    """The rows with these numbers, in this order, with all columns or the named ones; one that is named twice is there
    once. At least one chunk is required; ``starts`` has the number of each one's first row, then that of all rows.
    ``known``: of earlier calls with some of these chunks."""
    native = library()
    if native is None or not len(numbers) or len(numbers) < _ROWS_FOR_EACH_CHUNK * len(chunks):
        return taken(chunks, starts, numbers, columns)
    schema = _selected(chunks[0], columns).schema
    copied = [field.name for field in schema if _is_known(field.type)]
    if not copied:
        return taken(chunks, starts, numbers, columns)
    lying = ChunkColumns() if known is None else known
    lying.follow(chunks)
    rows = _Gathering(native, starts, numbers, len(chunks))
    found: dict[str, Any] = {name: rows.column(schema.field(name).type, lying.of(name)) for name in copied}
    others = [name for name in schema.names if found.get(name) is None]
    if others:
        found.update(zip(others, taken(chunks, starts, numbers, others).columns, strict=True))
    return pa.RecordBatch.from_arrays([found[name] for name in schema.names], schema=schema)


def taken(
    chunks: Sequence[pa.RecordBatch], starts: Ints, numbers: Ints, columns: Sequence[str] | None = None
) -> pa.RecordBatch:
    """The reference of the kernels: the same rows by Arrow."""
    if not len(numbers):
        return _selected(chunks[0], columns).slice(0, 0)
    owners = starts.searchsorted(numbers, side="right") - 1
    first = int(owners[0])
    if (owners == first).all():
        return _selected(chunks[first], columns).take(numbers - starts[first])
    order = owners.argsort(kind="stable")
    owners, numbers = owners[order], numbers[order]
    cuts = [0, *((owners[1:] != owners[:-1]).nonzero()[0] + 1).tolist(), len(numbers)]
    pieces: list[pa.RecordBatch] = []
    for low, high in itertools.pairwise(cuts):
        chunk = int(owners[low])
        pieces.append(_selected(chunks[chunk], columns).take(numbers[low:high] - starts[chunk]))
    return concat(pieces).take(inverse(order))


def _selected(rows: pa.RecordBatch, columns: Sequence[str] | None) -> pa.RecordBatch:
    return rows if columns is None else rows.select(list(dict.fromkeys(columns)))


def _is_known(kind: pa.DataType) -> bool:
    """Whether the kernels copy values of this type."""
    if isinstance(kind, pa.BaseExtensionType | pa.DictionaryType):
        return False
    if kind.id in _TEXTS or kind.id == _BOOLEAN:
        return True
    return (pa.types.is_primitive(kind) or pa.types.is_decimal128(kind)) and kind.bit_width in _WIDTHS


class _Written:
    """Memory of Arrow that a kernel writes: ``whole`` as a buffer, ``values`` as bytes."""

    def __init__(self, size: int) -> None:
        self.whole = pa.allocate_buffer(size)
        self.values = np.frombuffer(memoryview(self.whole), np.uint8)
        self.address = int(self.whole.address)


def _address(written: _Written | None) -> int | None:
    return None if written is None else written.address


class _Gathering:
    """One selection of rows, for all columns."""

    def __init__(self, native: Library, starts: Ints, numbers: Ints, chunks: int) -> None:
        self._native = native.of(len(numbers))
        self._count = len(numbers)
        check_rows(int(starts[-1]))
        numbers, starts = np.ascontiguousarray(numbers, np.int64), np.ascontiguousarray(starts, np.int64)
        places = np.empty(self._count, np.uint64)
        given = pointer(starts, np.int64, chunks + 1), chunks, pointer(numbers, np.int64, 0), self._count
        found = self._native.clonos_places(*given, pointer(places, np.uint64, 0))
        if found < self._count:
            raise IndexError(f"there is no row {numbers[found]}: there are {starts[-1]}")
        self._kept_alive = places
        self._places = pointer(places, np.uint64, 0)

    def column(self, kind: Any, parts: Sequence[_Part]) -> Any | None:
        """The values of a column of this type. None if there are more bytes of text than an array holds."""
        valid: _Written | None = None
        nulls = 0
        if any(part.has_nulls for part in parts):
            valid, nulls = self._bits((part.validity for part in parts), parts)
        validity = valid.whole if valid is not None and nulls else None
        if kind.id in _TEXTS:
            texts = self._texts(parts, valid)
            return None if texts is None else pa.Array.from_buffers(kind, self._count, [validity, *texts], nulls)
        if kind.id == _BOOLEAN:
            values, _ = self._bits((part.values for part in parts), parts)
            if valid is not None:
                values.values &= valid.values
        else:
            values = self._values(parts, valid, kind.bit_width // 8)
        return pa.Array.from_buffers(kind, self._count, [validity, values.whole], nulls)

    def _bits(self, bitmaps: Iterable[int], parts: Sequence[_Part]) -> tuple[_Written, int]:
        """A bitmap, and how many of its bits are not set."""
        bits = _Written((self._count + 7) // 8)
        bits.values[:] = 0
        first = np.array([part.rows for part in parts], np.int64)
        addresses = _addresses(bitmaps)
        given = pointer(addresses, np.uint64, 0), pointer(first, np.int64, 0), self._places, self._count
        zeros: int = self._native.clonos_gather_bits(*given, bits.address)
        return bits, zeros

    def _values(self, parts: Sequence[_Part], valid: _Written | None, width: int) -> _Written:
        values = _Written(self._count * width)
        addresses = _addresses(part.values + part.rows * width for part in parts)
        given = pointer(addresses, np.uint64, 0), self._places, self._count, _address(valid), width
        copied = self._native.clonos_gather_values(*given, values.address)
        assert copied == 0, width
        return values

    def _texts(self, parts: Sequence[_Part], valid: _Written | None) -> list[Any] | None:
        """The buffers of offsets and of bytes."""
        bounds = _Written((self._count + 1) * 4)
        offsets = _addresses(part.values + part.rows * 4 for part in parts)
        sizes = np.array([part.texts_bytes for part in parts], np.int64)
        where = pointer(offsets, np.uint64, 0)
        given = where, pointer(sizes, np.int64, 0), self._places, self._count, _address(valid)
        total = self._native.clonos_gather_bounds(*given, bounds.address)
        if total < 0:
            raise ValueError("a text of a column does not lie in the column's bytes")
        if total > _MOST_BYTES:
            return None
        texts = _Written(total)
        addresses = _addresses(part.texts for part in parts)
        given_bytes = where, pointer(addresses, np.uint64, 0), self._places, self._count, bounds.address
        self._native.clonos_gather_bytes(*given_bytes, texts.address)
        return [bounds.whole, texts.whole]


def _addresses(found: Iterable[int]) -> Words:
    return np.array(list(found), np.uint64)
