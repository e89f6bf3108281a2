"""Outer, semi and anti joins give what DuckDB gives for the rows that were in time, however these come."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import chain
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clonos_py.connectors import MemorySource
from clonos_py.model.joins import JoinColumns, JoinType
from clonos_py.model.record import Record
from clonos_py.model.state import OperatorState
from clonos_py.model.times import MAX_TIME
from clonos_py.model.windows import Hopping, Session, Tumbling
from clonos_py.operators.enrichment import Enrich
from clonos_py.operators.history_join import HistoryJoin
from clonos_py.operators.keyed_rows import KeyedRows
from clonos_py.operators.session_join import SessionJoin
from clonos_py.operators.version_join import VersionJoin
from clonos_py.operators.window_join import WindowJoin
from tests.unit.operators.join_histories import (
    Step,
    batch,
    histories_with_nulls,
    in_order,
    pairs,
    run,
    windows,
    windows_of,
)
from tests.unit.operators.scripted import advance, opened, schema

DATABASE = duckdb.connect(config={"threads": 1})
KEYED: JoinColumns = (("key", 0, "key"), ("left", 0, "name"), ("right", 1, "name"))
RESULT = schema(("key", pa.int64()), ("left", pa.string()), ("right", pa.string()))
some_bounds = st.tuples(st.integers(-40, 40), st.integers(-40, 40)).map(lambda two: (min(two), max(two)))
every_type = st.sampled_from(JoinType)
of_left = st.sampled_from([each for each in JoinType if not each.unmatched[1]])


def result_of(how: JoinType, *more: tuple[str, pa.DataType]) -> tuple[JoinColumns, pa.Schema]:
    """The columns of a result, with the key of the side that is always there, and its schema."""
    columns = KEYED if how.pairs else KEYED[:2]
    if how is JoinType.RIGHT:
        columns = (("key", 1, "key"), *columns[1:])
    names = [name for name, _, _ in columns]
    return columns, pa.schema([*(RESULT.field(name) for name in names), *(pa.field(*each) for each in more)])


def by_duckdb(how: JoinType, left: Sequence[Any], right: Sequence[Any], condition: str, more: str = "") -> list[Any]:
    """The join of rows (key, name, when, end) of both sides. ``more``: a further column of the result, of both."""
    tables = [
        pa.table([pa.array(column) for column in zip(*rows, strict=True)], schema=_TABLE)
        if rows
        else _TABLE.empty_table()
        for rows in (left, right)
    ]
    key = {JoinType.RIGHT: "r.key", JoinType.FULL: "coalesce(l.key, r.key)"}.get(how, "l.key")
    names = "l.name, r.name" if how.pairs else "l.name"
    further = "" if not more else f", coalesce(l.{more}, r.{more})" if how.pairs else f", l.{more}"
    for name, table in zip("lr", tables, strict=True):
        DATABASE.register(name, table)
    asked = f"SELECT {key}, {names}{further} FROM l {how.value} JOIN r ON l.key = r.key AND {condition}"
    return in_order(DATABASE.execute(asked).fetchall())


_TABLE = schema(("key", pa.int64()), ("name", pa.string()), ("time", pa.int64()), ("until", pa.int64()))


@settings(max_examples=200)
@given(every_type, histories_with_nulls, windows, st.integers(0, 14), st.integers(1, 3))
def test_window_joins_equal_duckdb(
    how: JoinType, history: list[Step], window: Tumbling | Hopping, rescale_at: int, parallelism: int
) -> None:
    columns, result = result_of(how, ("window_start", pa.int64()))
    found, seen = run(
        lambda: WindowJoin(["key"], ["key"], window, "at", "at", columns, result, how), history, rescale_at, parallelism
    )
    left, right = (
        [
            (key, name, start, None)
            for key, at, name, watermark in rows
            for start in windows_of(window, at)
            if watermark < start + window.size_us
        ]
        for rows in seen
    )
    assert found == by_duckdb(how, left, right, "l.time = r.time", "time")


class Sessions:
    """The sessions of one key, row by row."""

    def __init__(self) -> None:
        self.open: list[tuple[int, int, list[str]]] = []
        self.of: dict[str, int] = {}

    def take(self, rows: Sequence[tuple[int, str]], reached: int) -> None:
        """The rows of a batch come together."""
        new: list[tuple[int, int, list[str]]] = []
        for at, name in rows:
            new = _merged(new, (at, at + GAP, [name]))
        for start, end, names in new:
            meets = any(start <= other[1] and other[0] <= end for other in self.open)
            if meets or end > reached:
                self.open = _merged(self.open, (start, end, names))

    def advance(self, reached: int) -> None:
        for start, _, names in (ended := [one for one in self.open if one[1] <= reached]):
            self.of |= dict.fromkeys(names, start)
        self.open = [one for one in self.open if one not in ended]


def _merged(known: list[Any], one: tuple[int, int, list[str]]) -> list[Any]:
    met = [other for other in known if one[0] <= other[1] and other[0] <= one[1]]
    starts, ends, names = zip(one, *met, strict=True)
    return [*(other for other in known if other not in met), (min(starts), max(ends), [*chain.from_iterable(names)])]


GAP = 7


@settings(max_examples=300)
@given(every_type, histories_with_nulls, st.integers(0, 14), st.integers(1, 3))
def test_session_joins_equal_duckdb(how: JoinType, history: list[Step], rescale_at: int, parallelism: int) -> None:
    columns, result = result_of(how, ("window_start", pa.int64()))
    key_fields = pa.schema([("key", pa.int64())])
    found, seen = run(
        lambda: SessionJoin(key_fields, ["key"], Session(GAP), "at", "at", columns, result, how),
        history,
        rescale_at,
        parallelism,
    )
    session_of = sessions(how, history)
    left, right = (
        [(key, name, session_of[name], None) for key, _, name, _ in rows if name in session_of] for rows in seen
    )
    assert found == by_duckdb(how, left, right, "l.time = r.time", "time")


def sessions(how: JoinType, history: list[Step]) -> dict[str, int]:
    """By row that is not late and may be in a result: the start of its session."""
    by_key: defaultdict[int | None, Sessions] = defaultdict(Sessions)
    watermark = -1_000
    for number, step in enumerate([*history, MAX_TIME]):
        if isinstance(step, int):
            if step > watermark:
                watermark = step
                for known in by_key.values():
                    known.advance(watermark if watermark == MAX_TIME else watermark - 1)
            continue
        side, rows = step
        of_key: defaultdict[int | None, list[tuple[int, str]]] = defaultdict(list)
        for i, (key, at) in enumerate(rows):
            if key is not None or how.unmatched[side]:
                of_key[key].append((at, f"{number}.{i}"))
        for key, own in of_key.items():
            by_key[key].take(own, watermark - 1)
    return {name: start for known in by_key.values() for name, start in known.of.items()}


@settings(max_examples=200)
@given(every_type, histories_with_nulls, st.integers(0, 14), st.integers(1, 3), some_bounds)
def test_interval_joins_equal_duckdb(
    how: JoinType, history: list[Step], rescale_at: int, parallelism: int, bounds: tuple[int, int]
) -> None:
    columns, result = result_of(how)
    found, seen = run(
        lambda: HistoryJoin(["key"], ["key"], columns, result, bounds, "at", "at", how=how),
        history,
        rescale_at,
        parallelism,
    )
    left, right = ([(k, name, at, None) for k, at, name, watermark in rows if at >= watermark] for rows in seen)
    assert found == by_duckdb(how, left, right, f"r.time - l.time BETWEEN {bounds[0]} AND {bounds[1]}")


@settings(max_examples=200)
@given(every_type, histories_with_nulls, st.integers(0, 14), st.integers(1, 3))
def test_joins_until_a_time_of_the_left_row_equal_duckdb(
    how: JoinType, history: list[Step], rescale_at: int, parallelism: int
) -> None:
    columns, result = result_of(how)
    found, seen = run(
        lambda: _Lasting(["key"], ["key"], columns, result, (0, "end"), "at", "at", how=how),
        history,
        rescale_at,
        parallelism,
    )
    left, right = (
        [(k, name, at, at + lasts(at)) for k, at, name, watermark in rows if at >= watermark] for rows in seen
    )
    assert found == by_duckdb(how, left, right, "r.time BETWEEN l.time AND l.until")


def lasts(at: int) -> int:
    """How long the left row of a time lasts; less than nothing for some."""
    return at * 7 % 40 - 5


class _Lasting(HistoryJoin):
    """Gives left rows their end."""

    def on_rows(self, rows: pa.RecordBatch, side: int) -> None:
        ends = [at + lasts(at) for at in rows.column("at").to_numpy().tolist()]
        super().on_rows(rows.append_column("end", pa.array(ends, pa.int64())), side)


@given(histories_with_nulls, st.integers(0, 14), st.integers(1, 3))
def test_a_semi_join_without_bounds_gives_each_left_row_with_its_first_match(
    history: list[Step], rescale_at: int, parallelism: int
) -> None:
    how = JoinType.SEMI
    columns, result = result_of(how)
    found, seen = run(lambda: HistoryJoin(["key"], ["key"], columns, result, how=how), history, rescale_at, parallelism)
    left, right = ([(key, name, at, None) for key, at, name, _ in rows] for rows in seen)
    assert found == by_duckdb(how, left, right, "true")


@settings(max_examples=200)
@given(of_left, histories_with_nulls, st.integers(0, 14), st.integers(1, 3), st.none() | st.integers(0, 30))
def test_joins_with_versions_give_rows_without_one_as_asked(
    how: JoinType, history: list[Step], rescale_at: int, parallelism: int, oldest: int | None
) -> None:
    """Which version holds is tested with inner joins."""

    def joined(how: JoinType) -> tuple[list[Any], Any]:
        columns, result = result_of(how)
        return run(
            lambda: VersionJoin(["key"], ["key"], "at", "at", columns, result, oldest, how),
            history,
            rescale_at,
            parallelism,
        )

    found, (left, _) = joined(how)
    inner, _ = joined(JoinType.INNER)
    matched = {row[1] for row in inner}
    alone = [(key, name) for key, at, name, watermark in left if at >= watermark and name not in matched]
    expected = {
        JoinType.INNER: inner,
        JoinType.LEFT: [*inner, *((*row, None) for row in alone)],
        JoinType.SEMI: [row[:2] for row in inner],
        JoinType.ANTI: alone,
    }
    assert found == in_order(expected[how])


class Side(Record):
    key: int
    name: str


@settings(max_examples=200)
@given(of_left, st.lists(st.none() | st.integers(0, 5)), st.lists(st.integers(0, 5)), st.booleans())
def test_enrichment_equals_duckdb(how: JoinType, left: list[int | None], right: list[int], distinct: bool) -> None:
    sides = [Side(key, f"r{n}") for n, key in enumerate(dict.fromkeys(right) if distinct else right)]
    source = MemorySource(sides, schema=Side)
    columns, result = result_of(how)
    operator = Enrich(lambda: source.create((None,)), Side.schema(), ["key"], ["key"], columns, result, how)
    _, out = opened(operator)
    rows = [(key, 0, f"l{number}") for number, key in enumerate(left)]
    operator.on_rows(batch(rows), 0)
    asked = [(key, name, at, None) for key, at, name in rows]
    expected = by_duckdb(how, asked, [(side.key, side.name, 0, None) for side in sides], "true")
    assert in_order(pairs(out)) == expected


def test_rows_without_a_match_come_in_their_place_and_when_none_can_come() -> None:
    columns, result = result_of(JoinType.FULL)
    operator = HistoryJoin(["key"], ["key"], columns, result, (-10, 5), "at", "at", how=JoinType.FULL)
    ctx, out = opened(operator)
    operator.on_rows(batch([(1, 10, "a"), (2, 12, "b"), (None, 11, "null"), (2, 11, "c")]), 0)
    assert pairs(out) == [(None, "null", None)], "a row with a null key has no match, whatever comes"
    operator.on_rows(batch([(1, 15, "x"), (2, 18, "y")]), 1)
    assert pairs(out)[1:] == [(1, "a", "x")]
    advance(operator, ctx, 16)
    assert pairs(out)[2:] == []
    advance(operator, ctx, 18)
    assert pairs(out)[2:] == [(2, "b", None), (2, "c", None)]
    advance(operator, ctx, 28)
    assert pairs(out)[4:] == []
    advance(operator, ctx, 29)
    assert pairs(out)[4:] == [(2, None, "y")]


def test_rows_leave_the_state_with_their_session() -> None:
    columns, result = result_of(JoinType.INNER)
    key_fields = pa.schema([("key", pa.int64())])
    operator = SessionJoin(key_fields, ["key"], Session(GAP), "at", "at", columns, result)
    ctx, out = opened(operator)
    operator.on_rows(batch([(1, 10, "a"), (2, 12, "b"), (1, 30, "c")]), 0)
    operator.on_rows(batch([(1, 14, "x"), (2, 40, "y")]), 1)
    advance(operator, ctx, 21)
    assert pairs(out) == []
    advance(operator, ctx, 22)
    assert pairs(out) == [(1, "a", "x")]
    assert live_rows(operator.snapshot(), "left") == live_rows(operator.snapshot(), "right") == 1


def live_rows(state: OperatorState, table: str) -> int:
    rows = KeyedRows(["key"], table)
    rows.restore([state], range(128))
    return rows.live_row_count


@pytest.mark.parametrize(
    ("how", "bounds", "held_back"),
    [
        (JoinType.INNER, (-10, 5), 0),
        (JoinType.LEFT, (-10, 5), 5),
        (JoinType.SEMI, (-10, 5), 5),
        (JoinType.ANTI, (-10, -5), 0),
        (JoinType.RIGHT, (-10, 5), 10),
        (JoinType.RIGHT, (2, 5), 0),
        (JoinType.FULL, (-10, 5), 0),
    ],
)
def test_the_watermark_waits_for_rows_that_come_later_than_their_time(
    how: JoinType, bounds: tuple[int, int], held_back: int
) -> None:
    columns, result = result_of(how)
    operator = HistoryJoin(["key"], ["key"], columns, result, bounds, "at", "at", how=how)
    ctx, _ = opened(operator)
    assert advance(operator, ctx, 100) == 100 - held_back
    assert advance(operator, ctx, MAX_TIME) == MAX_TIME


@pytest.mark.parametrize("how", list(JoinType))
def test_one_side_may_have_no_rows(how: JoinType) -> None:
    columns, result = result_of(how, ("window_start", pa.int64()))
    for side in (0, 1):
        operator = WindowJoin(["key"], ["key"], Tumbling(10), "at", "at", columns, result, how)
        ctx, out = opened(operator)
        operator.on_rows(batch([(1, 5, "a")]), side)
        advance(operator, ctx, 10)
        alone = [(1, *("a" if at == side else None for at in (0, 1) if at == 0 or how.pairs), 0)]
        assert pairs(out) == (alone if how.unmatched[side] else []), side
