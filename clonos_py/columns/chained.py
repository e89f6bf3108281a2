"""A running checksum over batches of rows: what a sink was given so far, as one number (F1)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import xxhash

from clonos_py.columns.compact import compact
from clonos_py.columns.views import concat

_GATHERED_ROWS = 8_192
"""So many rows are summed up together: a sum costs some 50 us besides the work for each byte."""


class RunningChecksum:
    """The checksum of all rows added. Rows are gathered until there are enough of them, or until ``settle``: the value
    depends on where that was called, and not on the batches between."""

    def __init__(self, value: int = 0) -> None:
        self._settled = value
        self._gathered: list[pa.RecordBatch] = []
        self._gathered_rows = 0

    def add(self, rows: pa.RecordBatch) -> None:
        self._gathered.append(rows)
        self._gathered_rows += rows.num_rows
        if self._gathered_rows >= _GATHERED_ROWS:
            self.settle()

    def settle(self) -> None:
        """The value is stored now, and a checksum that begins with it goes on from here."""
        self._settled = self.value
        self._gathered, self._gathered_rows = [], 0

    @property
    def value(self) -> int:
        return chained(self._settled, concat(self._gathered)) if self._gathered else self._settled


def chained(last: int, rows: pa.RecordBatch) -> int:
    """The checksum (64 bits) after these rows. ``last``: the one before them, 0 at the start.

    It is equal for equal rows in the same order and the same batch, whatever their buffers hold besides: neighbours of
    a slice, a validity buffer without nulls, or values in the place of nulls. Names do not count. It may be stored.
    """
    found = xxhash.xxh3_64(last.to_bytes(8, "little"))
    for number, part in _parts(rows):
        found.update(number.to_bytes(4, "little", signed=True))
        found.update(compact(part).serialize())
    return found.intdigest()


def _parts(rows: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The columns without nulls together. Then of each other one, with its number: where it has values, and these."""
    columns: list[Any] = [_bytes(column) for column in rows.columns]
    dense = [column for column in columns if not column.null_count]
    yield -1, _batch(rows.num_rows, dense)
    for number, column in enumerate(columns):
        if column.null_count:
            yield number, _batch(len(column), [_bytes(column.is_valid())])
            values = column.drop_null()
            yield number, _batch(len(values), [values])


def _batch(row_count: int, columns: list[Any]) -> pa.RecordBatch:
    if not columns:
        return pa.RecordBatch.from_arrays([pa.array([row_count], pa.int64())], names=["rows"])
    return pa.RecordBatch.from_arrays(columns, names=[str(number) for number in range(len(columns))])


def _bytes(column: Any) -> Any:
    """Booleans as bytes: the unused bits of their last byte may be anything."""
    return column.cast(pa.uint8()) if pa.types.is_boolean(column.type) else column
