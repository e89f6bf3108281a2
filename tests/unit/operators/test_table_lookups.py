"""Rows of a stream joined with the rows that a table has when they come: equal to an oracle, however cut."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clonos_py.columns.views import concat
from clonos_py.model.joins import JoinType
from clonos_py.model.tables import weighted_schema
from clonos_py.model.times import MIN_TIME
from clonos_py.operators.table_changes import TableChanges
from clonos_py.operators.table_join import TableJoin
from clonos_py.operators.table_output import TableOutput
from tests.unit.operators.scripted import Instances, compacted_early, opened, stored
from tests.unit.operators.test_table_joins import BATCHES, SIDES, Batch, Row, Tables, columns_of, result_of

HOWS = st.sampled_from([JoinType.INNER, JoinType.LEFT, JoinType.SEMI, JoinType.ANTI])


@pytest.fixture(autouse=True, scope="module")
def _state_is_compacted_early() -> Iterator[None]:
    with compacted_early():
        yield


def join(how: JoinType, load_first: bool = False) -> TableJoin:
    return TableJoin(("key",), ("key",), ("number",), columns_of(how), result_of(how), how, load_first)


class Merged:
    """The table of the right side, and its deltas as the join gets them."""

    def __init__(self) -> None:
        self.tables = Tables()
        self._operator = TableChanges(("number",), TableOutput(weighted_schema(SIDES[1]), "deltas", ("key",)))
        _, self._out = opened(self._operator)

    def deltas(self, changes: list[tuple[Row, bool]]) -> pa.RecordBatch:
        self._operator.on_rows(self.tables.deltas(1, changes), 1)
        return pa.RecordBatch.from_pylist(self._out.take(), weighted_schema(SIDES[1]))

    @property
    def rows(self) -> list[Row]:
        return list(self.tables.rows[1].values())

    def looked_up(self, rows: list[Row], how: JoinType) -> Counter[tuple[Any, ...]]:
        found: list[tuple[Any, ...]] = []
        for row in rows:
            matches = [(b[0], b[2]) for b in self.rows if row[1] is not None and row[1] == b[1]]
            match how:
                case JoinType.SEMI | JoinType.ANTI:
                    found += [row] if bool(matches) == (how is JoinType.SEMI) else []
                case _:
                    alone = [(None, None)] if how is JoinType.LEFT else []
                    found += [(*row, *match) for match in matches or alone]
        return Counter(found)


def of_stream(changes: list[tuple[Row, bool]]) -> tuple[list[Row], pa.RecordBatch]:
    rows = [row for row, _ in changes]
    return rows, pa.RecordBatch.from_pylist([dict(zip(SIDES[0].names, row, strict=True)) for row in rows], SIDES[0])


def values(rows: list[dict[str, Any]]) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(row.values()) for row in rows)


@given(BATCHES, HOWS)
def test_each_row_meets_the_rows_that_the_table_has_when_it_comes(batches: list[Batch], how: JoinType) -> None:
    operator, table = join(how), Merged()
    _, out = opened(operator)
    for side, changes in batches:
        if side:
            operator.on_rows(table.deltas(changes), 1)
            assert out.take() == []
        else:
            rows, batch = of_stream(changes)
            operator.on_rows(batch, 0)
            assert values(out.take()) == table.looked_up(rows, how)


@given(BATCHES, st.lists(st.booleans(), min_size=10, max_size=10))
def test_changes_may_come_together(batches: list[Batch], waits: list[bool]) -> None:
    """A task takes several frames at once."""
    operator, table = join(JoinType.LEFT), Merged()
    _, out = opened(operator)
    together: list[pa.RecordBatch] = []
    for (_, changes), wait in zip(batches, waits, strict=False):
        together.append(table.deltas(changes))
        if not wait:
            operator.on_rows(concat(together), 1)
            together = []
            rows, batch = of_stream([((0, key, 0), True) for key in ("a", "b", "c")])
            operator.on_rows(batch, 0)
            assert values(out.take()) == table.looked_up(rows, JoinType.LEFT)


@given(BATCHES, HOWS, st.integers(0, 9), st.integers(1, 3))
def test_a_restored_join_has_the_same_rows_at_another_parallelism(
    batches: list[Batch], how: JoinType, cut: int, parallelism: int
) -> None:
    table, instances = Merged(), Instances(lambda: join(how))
    expected, found = Counter[tuple[Any, ...]](), Counter[tuple[Any, ...]]()
    for position, (side, changes) in enumerate(batches):
        if position == cut:
            found += values(instances.emitted())
            instances.go_on_as(parallelism)
        if side:
            instances.on_rows(table.deltas(changes), "key", 1)
        else:
            rows, batch = of_stream(changes)
            expected += table.looked_up(rows, how)
            instances.on_rows(batch, "key", 0)
    assert found + values(instances.emitted()) == expected


@given(BATCHES)
def test_a_row_is_never_missing_while_another_version_replaces_it(batches: list[Batch]) -> None:
    """Frames may be cut between any two deltas, and rows of the stream may come in between."""
    operator, table = join(JoinType.INNER), Merged()
    _, out = opened(operator)
    asked = of_stream([((0, key, 0), True) for key in ("a", "b", "c")])[1]
    for _, changes in batches:
        before = {(row[0], row[1]) for row in table.rows}
        deltas = table.deltas(changes)
        after = {(row[0], row[1]) for row in table.rows}
        for number in range(deltas.num_rows):
            operator.on_rows(deltas.slice(number, 1), 1)
            operator.on_rows(asked, 0)
            there = Counter((row["number"], row["key"]) for row in out.take())
            assert max(there.values(), default=1) == 1
            assert there.keys() >= {row for row in before & after if row[1] is not None}


def test_rows_without_a_key_match_nothing_and_are_not_kept() -> None:
    operator, table = join(JoinType.LEFT), Merged()
    _, out = opened(operator)
    operator.on_rows(table.deltas([((1, None, 0), True)]), 1)
    assert stored(operator.snapshot()).tables["rows"] == []
    operator.on_rows(of_stream([((1, None, 0), True)])[1], 0)
    assert [row["number"] for row in out.rows()] == [None]


def test_a_table_without_rows_is_restored() -> None:
    operator = join(JoinType.LEFT)
    _, out = opened(operator)
    operator.restore([operator.snapshot()])
    operator.on_rows(of_stream([((1, "a", 0), True)])[1], 0)
    assert [row["number"] for row in out.rows()] == [None]


@given(BATCHES, HOWS, st.integers(0, 9), st.integers(0, 9), st.integers(1, 3))
def test_rows_wait_until_the_table_is_loaded(
    batches: list[Batch], how: JoinType, loaded: int, cut: int, parallelism: int
) -> None:
    table, instances = Merged(), Instances(lambda: join(how, load_first=True))
    expected, found, waiting = Counter[tuple[Any, ...]](), Counter[tuple[Any, ...]](), list[Row]()
    for position, (side, changes) in enumerate(batches):
        if position == loaded:
            assert not found
            instances.on_settled(1)
            expected += table.looked_up(waiting, how)
        if position == cut:
            found += values(instances.emitted())
            instances.go_on_as(parallelism)
        if side:
            instances.on_rows(table.deltas(changes), "key", 1)
        else:
            rows, batch = of_stream(changes)
            if position < loaded:
                waiting += rows
            else:
                expected += table.looked_up(rows, how)
            instances.on_rows(batch, "key", 0)
    assert found + values(instances.emitted()) == expected


def test_rows_wait_on_if_the_table_was_loaded_in_some_tasks_only() -> None:
    loaded, waiting = (join(JoinType.LEFT, load_first=True) for _ in range(2))
    for operator in (loaded, waiting):
        opened(operator)
    loaded.on_settled(1)
    operator = join(JoinType.LEFT, load_first=True)
    _, out = opened(operator)
    operator.restore([loaded.snapshot(), waiting.snapshot()])
    operator.on_rows(of_stream([((1, "a", 0), True)])[1], 0)
    assert out.rows() == []
    operator.on_settled(1)
    assert len(out.rows()) == 1


@pytest.mark.parametrize("load_first", [False, True])
def test_rows_that_wait_are_not_lost_if_the_job_no_longer_loads_first(load_first: bool) -> None:
    before, after = join(JoinType.LEFT, load_first=True), join(JoinType.LEFT, load_first)
    opened(before)
    before.on_rows(of_stream([((1, "a", 0), True)])[1], 0)
    _, out = opened(after)
    after.restore([stored(before.snapshot())])
    after.on_settled(1)
    assert len(out.rows()) == 1


def test_the_watermark_is_held_back_with_the_rows_that_wait() -> None:
    operator = join(JoinType.INNER, load_first=True)
    ctx, _ = opened(operator)
    ctx.watermark = 7
    operator.on_rows(of_stream([((1, "a", 0), True)])[1], 0)
    assert operator.on_watermark(7) == MIN_TIME
    assert operator.released() == MIN_TIME
    operator.on_settled(1)
    assert operator.released() == 7
