"""Jobs whose functions get so many rows at once, whatever dies."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow as pa
import pytest

from clonos_py import Job, Record, Stream, count, testing, tumbling
from clonos_py.connectors import MemorySink
from clonos_py.model.errors import GraphError, UserCodeError
from tests.jobs.rows import EVENTS, IN_FOURS, Event, ran, started


class Sized(Record):
    id: int
    at: int
    of: int


def sized(rows: pa.Table) -> pa.Table:
    return rows.select(["id", "at"]).append_column("of", pa.array([rows.num_rows] * rows.num_rows, pa.int64()))


def sized_by(rows: int, **given: Any) -> Any:
    return lambda events: events.map_batches(sized, Sized, rows=rows, **given)


@pytest.mark.parametrize("parallelism", [1, 3])
def test_each_row_is_in_one_batch_which_is_full_if_rows_come_soon(parallelism: int) -> None:
    out = ran(sized_by(7, wait="1h"), parallelism)
    assert Counter(row.id for row in out) == Counter(event.id for event in EVENTS)
    if parallelism == 1:
        assert [row.of for row in out] == [7] * 56 + [4] * 4


def test_a_batch_that_is_not_full_does_not_wait_for_ever() -> None:
    job = Job("waiting")
    sized_by(1_000, wait="1ms")(started(job)).sink(MemorySink()).named("out")
    out = testing.run(job, {"in": EVENTS})["out"]
    assert len(out) == len(EVENTS)
    assert max(row.of for row in out) < len(EVENTS)


def test_windows_behind_it_wait_for_its_rows() -> None:
    def windows(events: Stream[Event]) -> Stream[Any]:
        rows = events.map_batches(sized, Sized, rows=7, wait="5ms")
        return rows.key_by(tenth="id").window(tumbling("5s")).aggregate(rows=count())

    assert sum(row.rows for row in ran(windows, 2)) == len(EVENTS)


def test_a_cut_that_a_result_depends_on_is_the_same_for_all_who_see_it() -> None:
    job = Job("seen-twice")
    rows = started(job).map_batches(sized, Sized, rows=5, wait="2ms")
    rows.sink(MemorySink()).named("out")
    rows.select("id", "of").sink(MemorySink()).named("other")
    for seed in range(6):
        out = testing.run(job, {"in": IN_FOURS}, kills=2, first_seed=seed)
        assert {row.id: row.of for row in out["out"]} == {row.id: row.of for row in out["other"]}


def test_mistakes_are_named() -> None:
    events = started(Job("wrong"))
    for rows in (0, 1.5, True):
        with pytest.raises(GraphError, match=r"map_batches: rows is .*: it must be a number of rows, at least 1"):
            events.map_batches(sized, Sized, rows=rows)  # type: ignore[arg-type]
    with pytest.raises(GraphError, match="map_batches: wait='0s': it must be more than 0"):
        events.map_batches(sized, Sized, rows=5, wait="0s")


def test_a_function_that_fails_names_the_first_row_of_the_batch() -> None:
    def failing(rows: pa.Table) -> pa.Table:
        raise ValueError("no")

    job = Job("failing")
    started(job).map_batches(failing, Sized, rows=7).sink(MemorySink()).named("out")
    with pytest.raises(UserCodeError, match=r'failed on a batch of 7 rows, the first \{"id":0,.*ValueError: no'):
        testing.run(job, {"in": EVENTS})
