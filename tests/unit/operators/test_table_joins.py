"""Joins of tables whose rows change, move and leave: equal to an oracle after every batch, followed by its changes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clonos_py.model.joins import JoinColumns, JoinType
from clonos_py.model.tables import WEIGHT_COLUMN, kind_schema, weighted_schema
from clonos_py.operators import keyed_chunks
from clonos_py.operators.delta_join import DeltaJoin
from clonos_py.operators.table_changes import TableChanges
from clonos_py.operators.table_output import TableOutput
from tests.unit.operators.scripted import Instances, compacted_early, opened, schema, stored

SIDES = (
    schema(("id", pa.int64()), ("key", pa.string()), ("left", pa.int64())),
    schema(("number", pa.int64()), ("key", pa.string()), ("right", pa.int64())),
)
BOTH: JoinColumns = (
    ("id", 0, "id"), ("key", 0, "key"), ("left", 0, "left"), ("number", 1, "number"), ("right", 1, "right"),
)  # fmt: skip
RESULT = schema(*((name, pa.string() if name == "key" else pa.int64()) for name, _, _ in BOTH))

Row = tuple[int, str | None, int]
Batch = tuple[int, list[tuple[Row, bool]]]
"""A side, and rows of its table that are put or, if False, deleted."""

BATCHES: st.SearchStrategy[list[Batch]] = st.lists(
    st.tuples(
        st.integers(0, 1),
        st.lists(
            st.tuples(
                st.tuples(st.integers(0, 5), st.sampled_from(["a", "a", "b", "c", None]), st.integers(0, 2)),
                st.sampled_from([True, True, False]),
            ),
            max_size=6,
        ),
    ),
    max_size=10,
)
HOWS = st.sampled_from(list(JoinType))


@pytest.fixture(autouse=True, scope="module")
def _state_is_compacted_early() -> Iterator[None]:
    with compacted_early((keyed_chunks, "_BATCH_ROWS", 3)):
        yield


def columns_of(how: JoinType) -> JoinColumns:
    if not how.pairs:
        return BOTH[:3]
    return tuple((name, 1 if how is JoinType.RIGHT and name == "key" else side, of) for name, side, of in BOTH)


def result_of(how: JoinType) -> pa.Schema:
    return pa.schema([RESULT.field(name) for name, _, _ in columns_of(how)])


def join(how: JoinType, at_end: bool = False) -> DeltaJoin:
    shown = result_of(how) if at_end else weighted_schema(result_of(how))
    sides = tuple(SIDES[0].names), tuple(SIDES[1].names)
    return DeltaJoin((("key",), ("key",)), sides, columns_of(how), shown, how, WEIGHT_COLUMN)


class Tables:
    """Both tables, with their current rows."""

    def __init__(self) -> None:
        self.rows: tuple[dict[int, Row], dict[int, Row]] = ({}, {})

    def deltas(self, side: int, changes: list[tuple[Row, bool]]) -> pa.RecordBatch:
        """Applies changes one after the other. Their deltas: the row before, then the row after each."""
        found: list[tuple[Any, ...]] = []
        for row, put in changes:
            before = self.rows[side].pop(row[0], None)
            if before is not None:
                found.append((*before, -1))
            if put:
                self.rows[side][row[0]] = row
                found.append((*row, 1))
        names = [*SIDES[side].names, WEIGHT_COLUMN]
        rows = [dict(zip(names, row, strict=True)) for row in found]
        return pa.RecordBatch.from_pylist(rows, weighted_schema(SIDES[side]))

    def joined(self, how: JoinType) -> Counter[tuple[Any, ...]]:
        left, right = (list(rows.values()) for rows in self.rows)
        pairs = [(a, b) for a in left for b in right if a[1] is not None and a[1] == b[1]]
        alone = ([a for a in left if all(a is not x for x, _ in pairs)],
                 [b for b in right if all(b is not y for _, y in pairs)])  # fmt: skip
        match how:
            case JoinType.SEMI:
                return Counter(a for a in left if a not in alone[0])
            case JoinType.ANTI:
                return Counter(alone[0])
        found: list[tuple[Any, ...]] = [(*a, b[0], b[2]) for a, b in pairs]
        found += [(*a, None, None) for a in alone[0] if how.unmatched[0]]
        found += [(None, b[1], None, b[0], b[2]) for b in alone[1] if how.unmatched[1]]
        return Counter(found)


@given(BATCHES, HOWS)
def test_deltas_add_up_to_the_join_after_every_batch(batches: list[Batch], how: JoinType) -> None:
    operator = join(how)
    _, out = opened(operator)
    tables, there = Tables(), Counter[tuple[Any, ...]]()
    for side, changes in batches:
        operator.on_rows(tables.deltas(side, changes), side)
        weights = []
        for row in out.take():
            *values, weight = row.values()
            there[tuple(values)] += weight
            weights.append(weight)
        assert weights == sorted(weights), "what is retracted comes first"
        assert there == tables.joined(how)


@given(BATCHES, HOWS, st.integers(0, 9), st.integers(1, 3), st.booleans())
def test_a_restored_join_continues_at_another_parallelism(
    batches: list[Batch], how: JoinType, cut: int, parallelism: int, at_end: bool
) -> None:
    tables, instances = Tables(), Instances(lambda: join(how, at_end))
    there = Counter[tuple[Any, ...]]()
    for position, (side, changes) in enumerate(batches):
        if position == cut:
            there.update(_added(instances.emitted()))
            instances.go_on_as(parallelism)
        instances.on_rows(tables.deltas(side, changes), "key", side)
    if at_end:
        found = [tuple(row.values()) for rows in instances.on_end() for row in rows]
        assert Counter(found) == tables.joined(how)
    else:
        there.update(_added(instances.emitted()))
        assert there == tables.joined(how)


def _added(rows: list[dict[str, Any]]) -> Counter[tuple[Any, ...]]:
    found = Counter[tuple[Any, ...]]()
    for row in rows:
        *values, weight = row.values()
        found[tuple(values)] += weight
    return found


@given(BATCHES, HOWS)
def test_deltas_may_be_delayed_and_reordered(batches: list[Batch], how: JoinType) -> None:
    """A delete may arrive before its insert: what is left is the same."""
    tables = Tables()
    deltas = [(side, tables.deltas(side, changes)) for side, changes in batches]
    operator = join(how)
    _, out = opened(operator)
    for side, rows in reversed(deltas):
        operator.on_rows(rows, side)
    assert _added(out.rows()) == tables.joined(how)


@given(BATCHES)
def test_changes_made_from_deltas_rebuild_the_table(batches: list[Batch]) -> None:
    operator = TableChanges(("id",), TableOutput(kind_schema(SIDES[0], "change"), "changes", kind="change"))
    _, out = opened(operator)
    tables, found = Tables(), dict[int, Row]()
    for _, changes in batches:
        operator.on_rows(tables.deltas(0, changes), 0)
        for change in out.take():
            *values, kind = change.values()
            row: Any = tuple(values)
            if kind == "delete":
                assert found.pop(row[0]) == row
            else:
                assert (row[0] in found) == (kind == "update")
                assert found.get(row[0]) != row
                found[row[0]] = row
        assert found == tables.rows[0]


def test_changes_without_their_kind_are_the_rows_that_are_new() -> None:
    operator = TableChanges(("id",), TableOutput(SIDES[0], "changes"))
    _, out = opened(operator)
    tables = Tables()
    operator.on_rows(tables.deltas(0, [((1, "a", 1), True), ((2, "a", 1), True)]), 0)
    operator.on_rows(tables.deltas(0, [((1, "a", 2), True), ((1, "a", 1), True), ((2, "b", 1), True)]), 0)
    assert [tuple(row.values()) for row in out.rows()] == [(1, "a", 1), (2, "a", 1), (2, "b", 1)]


def test_rows_that_cannot_match_are_counted_or_kept_by_the_join() -> None:
    rows = pa.RecordBatch.from_pylist([{"id": 1, "key": None, "left": 0, WEIGHT_COLUMN: 1}], weighted_schema(SIDES[0]))
    for how in JoinType:
        operator = join(how)
        ctx, out = opened(operator)
        operator.on_rows(rows, 0)
        assert len(out.rows()) == how.unmatched[0]
        assert ctx.counted["null_key_rows"] == (not how.unmatched[0])
        assert stored(operator.snapshot()).tables["left"] == []


@pytest.mark.parametrize("at_end", [False, True])
def test_null_keys_do_not_match_each_other(at_end: bool) -> None:
    operator = join(JoinType.FULL, at_end)
    _, out = opened(operator)
    tables = Tables()
    for side in (0, 1):
        operator.on_rows(tables.deltas(side, [((1, None, 0), True), ((2, "a", 0), True)]), side)
    operator.on_end()
    found = [tuple(row[name] for name in RESULT.names) for row in out.rows() if row.get(WEIGHT_COLUMN, 1) > 0]
    assert Counter(found) - Counter({(2, "a", 0, None, None): 1}) == tables.joined(JoinType.FULL)
