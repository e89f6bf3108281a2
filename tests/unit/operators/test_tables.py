"""Running aggregates: the table after every batch, and at the end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, Literal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clonos_py.model.aggregates import Aggregate
from clonos_py.model.tables import weighted_schema
from clonos_py.operators import keyed_chunks
from clonos_py.operators.tables import TableAggregate, TableCombine
from tests.unit.operators.scripted import Instances, ScriptedContext, compacted_early, opened, stored

AGGREGATES = (
    Aggregate("count", None, "rows", pa.int64()),
    Aggregate("max", "value", "most", pa.int64()),
    Aggregate("mean", "value", "mean", pa.float64()),
)
KEYS: list[pa.Field[Any]] = [pa.field("key", pa.string()), pa.field("side", pa.bool_())]
INPUT = pa.schema([*KEYS, pa.field("value", pa.int64())])
RESULT = pa.schema([*KEYS, *(pa.field(a.name, a.type) for a in AGGREGATES)])

Row = tuple[str | None, bool | None, int]
BATCHES: st.SearchStrategy[list[list[Row]]] = st.lists(
    st.lists(
        st.tuples(st.sampled_from(["a", "b", "c", None]), st.sampled_from([True, False, None]), st.integers(-9, 9)),
        max_size=12,
    ),
    max_size=6,
)


@pytest.fixture(autouse=True, scope="module")
def _batches_are_small() -> Iterator[None]:
    with compacted_early((keyed_chunks, "_BATCH_ROWS", 3)):
        yield


def table(mode: Literal["changes", "at_end"]) -> TableAggregate:
    return TableAggregate(("key", "side"), AGGREGATES, RESULT, mode)


def batch(rows: list[Row]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([dict(zip(INPUT.names, row, strict=True)) for row in rows], INPUT)


def expected(rows: list[Row]) -> dict[tuple[Any, Any], tuple[int, int, float]]:
    groups: dict[tuple[Any, Any], list[int]] = {}
    for key, side, value in rows:
        groups.setdefault((key, side), []).append(value)
    return {key: (len(v), max(v), sum(v) / len(v)) for key, v in groups.items()}


def by_key(rows: list[dict[str, Any]]) -> dict[tuple[Any, Any], tuple[int, int, float]]:
    found = {(row["key"], row["side"]): (row["rows"], row["most"], row["mean"]) for row in rows}
    assert len(found) == len(rows)
    return found


@given(BATCHES)
def test_each_batch_emits_the_new_rows_of_its_keys(batches: list[list[Row]]) -> None:
    operator = table("changes")
    _, out = opened(operator)
    so_far: list[Row] = []
    for rows in batches:
        operator.on_rows(batch(rows), 0)
        so_far += rows
        touched = {(key, side) for key, side, _ in rows}
        assert by_key(out.take()) == {key: value for key, value in expected(so_far).items() if key in touched}
    operator.on_end()
    assert out.take() == []


@given(BATCHES, st.integers(0, 5))
def test_at_the_end_all_rows_come_sorted_also_after_a_restore(batches: list[list[Row]], cut: int) -> None:
    operator = table("at_end")
    _, out = opened(operator)
    for position, rows in enumerate(batches):
        if position == cut:
            successor = table("at_end")
            _, out = opened(successor)
            successor.restore([stored(operator.snapshot())])
            operator = successor
        operator.on_rows(batch(rows), 0)
    assert out.rows() == []
    operator.on_end()
    assert by_key(out.rows()) == expected([row for rows in batches for row in rows])
    order = [(row["key"] is None, row["key"] or "", row["side"] is None, bool(row["side"])) for row in out.rows()]
    assert order == sorted(order)


OF_MOST = (
    Aggregate("count", None, "rows", pa.int64()),
    Aggregate("mean", "most", "mean", pa.int64()),
    Aggregate("sum", "most", "total", pa.int64()),
)


@given(BATCHES)
def test_an_aggregate_of_a_table_follows_its_changes(batches: list[list[Row]]) -> None:
    finest = (Aggregate("count", None, "rows", pa.int64()), Aggregate("max", "value", "most", pa.int64()))
    inner = pa.schema([*KEYS, *(pa.field(a.name, a.type) for a in finest)])
    outer = pa.schema([KEYS[0], *(pa.field(a.name, a.type) for a in OF_MOST)])
    first = TableAggregate(("key", "side"), finest, weighted_schema(inner), "deltas")
    early = TableCombine(("key",), OF_MOST, weighted=True)
    direct = TableAggregate(("key",), OF_MOST, outer, "changes", weighted=True)
    behind = TableAggregate(("key",), OF_MOST, outer, "changes", weighted=True, combined=True)
    outs = [opened(operator)[1] for operator in (first, early, direct, behind)]
    tables: list[dict[Any, tuple[int, int, int]]] = [{}, {}]
    for rows in batches:
        first.on_rows(batch(rows), 0)
        for _, deltas in outs[0].batches:
            early.on_rows(deltas, 0)
            direct.on_rows(deltas, 0)
        for _, partial in outs[1].batches:
            behind.on_rows(partial, 0)
        for out in outs[:2]:
            out.take()
        for table, out in zip(tables, outs[2:], strict=True):
            table |= {row["key"]: (row["rows"], row["mean"], row["total"]) for row in out.take()}
    most: dict[str | None, list[int]] = {}
    for (key, _), (_, highest, _) in expected([row for rows in batches for row in rows]).items():
        most.setdefault(key, []).append(highest)
    answer = {key: (len(values), int(sum(values) / len(values)), sum(values)) for key, values in most.items()}
    assert tables == [answer, answer]


@given(BATCHES)
def test_deltas_retract_exactly_the_rows_that_were_emitted_and_have_changed(batches: list[list[Row]]) -> None:
    aggregates = (Aggregate("max", "value", "most", pa.int64()),)
    result = pa.schema([*KEYS, pa.field("most", pa.int64())])
    operator = TableAggregate(("key", "side"), aggregates, weighted_schema(result), "deltas")
    _, out = opened(operator)
    there: Counter[tuple[Any, ...]] = Counter()
    for rows in batches:
        operator.on_rows(batch(rows), 0)
        deltas = [(tuple(row.values())[:-1], row["~weight"]) for row in out.take()]
        assert len({row for row, _ in deltas}) == len(deltas)
        for row, weight in deltas:
            there[row] += weight
            assert there[row] in (0, 1)
    found = expected([row for rows in batches for row in rows])
    assert +there == Counter((*key, most) for key, (_, most, _) in found.items())


DISTINCT = (
    Aggregate("count_distinct", "value", "values", pa.int64()),
    Aggregate("count_distinct", "some", "some", pa.int64()),
    Aggregate("count_distinct", "side", "sides", pa.int64()),
)
COUNTED = pa.schema([KEYS[0], *(pa.field(a.name, a.type) for a in DISTINCT)])
WIDE = INPUT.append(pa.field("some", pa.int64()))


def wide(rows: list[Row]) -> pa.RecordBatch:
    """The batch with a column that is the value if it is positive, else null."""
    positive = [value if value > 0 else None for _, _, value in rows]
    return batch(rows).append_column(WIDE.field("some"), pa.array(positive, pa.int64()))


@given(BATCHES, st.booleans(), st.integers(0, 5), st.integers(1, 3))
def test_distinct_values_are_counted_once_also_after_a_restore_at_another_parallelism(
    batches: list[list[Row]], early: bool, cut: int, parallelism: int
) -> None:
    combine = TableCombine(("key",), DISTINCT)
    _, combined = opened(combine)
    instances = Instances(lambda: TableAggregate(("key",), DISTINCT, COUNTED, "at_end", combined=early))
    for position, rows in enumerate(batches):
        if position == cut:
            instances.go_on_as(parallelism)
        whole = wide(rows)
        if early and rows:
            combine.on_rows(whole, 0)
            whole = combined.batches.pop()[1]
        instances.on_rows(whole, "key")
    given = instances.on_end()
    every = [row for rows in batches for row in rows]
    expected = {
        key: (
            len({value for k, _, value in every if k == key}),
            len({value for k, _, value in every if k == key and value > 0}),
            len({side for k, side, _ in every if k == key and side is not None}),
        )
        for key in {key for key, _, _ in every}
    }
    found = [row for rows_of_one in given for row in rows_of_one]
    assert {row["key"]: (row["values"], row["some"], row["sides"]) for row in found} == expected
    assert len(found) == len(expected)


def test_without_keys_a_table_has_one_row() -> None:
    operator = TableAggregate((), AGGREGATES[:1], pa.schema([pa.field("rows", pa.int64())]), "changes")
    _, out = opened(operator)
    for _ in range(6):
        operator.on_rows(batch([("a", True, 1), ("b", True, 1)]), 0)
    assert [row["rows"] for row in out.rows()] == [2, 4, 6, 8, 10, 12]


def test_state_moves_to_another_parallelism_without_dead_rows() -> None:
    first = table("at_end")
    opened(first)
    for _ in range(3):
        first.on_rows(batch([(f"key {i}", True, 1) for i in range(50)]), 0)
    found: dict[tuple[Any, Any], tuple[int, int, float]] = {}
    for groups in (range(0, 40), range(40, 128)):
        second = table("at_end")
        _, out = opened(second, ScriptedContext(groups))
        second.restore([stored(first.snapshot())])
        second.on_end()
        assert 0 < len(out.rows()) < 50
        found |= by_key(out.rows())
    assert found == {(f"key {i}", True): (3, 1, 1.0) for i in range(50)}


def test_a_hot_key_does_not_increase_the_state() -> None:
    operator = table("changes")
    _, out = opened(operator)
    rows = batch([(f"key {i}", None, 1) for i in range(2_000)])
    for _ in range(30):
        operator.on_rows(rows, 0)
    assert sum(chunk.rows.num_rows for chunk in operator.snapshot().tables["rows"]) < 20_000
    assert {row["rows"] for row in out.rows()[-2_000:]} == {30}


def test_a_snapshot_does_not_contain_later_changes() -> None:
    operator = table("at_end")
    opened(operator)
    operator.on_rows(batch([("a", True, 1)]), 0)
    snapshot = operator.snapshot()
    operator.on_rows(batch([("a", True, 1)]), 0)
    second = table("at_end")
    _, out = opened(second)
    second.restore([snapshot])
    second.on_end()
    assert [row["rows"] for row in out.rows()] == [1]
