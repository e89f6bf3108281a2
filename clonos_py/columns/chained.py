"""A running checksum over batches of rows: what a sink was given so far, as one number (F1)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import xxhash

from clonos_py.columns.compact import VALUE_BYTES, compact
from clonos_py.columns.views import Column, concat, offsets

_TEXTS = frozenset({pa.string().id, pa.binary().id, pa.large_string().id, pa.large_binary().id})
_LISTS = frozenset({pa.list_(pa.null()).id, pa.large_list(pa.null()).id})
_STRUCT = pa.struct([]).id
_BOOLEAN = pa.bool_().id
_BUFFERS = {**dict.fromkeys(VALUE_BYTES, 2), _BOOLEAN: 2, **dict.fromkeys(_TEXTS, 3)}
"""By id of a type that is not nested: how many buffers an array has."""


_SMALL_ROWS = 4_096
"""Smaller batches are put together first: a sum costs some 10 us besides the work for each byte."""
_SMALL_PLAIN_ROWS = 512
"""The same where all values have a fixed width: there a sum costs 3 us, and less than the copy."""
_GATHERED_ROWS = 8_192


class RunningChecksum:
    """The checksum of all rows added. Columns are summed up on their own, value by value: the sum depends on where
    ``settle`` was called, and not on the batches between. Large batches are not copied.

    Of the few types that cannot be taken apart (maps, dictionaries), batches count."""

    def __init__(self, value: int = 0) -> None:
        self._settled = value
        self._rows = 0
        self._columns: list[_ColumnSum] = []
        self._small: list[pa.RecordBatch] = []
        self._small_rows = 0
        self._direct_rows = 0
        """Batches with fewer rows are put together first."""

    def add(self, rows: pa.RecordBatch) -> None:
        if not self._columns:
            self._begin(rows.schema)
        if rows.num_rows < self._direct_rows:
            self._small.append(rows)
            self._small_rows += rows.num_rows
            if self._small_rows >= _GATHERED_ROWS:
                self._add_small()
        else:
            self._add_small()
            self._add(rows)

    def _begin(self, schema: pa.Schema) -> None:
        self._columns = list(_sums_of(schema))
        plain = all(column.place is not None for column in self._columns)
        self._direct_rows = _SMALL_PLAIN_ROWS if plain else _SMALL_ROWS

    def _add_small(self) -> None:
        if self._small:
            self._add(concat(self._small))
            self._small, self._small_rows = [], 0

    def _add(self, rows: pa.RecordBatch) -> None:
        if not self._columns:
            self._begin(rows.schema)
        count = rows.num_rows
        buffers = rows.to_struct_array().buffers() if self._columns else []
        for number, column in enumerate(self._columns):
            place = column.place
            values = buffers[place + 1] if place is not None and buffers[place] is None else None
            if values is not None and values.size == count * column.width:  # it holds the values, and nothing besides
                column.values.update(values)
                column.count += count
            else:
                column.add(rows.column(number))
        self._rows += count

    def settle(self) -> None:
        """The value is stored now, and a checksum that begins with it goes on from here."""
        self._settled = self.value
        self._rows, self._columns = 0, []

    @property
    def value(self) -> int:
        self._add_small()
        return self._sum() if self._rows else self._settled

    def _sum(self) -> int:
        found = xxhash.xxh3_64(self._settled.to_bytes(8, "little"))
        found.update(self._rows.to_bytes(8, "little"))
        for column in self._columns:
            found.update(column.digest())
        return found.intdigest()


def chained(last: int, rows: pa.RecordBatch) -> int:
    """The checksum (64 bits) after these rows. ``last``: the one before them, 0 at the start.

    It is equal for equal rows in the same order, whatever their buffers hold besides: neighbours of a slice, a validity
    buffer without nulls, or values in the place of nulls. Names do not count. It may be stored.
    """
    running = RunningChecksum(last)
    running._add(rows)
    return running._sum()


def _sums_of(schema: pa.Schema) -> Iterator[_ColumnSum]:
    """The sums of the columns of a batch."""
    place: int | None = 1  # the first buffer is that of the batch
    for kind in schema.types:
        width = VALUE_BYTES.get(kind.id, 0)
        yield _ColumnSum(place if width else None, width)
        place = place + _BUFFERS[kind.id] if place is not None and kind.id in _BUFFERS else None


class _ColumnSum:
    """The sum of one column: of its values, their lengths, the positions of nulls, and of what is nested in it."""

    __slots__ = ("_lengths", "_nested", "_nulls", "count", "place", "values", "width")

    def __init__(self, place: int | None = None, width: int = 0) -> None:
        """``place``: of the column's first buffer among those of its batch; None: unknown, or its values have no fixed
        width. ``width``: that width, in bytes."""
        self.place, self.width = place, width
        self.count = 0
        self.values = xxhash.xxh3_64()
        self._lengths = xxhash.xxh3_64()
        self._nulls = xxhash.xxh3_64()
        self._nested: list[_ColumnSum] = []

    def add(self, column: Column) -> None:
        begin, kind = self.count, column.type.id
        self.count += len(column)
        if column.null_count:
            places = np.flatnonzero(np.asarray(column.is_null())) + begin
            self._nulls.update(places.astype("<i8").data)
            column = column.drop_null()
        if not len(column):
            return
        if (width := VALUE_BYTES.get(kind)) is not None:
            values: Any = column.buffers()[1]
            self.values.update(values.slice(column.offset * width, len(column) * width))
        elif kind in _TEXTS:
            bounds = offsets(column)
            self._lengths.update(np.diff(bounds).astype("<i8").data)
            text = memoryview(column.buffers()[2] or b"")
            self.values.update(text[int(bounds[0]) : int(bounds[-1])])
        elif kind == _BOOLEAN:
            self.values.update(np.asarray(column.cast(pa.uint8())).data)
        else:
            self._add_nested(column, kind)

    def _add_nested(self, column: Any, kind: int) -> None:
        if kind == _STRUCT:
            parts = column.flatten()
        elif kind in _LISTS:
            self._lengths.update(np.asarray(column.value_lengths()).astype("<i8").data)
            parts = [column.flatten()]
        else:
            whole = compact(pa.RecordBatch.from_arrays([column], names=[""]))
            self.values.update(whole.serialize())
            parts = []
        if not self._nested:
            self._nested = [_ColumnSum() for _ in parts]
        for nested, part in zip(self._nested, parts, strict=True):
            nested.add(part)

    def digest(self) -> bytes:
        found = xxhash.xxh3_64(self.count.to_bytes(8, "little"))
        parts = [part.digest() for part in (self.values, self._lengths, self._nulls)]
        found.update(b"".join([*parts, *(nested.digest() for nested in self._nested)]))
        return found.digest()
