"""What differs between the rows that a sink got before and after a change, as multisets (F3).

Rows that both sides have are dropped while they come, so that memory holds the differences, and rows whose other side
has not come yet. Rows are compared by 64-bit digests of the columns that both sides have.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from clonos_py.columns.digest import row_digests
from clonos_py.columns.views import Words
from clonos_py.model.hidden import is_hidden

BEFORE, AFTER = 0, 1
_GATHERED_ROWS = 131_072


@dataclass(frozen=True)
class SinkDifferences:
    """The differences of one sink. Tables have its rows; those of ``changed`` belong together row by row."""

    name: str
    keys: tuple[str, ...]
    before: int
    """The number of rows that it got from the recorded code."""
    after: int
    """The number of rows that it got from the changed code."""
    only_before: pa.Table
    only_after: pa.Table
    changed: tuple[pa.Table, pa.Table]
    """Rows of the same key with other values, before and after."""
    columns: tuple[str, ...]
    """Columns that only one side has, each with ``+`` or ``-`` before its name."""

    @property
    def equal(self) -> int:
        """The number of rows that both sides have."""
        return self.before - self.only_before.num_rows - self.changed[BEFORE].num_rows

    @property
    def differs(self) -> bool:
        tables = (self.only_before, self.only_after, self.changed[BEFORE])
        return any(table.num_rows for table in tables) or bool(self.columns)


class _Side:
    def __init__(self) -> None:
        self.schema: pa.Schema | None = None
        self.count = 0
        self.batches: list[pa.RecordBatch] = []

    def add(self, rows: pa.RecordBatch) -> None:
        self.schema = rows.schema
        self.count += rows.num_rows
        self.batches.append(rows)


class RowComparison:
    """Compares the rows of one sink."""

    def __init__(self, name: str, schemas: Sequence[pa.Schema | None], keys: Sequence[str] = ()) -> None:
        """``schemas``: of the rows before and after; None: that side does not have the sink. ``keys``: the columns that
        two versions of one row have in common."""
        self.name, self._keys = name, tuple(keys)
        self._schemas = [_shown(schema) for schema in schemas]
        self._sides = _Side(), _Side()
        before, after = self._schemas
        self._common = [name for name in before if name in after] if before and after else [*before, *after]
        self._given, self._next = 0, _GATHERED_ROWS

    def add(self, side: int, rows: pa.RecordBatch) -> None:
        """The sink got rows. ``side``: BEFORE or AFTER."""
        self._sides[side].add(rows)
        self._given += rows.num_rows
        if self._given >= self._next:
            self._drop_equal()
            left = sum(batch.num_rows for side in self._sides for batch in side.batches)
            self._next = self._given + max(_GATHERED_ROWS, left)

    def _drop_equal(self) -> None:
        """Keeps of each digest the rows that one side has more of."""
        found = [_digests([batch.select(self._common) for batch in side.batches]) for side in self._sides]
        distinct, numbers = np.unique(np.concatenate(found), return_inverse=True)
        parts = np.split(numbers, [len(found[BEFORE])])
        equal = np.minimum(*(np.bincount(part, minlength=len(distinct)) for part in parts))
        for side, part in zip(self._sides, parts, strict=True):
            kept = _ranks(part) >= equal[part]
            side.batches = _filtered(side.batches, kept) if kept.any() else []

    def result(self) -> SinkDifferences:
        """The differences. Rows of equal keys are paired in the order in which they came."""
        self._drop_equal()
        before, after = (self._rows(number) for number in (BEFORE, AFTER))
        first, second = self._paired(before, after)
        return SinkDifferences(
            self.name,
            self._keys,
            self._sides[BEFORE].count,
            self._sides[AFTER].count,
            only_before=_without(before, first),
            only_after=_without(after, second),
            changed=(before.take(first), after.take(second)),
            columns=tuple(self._changed_columns()),
        )

    def _paired(self, before: pa.Table, after: pa.Table) -> tuple[Any, Any]:
        """The numbers of the rows before and after that have the same key."""
        if not self._keys or not before.num_rows or not after.num_rows:
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        keys = [_digests(table.select(self._keys).to_batches()) for table in (before, after)]
        _, numbers = np.unique(np.concatenate(keys), return_inverse=True)
        parts = np.split(numbers, [before.num_rows])
        ranks = [_ranks(part) for part in parts]
        most = 1 + max(int(rank.max()) for rank in ranks)
        old, new = (part * most + rank for part, rank in zip(parts, ranks, strict=True))
        _, first, second = np.intersect1d(old, new, assume_unique=True, return_indices=True)
        order = np.argsort(first)
        return first[order], second[order]

    def _changed_columns(self) -> Iterator[str]:
        before, after = self._schemas
        if before and after:
            yield from (f"-{name}" for name in before if name not in after)
            yield from (f"+{name}" for name in after if name not in before)

    def _rows(self, number: int) -> pa.Table:
        side, names = self._sides[number], self._schemas[number]
        if side.schema is None:
            return pa.table({name: pa.array([], pa.null()) for name in names})
        return pa.Table.from_batches(side.batches, side.schema).select(names)


def _without(table: pa.Table, numbers: Any) -> pa.Table:
    kept = np.ones(table.num_rows, bool)
    kept[numbers] = False
    return table.filter(pa.array(kept))


def _digests(batches: Sequence[pa.RecordBatch]) -> Words:
    parts = [row_digests(batch) for batch in batches if batch.num_rows]
    return np.concatenate(parts) if parts else np.zeros(0, np.uint64)


def _shown(schema: pa.Schema | None) -> list[str]:
    return [] if schema is None else [name for name in schema.names if not is_hidden(name)]


def _ranks(numbers: Any) -> Any:
    """Of each element, how many equal ones precede it."""
    order = np.argsort(numbers, kind="stable")
    ordered = numbers[order]
    begins = np.r_[True, ordered[1:] != ordered[:-1]] if len(ordered) else np.zeros(0, bool)
    positions = np.arange(len(ordered))
    starts = np.maximum.accumulate(np.where(begins, positions, 0)) if len(ordered) else positions
    found = np.empty(len(ordered), np.int64)
    found[order] = positions - starts
    return found


def _filtered(batches: Sequence[pa.RecordBatch], mask: Any) -> list[pa.RecordBatch]:
    found: list[pa.RecordBatch] = pa.Table.from_batches(batches).filter(pa.array(mask)).combine_chunks().to_batches()
    return found
