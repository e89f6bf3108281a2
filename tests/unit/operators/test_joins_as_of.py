"""Joins with the version that holds: the latest right row of the key that is not later than the left one."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clonos_py.columns.views import Ints
from clonos_py.model.joins import JoinType
from clonos_py.model.times import MAX_TIME
from clonos_py.operators import keyed_rows, version_join
from clonos_py.operators.keyed_rows import KeyedRows
from clonos_py.operators.version_join import VersionJoin
from tests.unit.operators.join_histories import (
    COLUMNS,
    PAIR,
    Row,
    Step,
    batch,
    histories_with_nulls,
    in_order,
    pairs,
    run,
)
from tests.unit.operators.scripted import advance, opened


def as_of(oldest: int | None = None, how: JoinType = JoinType.INNER) -> VersionJoin:
    return VersionJoin(["key"], ["key"], "at", "at", COLUMNS, PAIR, oldest, how)


def test_a_row_meets_the_latest_earlier_version_when_no_other_can_come() -> None:
    operator = as_of()
    ctx, out = opened(operator)
    operator.on_rows(batch([(1, 15, "b"), (1, 9, "early"), (1, 10, "a"), (2, 15, "other")]), 0)
    operator.on_rows(batch([(1, 10, "r10"), (1, 16, "r16"), (1, 14, "r14"), (1, 14, "r14 again")]), 1)
    advance(operator, ctx, 15)
    assert pairs(out) == [("a", "r10")]
    operator.on_rows(batch([(1, 15, "r15")]), 1)
    advance(operator, ctx, 16)
    assert pairs(out)[1:] == [("b", "r15")]
    operator.on_rows(batch([(1, 20, "c")]), 0)
    advance(operator, ctx, 21)
    assert pairs(out)[2:] == [("c", "r16")]


def test_of_versions_with_the_same_time_the_last_one_counts() -> None:
    operator = as_of()
    ctx, out = opened(operator)
    for name in ("first", "second"):
        operator.on_rows(batch([(1, 10, name)]), 1)
    operator.on_rows(batch([(1, 10, "a")]), 0)
    advance(operator, ctx, 11)
    assert pairs(out) == [("a", "second")]


def test_a_version_that_is_too_old_is_not_joined() -> None:
    operator = as_of(oldest=5)
    ctx, out = opened(operator)
    operator.on_rows(batch([(1, 10, "r")]), 1)
    operator.on_rows(batch([(1, 15, "a"), (1, 16, "b")]), 0)
    advance(operator, ctx, 20)
    assert pairs(out) == [("a", "r")]


def test_rows_without_key_or_time_and_late_left_rows_match_nothing_and_are_counted() -> None:
    operator = as_of()
    ctx, out = opened(operator)
    advance(operator, ctx, 1)
    for side in (0, 1):
        operator.on_rows(batch([(None, 1, "n"), (1, None, "t"), (1, 0, "late"), (1, 1, "a")]), side)
    advance(operator, ctx, 10)
    assert pairs(out) == [("a", "a")]
    assert ctx.counted == {"null_key_rows": 2, "null_time_rows": 2, "late_rows": 1}


def test_a_late_version_holds_for_rows_that_have_not_been_joined() -> None:
    operator = as_of()
    ctx, out = opened(operator)
    operator.on_rows(batch([(1, 0, "old")]), 1)
    operator.on_rows(batch([(1, 12, "joined"), (1, 20, "waiting")]), 0)
    advance(operator, ctx, 20)
    operator.on_rows(batch([(1, 10, "late"), (1, 5, "later, but older")]), 1)
    operator.on_rows(batch([(1, 30, "next")]), 0)
    advance(operator, ctx, 31)
    assert pairs(out) == [("joined", "old"), ("waiting", "late"), ("next", "late")]
    assert not ctx.counted


def test_many_rows_and_versions_of_one_key_take_linear_work(monkeypatch: pytest.MonkeyPatch) -> None:
    candidates: list[int] = []
    find = KeyedRows.find

    def counted(self: KeyedRows, rows: pa.RecordBatch, **more: Any) -> tuple[Ints, Ints]:
        found = find(self, rows, **more)
        candidates.append(len(found[1]))
        return found

    monkeypatch.setattr(KeyedRows, "find", counted)
    operator = as_of()
    ctx, out = opened(operator)
    operator.on_rows(batch([(1, at, f"r{at}") for at in range(0, 2_000, 2)]), 1)
    operator.on_rows(batch([(1, at, f"a{at}") for at in range(2_000)]), 0)
    advance(operator, ctx, 3_000)
    assert pairs(out) == [(f"a{at}", f"r{at // 2 * 2}") for at in range(2_000)]
    assert candidates == [1_000]


@pytest.mark.parametrize(("oldest", "kept"), [(None, 5 + 1 + 1 + 1), (5, 5 + 1 + 1)])
def test_versions_that_no_row_in_time_can_need_are_dropped(
    oldest: int | None, kept: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The versions of the first key from the watermark on and the one before it, and the last one of each other key."""
    monkeypatch.setattr(version_join, "_FEW_ROWS", 0)
    operator = as_of(oldest)
    ctx, _ = opened(operator)
    operator.on_rows(batch([(1, at, "v") for at in range(0, 100, 2)]), 1)
    operator.on_rows(batch([(2, at, "v") for at in range(88)] + [(3, 10, "v")]), 1)
    advance(operator, ctx, 90)
    assert operator._versions.live_row_count == kept


def joined_at(history: list[Step], at: int, came: int) -> int:
    """The number of the step at which a left row is joined: the first watermark after it that passes its time."""
    return next((n for n, step in enumerate(history) if n > came and isinstance(step, int) and step > at), len(history))


@given(
    histories_with_nulls,
    st.integers(0, 14),
    st.integers(1, 3),
    st.none() | st.integers(0, 40),
    st.booleans(),
    st.sampled_from([how for how in JoinType if how.pairs]),
)
def test_joins_as_of_equal_their_definition(
    history: list[Step], rescale_at: int, parallelism: int, oldest: int | None, forgets: bool, how: JoinType
) -> None:
    few = version_join._FEW_ROWS, keyed_rows._DEAD_ROWS
    version_join._FEW_ROWS, keyed_rows._DEAD_ROWS = (0, 0) if forgets else few
    try:
        found, (left, right) = run(lambda: as_of(oldest, how), history, rescale_at, parallelism)
    finally:
        version_join._FEW_ROWS, keyed_rows._DEAD_ROWS = few
    matches: list[tuple[str, str | None]] = []
    for key, at, name, met in left:
        joined = joined_at(history, at, int(name.split(".")[0]))
        known = [row[:3] for row in right if int(row[2].split(".")[0]) < joined]
        versions = [(since, number) for number, (k, since, _) in enumerate(known) if k == key and since <= at]
        if at >= met:
            holds = key is not None and versions and (oldest is None or max(versions)[0] >= at - oldest)
            matches.append((name, right[max(versions)[1]][2] if holds else None))
    pairs_found = [pair for pair in matches if pair[1] is not None]
    alone = [pair for pair in matches if pair[1] is None]
    used = {version for _, version in pairs_found}
    unused = [(None, name) for _, _, name, _ in right if name not in used]
    expected = [*pairs_found, *(alone if how.unmatched[0] else []), *(unused if how.unmatched[1] else [])]
    assert found == in_order(expected)


@pytest.mark.parametrize("how", [JoinType.RIGHT, JoinType.FULL])
def test_a_version_that_no_row_has_had_comes_when_none_can_have_it(how: JoinType) -> None:
    operator = as_of(how=how)
    ctx, out = opened(operator)
    versions: list[Row] = [(1, 10, "r10"), (1, 20, "r20"), (1, 20, "r20 again"), (2, 10, "other"), (None, 1, "n")]
    operator.on_rows(batch(versions), 1)
    assert pairs(out) == [(None, "n")]
    operator.on_rows(batch([(1, 12, "a")]), 0)
    advance(operator, ctx, 20)
    assert pairs(out)[1:] == [("a", "r10")], "a row at 20 may still come, and a version in its stead"
    advance(operator, ctx, 21)
    assert pairs(out)[2:] == [(None, "r20")], "r10 has been had"
    operator.on_rows(batch([(1, 15, "late")]), 1)
    advance(operator, ctx, 22)
    assert pairs(out)[3:] == [(None, "late")], "a later version holds already"
    operator.on_rows(batch([(2, 30, "b")]), 0)
    advance(operator, ctx, MAX_TIME)
    assert pairs(out)[4:] == [("b", "other"), (None, "r20 again")]


def test_a_version_that_no_row_has_had_comes_when_it_is_too_old() -> None:
    operator = as_of(oldest=5, how=JoinType.RIGHT)
    ctx, out = opened(operator)
    operator.on_rows(batch([(1, 10, "r")]), 1)
    advance(operator, ctx, 15)
    assert pairs(out) == []
    advance(operator, ctx, 16)
    assert pairs(out) == [(None, "r")]
    assert operator._versions.live_row_count == 0


def test_pairs_come_in_the_order_of_the_times_of_left_rows() -> None:
    operator = as_of()
    ctx, out = opened(operator)
    rows: list[Row] = [(1, 12, "b"), (1, 11, "a"), (2, 12, "c")]
    operator.on_rows(batch(rows), 0)
    operator.on_rows(batch([(1, 0, "r"), (2, 0, "r")]), 1)
    advance(operator, ctx, 13)
    assert [left for left, _ in pairs(out)] == ["a", "b", "c"]
