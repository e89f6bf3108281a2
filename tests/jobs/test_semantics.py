"""Results of verbs of rows, compared with plain Python over the same rows, while tasks are killed."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from clonos_py import Job, Record, Stream, col, testing
from clonos_py.connectors import MemorySink
from tests.jobs.rows import (
    BY_KEY,
    EVENTS,
    IN_FOURS,
    KEYS,
    SECOND,
    SEEDS,
    Body,
    Event,
    Pair,
    both_parallelisms,
    ran,
    started,
    values,
)


def doubled(event: Event) -> Pair:
    return Pair(event.key, event.value * 2)


def repeated(event: Event) -> Iterator[Pair]:
    for number in range(event.id % 3):
        yield Pair(event.key, number)


def incremented(batch: pa.RecordBatch) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([batch["key"], pc.add(batch["value"], 1)], schema=Pair.schema())


def incremented_table(table: pa.Table) -> pa.Table:
    return pa.table({"value": pc.add(table["value"], 1), "key": table["key"]})


def incremented_by_pandas(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.assign(value=frame["value"] + 1)


def incremented_by_polars(frame: pl.DataFrame) -> pl.DataFrame:
    return frame.select(pl.col("value") + 1, "key")


def incremented_by_numpy(event: Event) -> Pair:
    return Pair(np.str_(event.key), np.int64(event.value) + 1)  # type: ignore[arg-type]


class Keyed(Record):
    key: str


def reunited(events: Stream[Event]) -> Stream[Pair]:
    positive, others = events.filter(col("value") > 0), events.filter(col("value") <= 0).rebalance()
    return positive.union(others).select(Pair)


def passing(ttl: int) -> list[Event]:
    """The rows without duplicates, in the order of arrival: four at once, event time after them."""
    last: dict[str, int] = {}
    found: list[Event] = []
    for start in range(0, len(EVENTS), 4):
        watermark = max((event.at for event in EVENTS[:start]), default=0) - 4 * SECOND
        for event in EVENTS[start : start + 4]:
            now = max(event.at, watermark)
            if event.key not in last or now - last[event.key] >= ttl:
                last[event.key] = now
                found.append(event)
    return found


ROW_VERBS: Mapping[str, tuple[Body, Sequence[Record]]] = {
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
    "map_batches of tables": (
        lambda events: events.map_batches(incremented_table, returns=Pair),
        [Pair(e.key, e.value + 1) for e in EVENTS],
    ),
    "map_batches of pandas": (
        lambda events: events.map_batches(incremented_by_pandas, returns=Pair),
        [Pair(e.key, e.value + 1) for e in EVENTS],
    ),
    "map_batches of Polars": (
        lambda events: events.map_batches(incremented_by_polars, returns=Pair),
        [Pair(e.key, e.value + 1) for e in EVENTS],
    ),
    "map to values of NumPy": (
        lambda events: events.map(incremented_by_numpy),
        [Pair(e.key, e.value + 1) for e in EVENTS],
    ),
    "distinct": (
        lambda events: events.distinct("key", "value").select(Pair),
        list(dict.fromkeys(Pair(e.key, e.value) for e in EVENTS)),
    ),
    "distinct with a ttl": (
        lambda events: events.rebalance().distinct("key", ttl="1h").select("key"),
        [Keyed(key) for key in KEYS],
    ),
    "distinct for a while": (lambda events: events.distinct("key", ttl="5s"), passing(5 * SECOND)),
    "union": (reunited, [Pair(e.key, e.value) for e in EVENTS]),
}


@both_parallelisms
@pytest.mark.parametrize("verb", ROW_VERBS)
def test_verbs_of_rows_equal_plain_python(verb: str, parallelism: int) -> None:
    body, expected = ROW_VERBS[verb]
    assert values(ran(body, parallelism)) == values(expected)


@both_parallelisms
def test_operators_run_with_the_parallelism_they_ask_for(parallelism: int) -> None:
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
def test_failed_rows_are_caught_once_each(parallelism: int) -> None:
    job = Job("semantics")
    good, failed = started(job).map(fails_for_some).named("picky").catch()
    good.rebalance().sink(MemorySink()).named("good")
    failed.sink(MemorySink()).named("failed")
    out = testing.run(job, {"in": IN_FOURS}, kills=2, seeds=SEEDS, parallelism=parallelism)
    assert values(out["good"]) == values([Pair(e.key, e.value) for e in EVENTS if e.id % 10 not in (3, 4)])
    assert sorted(json.loads(letter.record)["id"] for letter in out["failed"]) == [
        event.id for event in EVENTS if event.id % 10 in (3, 4)
    ]
    assert {letter.operator for letter in out["failed"]} == {"picky"}
