"""What verbs of rows give, compared with plain Python over the same rows, while tasks are killed."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from clonos_py import Job, Stream, col, testing
from clonos_py.connectors import MemorySink
from tests.jobs.rows import BY_KEY, EVENTS, IN_FOURS, Body, Event, Pair, both_parallelisms, ran, started, values


def doubled(event: Event) -> Pair:
    return Pair(event.key, event.value * 2)


def repeated(event: Event) -> Iterator[Pair]:
    for number in range(event.id % 3):
        yield Pair(event.key, number)


def incremented(batch: pa.RecordBatch) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([batch["key"], pc.add(batch["value"], 1)], schema=Pair.schema())


def reunited(events: Stream[Event]) -> Stream[Pair]:
    positive, others = events.filter(col("value") > 0), events.filter(col("value") <= 0).rebalance()
    return positive.union(others).select(Pair)


ROW_VERBS: Mapping[str, tuple[Body, list[Pair]]] = {
    "map": (lambda events: events.map(doubled), [Pair(e.key, e.value * 2) for e in EVENTS]),
    "flat_map": (
        lambda events: events.flat_map(repeated).rebalance(),
        [Pair(e.key, number) for e in EVENTS for number in range(e.id % 3)],
    ),
    "filter by function": (
        lambda events: events.filter(lambda event: event.value > 0).rebalance().select(Pair),
        [Pair(e.key, e.value) for e in EVENTS if e.value > 0],
    ),
    "filter, null is not true": (
        lambda events: events.filter(col("note") != "n3").select(Pair, value=col("value") * 2 + 1),
        [Pair(e.key, e.value * 2 + 1) for e in EVENTS if e.note not in (None, "n3")],
    ),
    "map_batches": (
        lambda events: events.map_batches(incremented, returns=Pair),
        [Pair(e.key, e.value + 1) for e in EVENTS],
    ),
    "union": (reunited, [Pair(e.key, e.value) for e in EVENTS]),
}


@both_parallelisms
@pytest.mark.parametrize("verb", ROW_VERBS)
def test_verbs_of_rows(verb: str, parallelism: int) -> None:
    body, expected = ROW_VERBS[verb]
    assert values(ran(body, parallelism)) == values(expected)


@both_parallelisms
def test_operators_with_as_many_tasks_as_they_ask_for(parallelism: int) -> None:
    def body(events: Stream[Event]) -> Stream[Any]:
        keyed = events.parallelism(1).map(doubled).parallelism(3).key_by("key")
        return keyed.aggregate(sum=col("value").sum()).parallelism(2).at_end().filter(col("sum") != 0).parallelism(1)

    sums = {key: sum(2 * event.value for event in events) for key, events in BY_KEY.items()}
    assert values(ran(body, parallelism)) == Counter((key, total) for key, total in sums.items() if total)


def fails_for_some(event: Event) -> Pair:
    if event.id % 10 == 3:
        raise ValueError(f"number {event.id}")
    return Pair(event.key, event.value if event.id % 10 != 4 else "text")  # type: ignore[arg-type]


@both_parallelisms
def test_failed_rows_are_caught_each_once(parallelism: int) -> None:
    job = Job("semantics")
    good, failed = started(job).map(fails_for_some).named("picky").catch()
    good.rebalance().sink(MemorySink()).named("good")
    failed.sink(MemorySink()).named("failed")
    out = testing.run(job, {"in": IN_FOURS}, kills=2, seeds=6, parallelism=parallelism)
    assert values(out["good"]) == values([Pair(e.key, e.value) for e in EVENTS if e.id % 10 not in (3, 4)])
    assert sorted(json.loads(letter.record)["id"] for letter in out["failed"]) == [
        event.id for event in EVENTS if event.id % 10 in (3, 4)
    ]
    assert {letter.operator for letter in out["failed"]} == {"picky"}
