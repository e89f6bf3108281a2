"""Aggregates of a table whose rows change, move and leave: equal to an oracle after every batch."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clonos_py.model.aggregates import Aggregate, UserAggregate
from clonos_py.model.tables import TableMode, kind_schema, weighted_schema
from clonos_py.operators import keyed_chunks, ranked_rows
from clonos_py.operators.tables import TableAggregate
from tests.unit.operators.scripted import Instances, compacted_early, opened, schema

TABLE = schema(("id", pa.int64()), ("group", pa.string()), ("value", pa.float64()), ("name", pa.string()))
TEXTS = UserAggregate(
    create=list, add=lambda texts, row: [*texts, f"{row['id']}{row['name']}"],
    merge=lambda a, b: a + b, result=lambda texts: " ".join(sorted(texts)),
)  # fmt: skip
SMALL = UserAggregate(
    create=int, add=lambda n, value: n + (value is not None and value < 1), merge=lambda a, b: a + b,
    result=lambda n: n,
)  # fmt: skip
AGGREGATES = (
    Aggregate("count", None, "rows", pa.int64()),
    Aggregate("min", "value", "least", pa.float64()),
    Aggregate("max", "value", "most", pa.float64()),
    Aggregate("count_distinct", "value", "values", pa.int64()),
    Aggregate("max", "name", "last_name", pa.string()),
    Aggregate("count_distinct", "name", "names", pa.int64()),
    Aggregate("user", None, "texts", pa.string(), TEXTS),
    Aggregate("user", "value", "small", pa.int64(), SMALL),
)
RESULT = pa.schema([TABLE.field("group"), *(pa.field(a.name, a.type) for a in AGGREGATES)])

Row = tuple[int, str | None, float | None, str | None]
VALUES = st.sampled_from([0.0, -0.0, 1.0, 2.0, math.nan, -math.inf, None])
CHANGES: st.SearchStrategy[list[list[tuple[Row, bool]]]] = st.lists(
    st.lists(
        st.tuples(
            st.tuples(
                st.integers(0, 9), st.sampled_from(["a", "a", "b", None]), VALUES, st.sampled_from("xyz") | st.none()
            ),
            st.sampled_from([True, True, True, False]),
        ),
        max_size=6,
    ),
    max_size=8,
)


@pytest.fixture(autouse=True, scope="module")
def _state_is_compacted_and_heads_are_short() -> Iterator[None]:
    with compacted_early((ranked_rows, "_HEAD_ROWS", 0), (keyed_chunks, "_BATCH_ROWS", 3)):
        yield


def aggregate(mode: TableMode) -> TableAggregate:
    shown = kind_schema(RESULT, "change") if mode == "changes" else RESULT
    kind = "change" if mode == "changes" else None
    return TableAggregate(("group",), AGGREGATES, shown, mode, weighted=True, kind=kind, table_keys=("id",))


class Table:
    """The aggregated table, with its current rows."""

    def __init__(self) -> None:
        self.rows: dict[int, Row] = {}

    def deltas(self, changes: list[tuple[Row, bool]]) -> pa.RecordBatch:
        found: list[tuple[Any, ...]] = []
        for row, put in changes:
            if (before := self.rows.pop(row[0], None)) is not None:
                found.append((*before, -1))
            if put:
                self.rows[row[0]] = row
                found.append((*row, 1))
        names = [*TABLE.names, "~weight"]
        return pa.RecordBatch.from_pylist([dict(zip(names, row, strict=True)) for row in found], weighted_schema(TABLE))

    def expected(self) -> dict[Any, tuple[Any, ...]]:
        found = {}
        for group in {row[1] for row in self.rows.values()}:
            rows = [row for row in self.rows.values() if row[1] == group]
            values = [row[2] for row in rows if row[2] is not None]
            numbers = [value for value in values if not math.isnan(value)] or values
            names = [row[3] for row in rows if row[3] is not None]
            distinct = len({"nan" if math.isnan(value) else value for value in values})
            texts = " ".join(sorted(f"{row[0]}{row[3]}" for row in rows))
            small = sum(row[2] is not None and row[2] < 1 for row in rows)
            extremes = (min(numbers), max(numbers)) if numbers else (None, None)
            found[group] = plain(
                (len(rows), *extremes, distinct, max(names, default=None), len(set(names)), texts, small)
            )
        return found


def plain(values: tuple[Any, ...]) -> tuple[Any, ...]:
    """The values, with NaN as a text, which equals itself."""
    return tuple("nan" if isinstance(value, float) and math.isnan(value) else value for value in values)


@given(CHANGES)
def test_changes_give_every_aggregate_of_the_current_rows(batches: list[list[tuple[Row, bool]]]) -> None:
    operator = aggregate("changes")
    _, out = opened(operator)
    table, found = Table(), dict[Any, tuple[Any, ...]]()
    for changes in batches:
        operator.on_rows(table.deltas(changes), 0)
        for row in out.take():
            group, *values, kind = row.values()
            if kind == "delete":
                assert found.pop(group) == plain(tuple(values))
            else:
                assert (group in found) == (kind == "update")
                assert found.get(group) != plain(tuple(values))
                found[group] = plain(tuple(values))
        assert found == table.expected()


@given(CHANGES, st.integers(0, 7), st.integers(1, 3))
def test_a_restored_aggregate_continues_at_another_parallelism(
    batches: list[list[tuple[Row, bool]]], cut: int, parallelism: int
) -> None:
    table, instances = Table(), Instances(lambda: aggregate("at_end"))
    for position, changes in enumerate(batches):
        if position == cut:
            instances.go_on_as(parallelism)
        instances.on_rows(table.deltas(changes), "group")
    rows = [tuple(row.values()) for found in instances.on_end() for row in found]
    assert {row[0]: plain(row[1:]) for row in rows} == table.expected()


def test_what_is_stored_has_the_declared_columns() -> None:
    operator = aggregate("changes")
    opened(operator)
    operator.on_rows(Table().deltas([((1, "a", 1.0, "x"), True)]), 0)
    declared = operator.tables([weighted_schema(TABLE)])
    for name, chunks in operator.snapshot().tables.items():
        assert [chunk.rows.schema.names for chunk in chunks] == [declared[name].names]
        assert [chunk.rows.schema.types for chunk in chunks] == [declared[name].types]
