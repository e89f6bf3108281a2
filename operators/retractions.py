"""Aggregates of a table that cannot take a value back by themselves: for these, the values of each key are kept.

Distinct values and extremes keep each value of a key once, with the number of rows that have it. Extremes are the first
of these in order, so a batch costs time in its own size, not in that of its keys. A fold of the user keeps the rows,
and is computed again for the keys of a batch.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from clonos_py.columns.grouping import Groups, group
from clonos_py.columns.views import Ints, fixed, plain, plain_type, take, valid
from clonos_py.model.aggregates import Aggregate, accumulator_name
from clonos_py.model.hidden import hidden, is_hidden
from clonos_py.model.state import OperatorState, united
from clonos_py.model.tables import WEIGHT_COLUMN, SortKey
from clonos_py.operators.aggregation import accumulator_type, accumulators_of, started
from clonos_py.operators.keyed_chunks import with_groups
from clonos_py.operators.keyed_rows import KeyedRows
from clonos_py.operators.ranked_rows import RankedRows
from clonos_py.operators.upserts import put_rows
from clonos_py.operators.weighted_rows import WeightedRows, summed
from clonos_py.operators.weights import last_of_each

_VALUE = hidden("value")
"""Column of the state: a value of a key."""
_COUNT = hidden("rows of value")
"""int64 column of the state: how many rows of the key have it."""
_OWNER = hidden("owner")


class Replaced(NamedTuple):
    """New values of an accumulator, ``name``, in the partial rows with these numbers. ``differences``: they are added
    to those before."""

    name: str
    rows: Ints
    values: Any
    differences: bool = False


class Deltas(NamedTuple):
    """Deltas of a batch, and the partial rows of their keys. ``owners``: by delta, the number of its partial row."""

    rows: pa.RecordBatch
    partial: pa.RecordBatch
    owners: Ints
    key_groups: int


class Retractions:
    """The aggregates that keep values. ``table_keys``: the columns that identify a row of the table; needed for folds
    of the user."""

    def __init__(self, keys: Sequence[str], aggregates: Sequence[Aggregate], table_keys: Sequence[str] = ()) -> None:
        self._keys = tuple(keys)
        self._kept = [_kept(self._keys, a, tuple(table_keys)) for a in aggregates if not a.retractable]

    @property
    def none(self) -> bool:
        """Whether there are none."""
        return not self._kept

    def changed(self, rows: pa.RecordBatch, partial: pa.RecordBatch, key_groups: int) -> list[Replaced]:
        """Takes the deltas that ``partial`` was made of. Returns the accumulators that they change."""
        if self.none:
            return []
        deltas = self._deltas(rows, partial, key_groups)
        return [kept.changed(deltas) for kept in self._kept]

    def fields(self, rows: pa.Schema) -> list[Any]:
        """The accumulators that partial rows of these rows get."""
        return [pa.field(kept.accumulator, kept.accumulator_type(rows)) for kept in self._kept]

    def tables(self, rows: pa.Schema) -> Mapping[str, pa.Schema]:
        empty = pa.RecordBatch.from_pylist([], schema=rows)
        deltas = self._deltas(empty, empty, 1)
        return {kept.table: kept.stored_schema(deltas) for kept in self._kept}

    def snapshot(self) -> OperatorState:
        return united(*(kept.rows.snapshot({}) for kept in self._kept))

    def restore(self, parts: Sequence[OperatorState], groups: range) -> None:
        for kept in self._kept:
            kept.restore(parts, groups)

    def _deltas(self, rows: pa.RecordBatch, partial: pa.RecordBatch, key_groups: int) -> Deltas:
        keys = [pa.concat_arrays([plain(partial.column(key)), plain(rows.column(key))]) for key in self._keys]
        groups = group(keys, partial.num_rows + rows.num_rows)
        numbers = np.empty(groups.size, np.int64)
        numbers[groups.ids[: partial.num_rows]] = np.arange(partial.num_rows)
        return Deltas(rows, partial, numbers[groups.ids[partial.num_rows :]], key_groups)


def replaced(partial: pa.RecordBatch, accumulators: Sequence[Replaced]) -> pa.RecordBatch:
    """The partial rows with other accumulators, or with these in addition."""
    for name, rows, values, _ in accumulators:
        index = partial.schema.get_field_index(name)
        before = pa.nulls(partial.num_rows, values.type) if index < 0 else partial.column(index)
        choice = np.arange(partial.num_rows)
        choice[rows] = partial.num_rows + np.arange(len(rows))
        column = take(pa.concat_arrays([before, values]), choice)
        partial = partial.append_column(name, column) if index < 0 else partial.set_column(index, name, column)
    return partial


class _Kept(ABC):
    """What is kept for one aggregate."""

    def __init__(self, keys: tuple[str, ...], aggregate: Aggregate) -> None:
        self.keys = keys
        self.aggregate = aggregate
        self.table = f"values of {aggregate.name}"
        kind = "count" if aggregate.function == "count_distinct" else aggregate.function
        self.accumulator = accumulator_name(aggregate.name, kind)

    def accumulator_type(self, rows: pa.Schema) -> pa.DataType:
        """The type of the accumulator, for rows with these columns."""
        column = self.aggregate.column
        if self.aggregate.function == "count_distinct":
            return pa.int64()
        assert column is not None
        found: pa.DataType = plain_type(rows.field(column).type)
        return found

    @property
    @abstractmethod
    def rows(self) -> KeyedRows:
        """What is stored."""

    @abstractmethod
    def changed(self, deltas: Deltas) -> Replaced:
        """Takes deltas, and returns the accumulators that they change."""

    @abstractmethod
    def stored_schema(self, deltas: Deltas) -> pa.Schema:
        """The columns that are stored of such deltas."""

    @abstractmethod
    def restore(self, parts: Sequence[OperatorState], groups: range) -> None: ...


class _KeptValues(_Kept):
    """Each value of a key once, with the number of its rows."""

    def stored_schema(self, deltas: Deltas) -> pa.Schema:
        return with_groups(self.values(deltas)[0], self.keys, deltas.key_groups).schema

    def values(self, deltas: Deltas) -> tuple[pa.RecordBatch, Ints]:
        """Each value of the deltas once for each key, with the sum of its weights, and the partial row of its key."""
        assert self.aggregate.column is not None
        column = _without_signed_zero(plain(deltas.rows.column(self.aggregate.column)))
        mask = valid(column)
        numbers = np.arange(len(column)) if mask is None else np.flatnonzero(mask)
        owners = deltas.owners[numbers]
        columns = {key: take(plain(deltas.partial.column(key)), owners) for key in self.keys}
        weights = take(deltas.rows.column(WEIGHT_COLUMN), numbers)
        found = pa.record_batch({**columns, _VALUE: take(column, numbers), _OWNER: owners, _COUNT: weights})
        found = summed(found, [_OWNER, _VALUE, *self.keys], _COUNT)
        return found.select([*self.keys, _VALUE, _COUNT]), fixed(found.column(_OWNER))


class _DistinctValues(_KeptValues):
    """Counts the values of each key of which there are rows."""

    def __init__(self, keys: tuple[str, ...], aggregate: Aggregate) -> None:
        super().__init__(keys, aggregate)
        self._values = WeightedRows((*keys, _VALUE), self.table, _COUNT, keys)

    @property
    def rows(self) -> KeyedRows:
        return self._values.rows

    def changed(self, deltas: Deltas) -> Replaced:
        found, owners = self.values(deltas)
        before = self._values.add(found, deltas.key_groups)
        after = before + fixed(found.column(_COUNT))
        counts = np.zeros(deltas.partial.num_rows, np.int64)
        np.add.at(counts, owners, (after > 0).astype(np.int64) - (before > 0))
        return Replaced(self.accumulator, np.arange(len(counts)), pa.array(counts), differences=True)

    def restore(self, parts: Sequence[OperatorState], groups: range) -> None:
        self.rows.restore(parts, groups)


class _ExtremeValues(_KeptValues):
    """The first of the values of each key in order."""

    def __init__(self, keys: tuple[str, ...], aggregate: Aggregate) -> None:
        super().__init__(keys, aggregate)
        order = [SortKey(_VALUE, descending=aggregate.function == "max")]
        self._ranked = RankedRows(keys, [_VALUE], 1, order, [_COUNT], self.table)

    @property
    def rows(self) -> KeyedRows:
        return self._ranked.rows

    def changed(self, deltas: Deltas) -> Replaced:
        found, owners = self.values(deltas)
        if not found.num_rows:
            return Replaced(self.accumulator, owners, found.column(_VALUE))
        positions, numbers = self.rows.find(found)
        counts = fixed(found.column(_COUNT)).copy()
        if len(numbers):
            counts[positions] += fixed(self.rows.take(numbers, [_COUNT]).column(_COUNT))
        index = found.schema.get_field_index(_COUNT)
        found = found.set_column(index, found.schema.field(index), pa.array(counts))
        found = with_groups(found, self.keys, deltas.key_groups)
        touched, of = np.unique(owners, return_inverse=True)
        _, first = self._ranked.put(deltas.partial.take(touched), found, of, counts > 0)
        values = (found if first.rows is None else first.rows).column(_VALUE)
        at = np.full(len(touched), -1)
        at[first.groups] = np.arange(len(first.groups))
        return Replaced(self.accumulator, touched, values.take(pa.array(at, mask=at < 0)))

    def restore(self, parts: Sequence[OperatorState], groups: range) -> None:
        self._ranked.restore(parts, groups)


class _RowsOfKeys(_Kept):
    """Computes an aggregate again from the rows of a key, in the order in which they came to be as they are."""

    def __init__(self, keys: tuple[str, ...], aggregate: Aggregate, table_keys: tuple[str, ...]) -> None:
        super().__init__(keys, aggregate)
        (self._only,) = accumulators_of(aggregate)
        self.accumulator = self._only.name
        self._identity = tuple(dict.fromkeys([*keys, *table_keys]))
        self._rows = KeyedRows(self._identity, self.table, keys)

    @property
    def rows(self) -> KeyedRows:
        return self._rows

    def accumulator_type(self, rows: pa.Schema) -> pa.DataType:
        found: pa.DataType = accumulator_type(self._only.kind, self.aggregate, rows)
        return found

    def stored_schema(self, deltas: Deltas) -> pa.Schema:
        return self._stored(deltas.rows, deltas.key_groups).schema

    def changed(self, deltas: Deltas) -> Replaced:
        rows = last_of_each(deltas.rows, self._identity)
        stored = self._stored(rows, deltas.key_groups)
        put_rows(self._rows, stored, fixed(rows.column(WEIGHT_COLUMN)))
        groups, numbers = self._rows.find(deltas.partial, self.keys)
        if not len(numbers):
            return Replaced(self.accumulator, groups, pa.array([], self.accumulator_type(deltas.rows.schema)))
        order = np.lexsort((numbers, groups))
        touched, ids = np.unique(groups[order], return_inverse=True)
        of_groups = Groups(ids, len(touched), np.empty(0, np.int64))
        values = started(self._only.kind, self.aggregate, self._rows.take(numbers[order]), of_groups)
        return Replaced(self.accumulator, touched, values)

    def restore(self, parts: Sequence[OperatorState], groups: range) -> None:
        self._rows.restore(parts, groups)

    def _stored(self, rows: pa.RecordBatch, key_groups: int) -> pa.RecordBatch:
        """The columns by which rows are identified and that are folded."""
        column = self.aggregate.column
        folded = [name for name in rows.schema.names if not is_hidden(name)] if column is None else [column]
        return with_groups(rows.select(list(dict.fromkeys([*self._identity, *folded]))), self.keys, key_groups)


def _kept(keys: tuple[str, ...], aggregate: Aggregate, table_keys: tuple[str, ...]) -> _Kept:
    match aggregate.function:
        case "count_distinct":
            return _DistinctValues(keys, aggregate)
        case _ if aggregate.recomputed:
            return _RowsOfKeys(keys, aggregate, table_keys)
    return _ExtremeValues(keys, aggregate)


def _without_signed_zero(column: Any) -> Any:
    return pc.add(column, pa.scalar(0.0, column.type)) if pa.types.is_floating(column.type) else column
