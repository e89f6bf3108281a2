"""Jobs whose rows carry aggregates of their last rows give what DuckDB gives, whatever dies."""

from __future__ import annotations

from collections import Counter
from typing import Any

import duckdb
import pytest

from clonos_py import Instant, Record, Stream, col, count, last, tumbling
from tests.jobs.rows import EVENTS, Event, both_parallelisms, ran, values

FRAMES = {
    "span": (last("3s"), "ORDER BY time RANGE BETWEEN 3000000 PRECEDING AND CURRENT ROW"),
    "rows": (last(rows=3), "ORDER BY time, id ROWS BETWEEN 2 PRECEDING AND CURRENT ROW"),
}


class Featured(Record):
    id: int
    at: Instant
    total: int
    rows: int
    most: int
    words: int


def by_duckdb(frame: str, columns: str, more: str = "PARTITION BY key") -> Counter[tuple[Any, ...]]:
    with duckdb.connect(config={"threads": 1}) as database:
        database.execute("CREATE TABLE e (id BIGINT, key TEXT, value BIGINT, time BIGINT, note TEXT)")
        database.executemany(
            "INSERT INTO e VALUES (?, ?, ?, ?, ?)", [(e.id, e.key, e.value, e.at, e.note) for e in EVENTS]
        )
        return Counter(database.execute(f"SELECT {columns} FROM e WINDOW w AS ({more} {frame})").fetchall())


@both_parallelisms
@pytest.mark.parametrize("frame", FRAMES.values(), ids=FRAMES)
def test_aggregates_of_the_last_rows_equal_duckdb(frame: Any, parallelism: int) -> None:
    def body(events: Stream[Event]) -> Stream[Any]:
        words = col("note").count_distinct()
        featured = events.select("id", "at", "note", "value", letter=col("key")).key_by("letter").over(frame[0])
        return featured.aggregate(
            Featured, total=col("value").sum(), rows=count(), most=(col("value") * 2).max(), words=words
        )

    expected = by_duckdb(
        frame[1], "id, time, sum(value) OVER w, count(*) OVER w, 2 * max(value) OVER w, count(DISTINCT note) OVER w"
    )
    assert values(ran(body, parallelism)) == expected


def test_rows_keep_their_event_time_and_another_over_and_windows_follow() -> None:
    def body(events: Stream[Event]) -> Stream[Any]:
        once = events.key_by("key").over(last("3s")).aggregate(own=count()).named("own")
        twice = once.over(last(rows=2)).aggregate(both=col("own").sum()).named("both").filter(col("key") < "d")
        return twice.key_by("key").window(tumbling("5s")).aggregate(total=col("both").sum())

    nearby = Counter({e.id: sum(o.key == e.key and 0 <= e.at - o.at <= 3_000_000 for o in EVENTS) for e in EVENTS})
    in_order = sorted(EVENTS, key=lambda event: (event.at, event.id))
    both = {e.id: nearby[e.id] + (nearby[o.id] if o else 0) for e, o in zip(in_order, [None, *in_order], strict=False)}
    expected = Counter[tuple[str, int]]()
    for event in EVENTS:
        if event.key < "d":
            expected[event.key, event.at // 5_000_000 * 5_000_000] += both[event.id]
    assert {(row.key, row.window_start): row.total for row in ran(body, 1)} == expected
