"""Top-n of a table whose rows change, move and leave: equal to an oracle after every batch, followed by its changes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clonos_py.model.aggregates import Aggregate
from clonos_py.model.tables import SortKey, TableMode, kind_schema, weighted_schema
from clonos_py.operators import keyed_chunks, ranked_rows
from clonos_py.operators.table_top import TableTop
from clonos_py.operators.tables import TableAggregate
from tests.unit.operators.scripted import Instances, compacted_early, opened, schema, stored

TABLE = schema(("id", pa.int64()), ("group", pa.string()), ("total", pa.int64()))
RESULT = TABLE.append(pa.field("rank", pa.int64()))
BY_TOTAL = (SortKey("total", descending=True),)

Row = tuple[int, str | None, int | None]
Place = tuple[str | None, int]
CHANGES: st.SearchStrategy[list[list[Row]]] = st.lists(
    st.lists(
        st.tuples(st.integers(0, 11), st.sampled_from(["a", "a", "a", "b", None]), st.integers(0, 9) | st.none()),
        max_size=8,
    ),
    max_size=8,
)
"""Batches of rows of a table that is known by ``id``: each replaces the one before, in whichever group."""


@pytest.fixture(autouse=True, scope="module")
def _state_is_compacted_and_heads_are_short() -> Iterator[None]:
    with compacted_early((ranked_rows, "_HEAD_ROWS", 0), (keyed_chunks, "_BATCH_ROWS", 3)):
        yield


def top(mode: TableMode, n: int, kind: str | None = None, keys: tuple[str, ...] = ("group",)) -> TableTop:
    columns = kind_schema(RESULT, kind) if kind else weighted_schema(RESULT) if mode == "deltas" else RESULT
    return TableTop(keys, n, BY_TOTAL, columns, mode, "rank", None, kind, table_keys=("id",))


class Table:
    """The table that a top-n reads, with its current rows."""

    def __init__(self) -> None:
        self.rows: dict[int, Row] = {}

    def deltas(self, rows: list[Row], all_earlier: bool = False) -> pa.RecordBatch:
        """Adds rows. Returns the output of the table: rows that leave its group with the weight -1, or all former rows,
        then the changes."""
        before = dict(self.rows)
        self.rows |= {row[0]: row for row in rows}
        changed = [row for number, row in self.rows.items() if before.get(number) != row]
        gone = [before[row[0]] for row in changed if row[0] in before and (all_earlier or before[row[0]][1] != row[1])]
        found = [(*row, -1) for row in gone] + [(*row, 1) for row in changed]
        names = [*TABLE.names, "~weight"]
        return pa.RecordBatch.from_pylist([dict(zip(names, row, strict=True)) for row in found], weighted_schema(TABLE))

    def first(self, n: int, by_group: bool = True) -> dict[Place, Row]:
        """By group and rank; nulls last, and of equal rows the one with the lesser id first."""
        found: dict[Place, Row] = {}
        for group in {row[1] if by_group else None for row in self.rows.values()}:
            mine = [row for row in self.rows.values() if not by_group or row[1] == group]
            mine.sort(key=lambda row: (row[2] is None, -(row[2] or 0), row[0]))
            found |= {(group, rank): row for rank, row in enumerate(mine[:n], 1)}
        return found

    def counted(self) -> dict[str | None, tuple[int, int]]:
        """By group: the number of rows, and the sum of their totals."""
        groups = {row[1]: [other for other in self.rows.values() if other[1] == row[1]] for row in self.rows.values()}
        return {group: (len(rows), sum(row[2] or 0 for row in rows)) for group, rows in groups.items()}


def by_rank(rows: list[dict[str, Any]], by_group: bool = True) -> dict[Place, Row]:
    return {(row["group"] if by_group else None, row["rank"]): (row["id"], row["group"], row["total"]) for row in rows}


@given(CHANGES, st.integers(1, 3), st.booleans())
def test_changes_applied_in_order_give_the_first_rows_after_every_batch(
    batches: list[list[Row]], n: int, by_group: bool
) -> None:
    operator = top("changes", n, "change", ("group",) if by_group else ())
    _, out = opened(operator)
    table, found = Table(), dict[Place, Row]()
    for rows in batches:
        operator.on_rows(table.deltas(rows), 0)
        for change in out.take():
            ((place, row),) = by_rank([change], by_group).items()
            match change["change"]:
                case "insert":
                    assert place not in found
                    found[place] = row
                case "update":
                    assert found[place] != row
                    found[place] = row
                case "delete":
                    assert found.pop(place) == row
        assert found == table.first(n, by_group)


@given(CHANGES, st.integers(1, 3))
def test_deltas_retract_exactly_the_rows_that_were_emitted(batches: list[list[Row]], n: int) -> None:
    operator = top("deltas", n)
    _, out = opened(operator)
    table, there = Table(), Counter[tuple[Any, ...]]()
    for rows in batches:
        operator.on_rows(table.deltas(rows), 0)
        for row in out.take():
            key = row["group"], row["rank"], row["id"], row["total"]
            there[key] += row["~weight"]
            assert there[key] in (0, 1)
        assert +there == Counter((*place, row[0], row[2]) for place, row in table.first(n).items())


@given(CHANGES, st.integers(1, 3), st.integers(0, 7), st.integers(1, 3))
def test_a_restored_top_n_continues_at_another_parallelism(
    batches: list[list[Row]], n: int, cut: int, parallelism: int
) -> None:
    table, instances = Table(), Instances(lambda: top("at_end", n))
    for position, rows in enumerate(batches):
        if position == cut:
            instances.go_on_as(parallelism)
        instances.on_rows(table.deltas(rows), "group")
    found = [row for rows in instances.on_end() for row in rows]
    assert by_rank(found) == table.first(n)


@given(CHANGES, st.integers(1, 3), st.integers(0, 7))
def test_the_output_does_not_depend_on_the_cached_heads(batches: list[list[Row]], n: int, cut: int) -> None:
    table, operators = Table(), [top("changes", n, "change"), top("changes", n, "change")]
    outs = [opened(operator)[1] for operator in operators]
    for position, rows in enumerate(batches):
        if position == cut:
            operators[1] = top("changes", n, "change")
            outs[1] = opened(operators[1])[1]
            operators[1].restore([stored(operators[0].snapshot())])
        deltas = table.deltas(rows)
        for operator in operators:
            operator.on_rows(deltas, 0)
        found = [out.take() for out in outs]
        assert found[0] == found[1]


COUNTED = pa.schema([TABLE.field("group"), pa.field("rows", pa.int64()), pa.field("sum", pa.int64())])


@given(CHANGES)
def test_an_aggregate_drops_keys_without_rows(batches: list[list[Row]]) -> None:
    aggregates = (Aggregate("count", None, "rows", pa.int64()), Aggregate("sum", "total", "sum", pa.int64()))
    operator = TableAggregate(
        ("group",), aggregates, kind_schema(COUNTED, "change"), "changes", weighted=True, kind="change"
    )
    _, out = opened(operator)
    table, found = Table(), dict[Any, tuple[int, int | None]]()
    for rows in batches:
        operator.on_rows(table.deltas(rows, all_earlier=True), 0)
        for change in out.take():
            key, value = change["group"], (change["rows"], change["sum"])
            if change["change"] == "delete":
                assert found.pop(key) == value
            else:
                assert (key in found) == (change["change"] == "update")
                assert found.get(key) != value
                found[key] = value
        assert {key: (rows, total or 0) for key, (rows, total) in found.items()} == table.counted()
