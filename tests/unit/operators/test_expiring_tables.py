"""Aggregates and top-n with a time to live: equal to an oracle after every batch and watermark, followed by deltas."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clonos_py.model.aggregates import NEWEST, Aggregate
from clonos_py.model.operators import Operator
from clonos_py.model.tables import SortKey, weighted_schema
from clonos_py.model.times import MAX_TIME
from clonos_py.operators import keyed_chunks
from clonos_py.operators.tables import TableAggregate, TableCombine
from clonos_py.operators.top import TopRows
from tests.unit.operators.scripted import Instances, compacted_early, opened, schema

TTL = 20
INPUT = schema(("key", pa.string()), ("value", pa.int64()), ("at", pa.int64()))
AGGREGATES = (
    Aggregate("count", None, "rows", pa.int64()),
    Aggregate("max", "value", "most", pa.int64()),
    Aggregate("count_distinct", "value", "values", pa.int64()),
    Aggregate("max", "at", NEWEST, pa.int64()),
)
TOTALS = schema(("key", pa.string()), ("rows", pa.int64()), ("most", pa.int64()), ("values", pa.int64()))
RANKED = schema(("key", pa.string()), ("value", pa.int64()), ("place", pa.int64()))

Row = tuple[str, int, int]
Step = list[Row] | int
"""Rows of key, value and event time, or a step of the watermark."""

STEPS: st.SearchStrategy[list[Step]] = st.lists(
    st.one_of(
        st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 3), st.integers(0, 90)), max_size=6),
        st.integers(0, 15),
    ),
    max_size=12,
)


@pytest.fixture(autouse=True, scope="module")
def _state_is_compacted_early() -> Iterator[None]:
    with compacted_early((keyed_chunks, "_BATCH_ROWS", 3)):
        yield


def totals(combined: bool = False) -> TableAggregate:
    return TableAggregate(
        ("key",), AGGREGATES, weighted_schema(TOTALS), "deltas", combined=combined, ttl_us=TTL
    )  # fmt: skip


def top() -> TopRows:
    order = [SortKey("value", descending=True)]
    return TopRows(("key",), 3, order, weighted_schema(RANKED), "deltas", "place", ttl_us=TTL, time_column="at")


class Totals:
    """What the rows of each key since it last expired add up to. Time passes with the watermark and with new rows."""

    def __init__(self) -> None:
        self.kept: dict[str, list[Row]] = {}

    def take(self, rows: list[Row], watermark: int) -> None:
        for key in {row[0] for row in rows}:
            self._expire(key, max(watermark, *(row[2] for row in rows if row[0] == key)))
        for row in rows:
            self.kept.setdefault(row[0], []).append(row)

    def expired(self, watermark: int) -> None:
        for key in list(self.kept):
            self._expire(key, watermark)

    def _expire(self, key: str, watermark: int) -> None:
        if key in self.kept and max(row[2] for row in self.kept[key]) <= watermark - TTL:
            del self.kept[key]

    @property
    def rows(self) -> Counter[tuple[Any, ...]]:
        found = ((key, [row[1] for row in rows]) for key, rows in self.kept.items())
        return Counter((key, len(values), max(values), len(set(values))) for key, values in found)


class Top(Totals):
    """The three highest values of each key; a row that drops out does not return. Of equal ones the first stays."""

    def take(self, rows: list[Row], watermark: int) -> None:
        super().take(rows, watermark)
        for key, kept in self.kept.items():
            self.kept[key] = sorted(kept, key=lambda row: -row[1])[:3]

    def _expire(self, key: str, watermark: int) -> None:
        if key in self.kept:
            self.kept[key] = [row for row in self.kept[key] if row[2] > watermark - TTL]

    @property
    def rows(self) -> Counter[tuple[Any, ...]]:
        return Counter((key, row[1], place) for key, rows in self.kept.items() for place, row in enumerate(rows, 1))


def batch(rows: list[Row]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([dict(zip(INPUT.names, row, strict=True)) for row in rows], INPUT)


def added(there: Counter[tuple[Any, ...]], deltas: list[dict[str, Any]]) -> None:
    for delta in deltas:
        *values, weight = delta.values()
        there[tuple(values)] += weight
        assert there[tuple(values)] in (0, 1)


@pytest.mark.parametrize("make", ["totals", "combined", "top"])
@given(steps=STEPS)
def test_deltas_follow_the_rows_that_have_not_expired(make: str, steps: list[Step]) -> None:
    operator: Operator = top() if make == "top" else totals(make == "combined")
    ctx, out = opened(operator)
    combine = TableCombine(("key",), AGGREGATES)
    _, reduced = opened(combine)
    oracle = Top() if make == "top" else Totals()
    there: Counter[tuple[Any, ...]] = Counter()
    watermark = 0
    for step in steps:
        if isinstance(step, int):
            watermark += step
            ctx.watermark, before = watermark, operator._expiry._swept  # type: ignore[attr-defined]
            operator.on_watermark(watermark)
            if operator._expiry._swept != before:  # type: ignore[attr-defined]
                oracle.expired(watermark)
        elif make == "combined":
            combine.on_rows(batch(step), 0)
            for _, rows in reduced.batches:
                operator.on_rows(rows, 0)
            reduced.batches = []
            oracle.take(step, watermark)
        else:
            operator.on_rows(batch(step), 0)
            oracle.take(step, watermark)
        added(there, out.take())
        assert +there == oracle.rows
    operator.on_watermark(MAX_TIME)
    assert out.take() == [], "nothing expires because the input has ended"


@pytest.mark.parametrize("make", [totals, top])
@given(steps=STEPS, cut=st.integers(0, 11), parallelism=st.integers(1, 3))
def test_a_restored_table_continues_at_another_parallelism(
    make: Any, steps: list[Step], cut: int, parallelism: int
) -> None:
    instances, oracle = Instances(make), Top() if make is top else Totals()
    there: Counter[tuple[Any, ...]] = Counter()
    watermark = 0
    for position, step in enumerate(steps):
        if position == cut:
            added(there, instances.emitted())
            instances.go_on_as(parallelism)
        if isinstance(step, int):
            watermark += step
        instances.advance(watermark)
        if not isinstance(step, int):
            instances.on_rows(batch(step), "key")
            oracle.take(step, watermark)
    watermark += TTL // 2
    instances.advance(watermark)
    oracle.expired(watermark)
    added(there, instances.emitted())
    assert +there == oracle.rows
