"""Unions by name: columns in any order, and null where a stream lacks one, whatever dies."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from clonos_py import Job, Stream, col, count, lit, testing, tumbling
from clonos_py.connectors import MemorySink
from clonos_py.model.errors import GraphError
from tests.jobs.rows import EVENTS, IN_FOURS, started


def both(events: Stream[Any]) -> Stream[Any]:
    positive = events.filter(col("value") >= 0).select("at", "id", kind=lit("up"))
    negative = events.filter(col("value") < 0).select("id", "note", "at")
    return positive.union(negative, by_name=True)


@pytest.mark.parametrize("parallelism", [1, 3])
def test_a_union_by_name_has_all_columns_and_nulls(parallelism: int) -> None:
    job = Job("unions")
    both(started(job)).sink(MemorySink()).named("out")
    out = testing.run(job, {"in": IN_FOURS}, kills=2, seeds=2, parallelism=parallelism)["out"]
    fields = both(started(Job("unions"))).schema
    assert [(field.name, field.nullable) for field in fields] == [
        ("at", False), ("id", False), ("kind", True), ("note", True),
    ]  # fmt: skip
    expected = [(e.at, e.id, "up", None) if e.value >= 0 else (e.at, e.id, None, e.note) for e in EVENTS]
    assert sorted((row.at, row.id, row.kind, row.note) for row in out) == sorted(expected, key=lambda row: row[:2])


def test_the_event_time_goes_on_if_all_streams_have_it_in_a_column_of_that_name() -> None:
    job = Job("unions")
    both(started(job)).window(tumbling("5s")).aggregate(n=count()).sink(MemorySink()).named("out")
    out = testing.run(job, {"in": IN_FOURS})["out"]
    assert sum(row.n for row in out) == len(EVENTS)


def test_columns_of_any_type_may_be_null() -> None:
    kinds = [
        pa.timestamp("us", "UTC"),
        pa.date32(),
        pa.decimal128(18, 2),
        pa.list_(pa.int64()),
        pa.bool_(),
        pa.binary(),
    ]
    rows = started(Job("unions")).select("id")
    for kind in kinds:
        assert rows.with_columns(more=lit(None).cast(kind)).schema.field("more").type == kind


def test_columns_of_other_types_are_refused() -> None:
    events = started(Job("unions"))
    with pytest.raises(GraphError, match=r"column 'id' is int64 in one, string in the other: cast\(\) one"):
        events.select("id").union(events.select(id=col("key")), by_name=True)
    with pytest.raises(GraphError, match="by_name=True, which gives null where a stream lacks a column"):
        events.select("id").union(events.select("id", "key"))
