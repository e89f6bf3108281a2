"""Running counts of distinct values: finds which values are new for a key.

For each value type, the state has one row per key and value, with one bit for each count that has seen the value. So
counts of one column under several conditions, or of several columns of one type, share their state.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from clonos_py.columns.distinct import unrolled
from clonos_py.columns.grouping import group
from clonos_py.columns.views import Ints, fixed, take
from clonos_py.model.aggregates import Aggregate, accumulator_name
from clonos_py.model.errors import GraphError
from clonos_py.model.hidden import hidden
from clonos_py.model.state import GROUP_COLUMN, OperatorState, united
from clonos_py.operators.keyed_rows import KeyedRows

VALUE_COLUMN = hidden("value")
"""Column of the state: a value of the type that the table is named after."""
SEEN_COLUMN = hidden("seen")
"""int64 column of the state: bit i is set if the i-th of the counts has seen the value."""
VALUES_TABLE = "values."
"""How the names of tables begin; the type of their values follows."""
_MOST = 63


class DistinctCounts:
    """Turns lists of distinct values (``distinct`` of a partial batch) into counts of new values. ``forgets``: keys can
    be forgotten."""

    def __init__(self, keys: Sequence[str], aggregates: Sequence[Aggregate], forgets: bool = False) -> None:
        self._keys = tuple(keys)
        self._by = self._keys if forgets else None
        self._names = [a.name for a in aggregates if a.function == "count_distinct"]
        if len(self._names) > _MOST:
            raise GraphError(f"an aggregate counts distinct values at most {_MOST} times, not {len(self._names)}")
        self._seen: dict[pa.DataType, KeyedRows] = {}

    @property
    def none(self) -> bool:
        """Whether nothing is counted."""
        return not self._names

    def counted(self, partial: pa.RecordBatch) -> pa.RecordBatch:
        """Replaces the lists of partial rows by counts. The rows are one per key, with its key group."""
        counts: dict[str, Ints] = {}
        for kind, names in self._by_type(partial.schema).items():
            counts.update(self._news(partial, kind, names))
        for name, count in counts.items():
            partial = partial.append_column(accumulator_name(name, "count"), pa.array(count))
        return partial.drop_columns([accumulator_name(name, "distinct") for name in counts])

    def counted_schema(self, partial: pa.Schema) -> pa.Schema:
        """The columns of ``partial`` once distinct values are counted."""
        counted = [name for names in self._by_type(partial).values() for name in names]
        lists = {accumulator_name(name, "distinct") for name in counted}
        kept: list[Any] = [field for field in partial if field.name not in lists]
        return pa.schema([*kept, *(pa.field(accumulator_name(name, "count"), pa.int64()) for name in counted)])

    def forget(self, keys: pa.RecordBatch) -> None:
        """Drops all values of these keys, which are distinct."""
        for seen in self._seen.values():
            seen.remove(seen.find(keys, by=self._by)[1])
            seen.compact()

    def snapshot(self) -> OperatorState:
        return united(*(seen.snapshot({}) for seen in self._seen.values()))

    def restore(self, parts: Sequence[OperatorState], groups: range) -> None:
        """Restores the tables, which are named after value types."""
        before, self._seen = self._seen, {}
        for part in parts:
            for name, chunks in part.tables.items():
                own = next((chunk for chunk in chunks if not chunk.of_others), None)
                if name.startswith(VALUES_TABLE) and own is not None:
                    kind = own.rows.schema.field(VALUE_COLUMN).type
                    self._seen[kind] = before.get(kind) or self._of_type(kind)
        for kind, seen in self._seen.items():
            seen.restore([part for part in parts if _table_of(kind) in part.tables], groups)

    def _by_type(self, partial: pa.Schema) -> Mapping[pa.DataType, list[str]]:
        found: dict[pa.DataType, list[str]] = {}
        for name in self._names:
            lists: Any = partial.field(accumulator_name(name, "distinct")).type
            found.setdefault(lists.value_type, []).append(name)
        return found

    def _of_type(self, kind: pa.DataType) -> KeyedRows:
        if kind not in self._seen:
            self._seen[kind] = KeyedRows((*self._keys, VALUE_COLUMN), _table_of(kind), self._by)
        return self._seen[kind]

    def _news(self, partial: pa.RecordBatch, kind: pa.DataType, names: Sequence[str]) -> dict[str, Ints]:
        """By count name: the number of values in each row that are new for its key. Adds them to the state."""
        bits = {name: 1 << self._names.index(name) for name in names}
        lists = {name: unrolled(partial.column(accumulator_name(name, "distinct"))) for name in names}
        values = pa.concat_arrays([found for found, _ in lists.values()])
        rows = np.concatenate([owners for _, owners in lists.values()])
        pairs = group([rows, values], len(values))
        seen = np.zeros(pairs.size, np.int64)
        np.add.at(seen, pairs.ids, np.repeat(list(bits.values()), [len(owners) for _, owners in lists.values()]))
        owners = rows[pairs.first]
        brought = seen & ~self._note(self._of_type(kind), partial, owners, take(values, pairs.first), seen)
        return {
            name: np.bincount(owners[(brought & bit).astype(bool)], minlength=partial.num_rows)
            for name, bit in bits.items()
        }

    def _note(self, state: KeyedRows, partial: pa.RecordBatch, owners: Ints, values: pa.Array, seen: Ints) -> Ints:  # type: ignore[type-arg]
        """Adds values to the state. Returns which counts had seen them before, as bits."""
        columns = {name: take(partial.column(name), owners) for name in (*self._keys, GROUP_COLUMN)}
        rows = pa.record_batch({VALUE_COLUMN: values, **columns})
        positions, numbers = state.find(rows)
        known = np.zeros(len(owners), np.int64)
        if len(numbers):
            known[positions] = fixed(state.take(numbers, [SEEN_COLUMN]).column(SEEN_COLUMN))
        changed = np.flatnonzero(seen & ~known)
        if len(changed):
            state.remove(numbers[(seen & ~known)[positions].astype(bool)])
            state.append(rows.append_column(SEEN_COLUMN, pa.array(seen | known)).take(changed))
            state.compact()
        return known


def counting(aggregates: Sequence[Aggregate]) -> tuple[Aggregate, ...]:
    """The aggregates to merge once distinct values are counted."""
    return tuple(replace(a, function="count") if a.function == "count_distinct" else a for a in aggregates)


def _table_of(kind: pa.DataType) -> str:
    return f"{VALUES_TABLE}{kind}"
