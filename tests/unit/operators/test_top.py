"""Running top-n: the first rows of each key after every batch, as changes, at the end, and as deltas."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clonos_py.model.tables import SortKey, TableMode, weighted_schema
from clonos_py.operators import keyed_chunks, keyed_rows
from clonos_py.operators.top import TopCombine, TopRows
from tests.unit.operators.scripted import Instances, compacted_early, opened, schema

INPUT = schema(("key", pa.string()), ("price", pa.int64()), ("name", pa.string()))
RESULT = INPUT.append(pa.field("rank", pa.int64()))
BY_PRICE = (SortKey("price", descending=True),)

Row = tuple[str | None, int | None, str]
BATCHES: st.SearchStrategy[list[list[Row]]] = st.lists(
    st.lists(
        st.tuples(st.sampled_from(["a", "b", None]), st.integers(0, 5) | st.none(), st.sampled_from(["x", "y", "z"])),
        max_size=10,
    ),
    max_size=6,
)


@pytest.fixture(autouse=True, scope="module")
def _state_is_compacted_early() -> Iterator[None]:
    with compacted_early((keyed_chunks, "_BATCH_ROWS", 3)):
        yield


def top(mode: TableMode, n: int = 2, order: tuple[SortKey, ...] = BY_PRICE) -> TopRows:
    return TopRows(("key",), n, order, weighted_schema(RESULT) if mode == "deltas" else RESULT, mode, "rank")


def batch(rows: list[Row]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([dict(zip(INPUT.names, row, strict=True)) for row in rows], INPUT)


def expected(rows: list[Row], n: int, order: tuple[SortKey, ...]) -> dict[tuple[Any, int], Row]:
    """By key and rank, as SQL's ROW_NUMBER with nulls last; of equal rows the first that came."""
    found: dict[tuple[Any, int], Row] = {}
    for key in {row[0] for row in rows}:
        mine = [row for row in rows if row[0] == key]
        for by in reversed(order):
            mine = in_order(mine, INPUT.names.index(by.column), by.descending)
        found |= {(key, rank): row for rank, row in enumerate(mine[:n], 1)}
    return found


def in_order(rows: list[Row], column: int, descending: bool) -> list[Row]:
    def value(row: Row) -> Any:
        return row[column]

    known = sorted((row for row in rows if value(row) is not None), key=value, reverse=descending)
    return known + [row for row in rows if value(row) is None]


def by_rank(rows: list[dict[str, Any]]) -> dict[tuple[Any, int], Row]:
    return {(row["key"], row["rank"]): (row["key"], row["price"], row["name"]) for row in rows}


ORDERS = st.sampled_from([
    BY_PRICE, (SortKey("price"),), (SortKey("name", descending=True), SortKey("price")),
    (SortKey("price"), SortKey("name")),
])  # fmt: skip


@given(BATCHES, st.integers(1, 3), ORDERS)
def test_changes_upserted_by_key_and_rank_are_the_first_rows(
    batches: list[list[Row]], n: int, order: tuple[SortKey, ...]
) -> None:
    operator = top("changes", n, order)
    _, out = opened(operator)
    so_far: list[Row] = []
    table: dict[tuple[Any, int], Row] = {}
    for rows in batches:
        operator.on_rows(batch(rows), 0)
        so_far += rows
        changes = by_rank(out.take())
        table |= changes
        assert table == expected(so_far, n, order)


@given(BATCHES, st.integers(1, 3), ORDERS)
def test_deltas_retract_exactly_the_rows_that_were_emitted(
    batches: list[list[Row]], n: int, order: tuple[SortKey, ...]
) -> None:
    operator = top("deltas", n, order)
    _, out = opened(operator)
    table: Counter[tuple[Any, ...]] = Counter()
    for rows in batches:
        operator.on_rows(batch(rows), 0)
        for row in out.take():
            table[(row["key"], row["rank"], row["price"], row["name"])] += row["~weight"]
            assert table[(row["key"], row["rank"], row["price"], row["name"])] in (0, 1)
    best = expected([row for rows in batches for row in rows], n, order)
    assert +table == Counter((*place, *row[1:]) for place, row in best.items())


@given(BATCHES, st.integers(1, 3), ORDERS, st.integers(0, 5), st.integers(1, 3))
def test_at_the_end_all_rows_come_sorted_also_after_a_restore_at_another_parallelism(
    batches: list[list[Row]], n: int, order: tuple[SortKey, ...], cut: int, parallelism: int
) -> None:
    instances = Instances(lambda: top("at_end", n, order))
    for position, rows in enumerate(batches):
        if position == cut:
            instances.go_on_as(parallelism)
        instances.on_rows(batch(rows), "key")
    given = instances.on_end()
    found = [row for rows in given for row in rows]
    assert by_rank(found) == expected([row for rows in batches for row in rows], n, order)
    for rows_of_one in given:
        places = [(row["key"] is None, row["key"] or "", row["rank"]) for row in rows_of_one]
        assert places == sorted(places)


@given(BATCHES, st.integers(1, 3), ORDERS)
def test_combining_before_the_shuffle_does_not_change_the_output(
    batches: list[list[Row]], n: int, order: tuple[SortKey, ...]
) -> None:
    combine = TopCombine(("key",), n, order, INPUT.names)
    _, combined = opened(combine)
    direct, behind = top("at_end", n, order), top("at_end", n, order)
    outs = [opened(operator)[1] for operator in (direct, behind)]
    for rows in batches:
        direct.on_rows(batch(rows), 0)
        combine.on_rows(batch(rows), 0)
    for _, rows_left in combined.batches:
        assert max(Counter(row["key"] for row in rows_left.to_pylist()).values(), default=0) <= n
        behind.on_rows(rows_left, 0)
    for operator in (direct, behind):
        operator.on_end()
    assert outs[0].rows() == outs[1].rows()


def test_rows_of_a_top_1_have_no_rank() -> None:
    operator = TopRows(("key",), 1, (SortKey("price", descending=True),), INPUT, "changes")
    _, out = opened(operator)
    operator.on_rows(batch([("a", 1, "x"), ("a", 3, "y"), ("b", 2, "z")]), 0)
    assert sorted(row["name"] for row in out.take()) == ["y", "z"]
    operator.on_rows(batch([("a", 3, "later"), ("b", 1, "less")]), 0)
    assert out.rows() == []


def test_state_has_at_most_n_rows_of_a_key() -> None:
    operator = top("changes", 3)
    opened(operator)
    for price in range(500):
        operator.on_rows(batch([("a", price, "x"), ("b", price, "x")]), 0)
    assert sum(chunk.rows.num_rows for chunk in operator.snapshot().tables["rows"]) < 20


def test_a_snapshot_writes_only_new_rows() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(keyed_rows, "_CHUNK_ROWS", 65_536)
        patch.setattr(keyed_rows, "_DEAD_ROWS", 16_384)
        operator = top("changes", 1)
        opened(operator)
        operator.on_rows(batch([(f"key {i}", 1, "x") for i in range(1_000)]), 0)
        (first,) = operator.snapshot().tables["rows"]
        operator.on_rows(batch([("key 1", 2, "y"), ("new", 1, "z")]), 0)
        second = operator.snapshot().tables["rows"]
        assert second[0] is first
        assert [chunk.rows.num_rows for chunk in second] == [1_000, 2]
