"""Jobs that reduce and fold the rows of a key: a result after each row, compared with Python, whatever dies."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clonos_py import (
    Context,
    Instant,
    Job,
    Record,
    Stream,
    UserAggregate,
    aggregate_by,
    col,
    count,
    testing,
    tumbling,
)
from clonos_py.connectors import MemorySink, MemorySource
from clonos_py.model.errors import GraphError, UserCodeError
from clonos_py.plan.physical import plan
from clonos_py.settings.resolution import resolve
from tests.jobs.rows import BY_KEY, EVENTS, IN_FOURS, SECOND, Event, Pair, ran, started, values

CONCATENATION = UserAggregate(lambda: "", lambda text, note: text + note, lambda one, two: one + two, str)


class Sum(Record):
    key: str
    rows: int
    total: int


def larger(best: Event, event: Event) -> Event:
    return event if event.value >= best.value else best


def added(total: Sum, event: Event) -> Sum:
    return Sum(event.key, total.rows + 1, total.total + event.value)


def summed(events: Stream[Event], **options: Any) -> Stream[Sum]:
    return events.key_by("key").fold(Sum("", 0, 0), added, **options)


def sums_of(events: list[Event]) -> list[Sum]:
    """After each of these rows of one key."""
    return list(itertools.accumulate(events, added, initial=Sum("", 0, 0)))[1:]


@pytest.mark.parametrize("parallelism", [1, 3])
def test_the_result_of_each_row_is_that_of_the_rows_of_its_key_so_far(parallelism: int) -> None:
    reduced = ran(lambda events: events.key_by("key").reduce(larger), parallelism)
    expected = [row for events in BY_KEY.values() for row in itertools.accumulate(events, larger)]
    assert values(reduced) == values(expected)
    folded = ran(summed, parallelism)
    assert values(folded) == values([row for events in BY_KEY.values() for row in sums_of(events)])


class Running(Record):
    id: int
    key: str
    at: Instant
    rows: int
    value: int
    best: int
    mean: float
    note: str | None


def running(events: Stream[Event]) -> Stream[Running]:
    value = col("value")
    return events.key_by("key").reduce(
        Running, rows=count(), value=value.sum(), best=(value * 2).max(), mean=value.mean(), note=col("note").last()
    )


def running_of(events: list[Event]) -> Iterator[Running]:
    note = None
    for number, event in enumerate(events, 1):
        note = event.note or note
        so_far = [before.value for before in events[:number]]
        total = sum(so_far)
        yield Running(event.id, event.key, event.at, number, total, 2 * max(so_far), total / number, note)


@pytest.mark.parametrize("parallelism", [1, 3])
def test_aggregates_of_the_rows_so_far_go_out_with_each_row(parallelism: int) -> None:
    assert values(ran(running, parallelism)) == values(list(itertools.chain(*map(running_of, BY_KEY.values()))))


def test_aggregates_are_added_to_the_columns_of_the_row_or_replace_them() -> None:
    job = Job("added")
    counted = started(job).key_by("key").reduce(value=col("value").sum(), rows=count())
    assert counted.schema.names == ["id", "key", "value", "at", "note", "rows"]
    counted.select("id", "value").sink(MemorySink()).named("out")
    out = testing.run(job, {"in": EVENTS})["out"]
    assert {row.id: row.value for row in out} == {
        row.id: row.value for events in BY_KEY.values() for row in running_of(events)
    }


def test_windows_behind_it_need_no_second_shuffle_and_have_event_time() -> None:
    job = Job("behind")
    sums = started(job).key_by("key").reduce(total=col("value").sum())
    windows = sums.key_by("key").window(tumbling("5s")).aggregate(rows=count(), highest=col("total").max())
    windows.sink(MemorySink()).named("out")
    assert "shuffles: 1 by key" in " ".join(plan(job, resolve(job.settings)).notes)
    out = testing.run(job, {"in": IN_FOURS}, kills=1, seeds=2, parallelism=2)["out"]
    assert sum(row.rows for row in out) == len(EVENTS)


@settings(max_examples=15)
@given(st.lists(st.lists(st.tuples(st.sampled_from("ab"), st.integers(-9, 9)), max_size=4), max_size=6))
def test_the_cut_into_batches_does_not_matter(batches: list[list[tuple[str, int]]]) -> None:
    rows = [[Pair(key, value) for key, value in batch] for batch in batches]
    job = Job("cut")
    read = job.source(MemorySource([], schema=Pair)).named("in")
    read.key_by("key").reduce(lambda one, two: Pair(one.key, one.value * 2 + two.value)).sink(MemorySink()).named("out")
    out = testing.run(job, {"in": rows})["out"]
    last: dict[str, int] = {}
    for row in itertools.chain(*rows):
        last[row.key] = last[row.key] * 2 + row.value if row.key in last else row.value
        assert out.pop(0) == Pair(row.key, last[row.key])
    assert not out


def test_in_order_it_follows_event_time() -> None:
    folded = ran(lambda events: summed(events, in_order=True), 2)
    by_time = [sums_of(sorted(events, key=lambda event: event.at)) for events in BY_KEY.values()]
    assert values(folded) == values(list(itertools.chain(*by_time)))


def test_with_a_ttl_a_key_begins_again() -> None:
    rows = [Event(number, "a", 1, at * SECOND) for number, at in enumerate((10, 12, 30, 35, 36))]
    job = Job("expiring")
    events = job.source(MemorySource(rows), event_time="at").named("in")
    summed(events, ttl="10s").sink(MemorySink()).named("out")
    assert [row.rows for row in testing.run(job, {"in": rows})["out"]] == [1, 2, 1, 2, 3]


def test_a_failed_row_is_caught_and_leaves_no_trace() -> None:
    def strict(total: Sum, event: Event) -> Sum:
        if event.value < 0:
            raise ValueError("negative")
        return added(total, event)

    job = Job("caught")
    folded, letters = started(job).key_by("key").fold(Sum("", 0, 0), strict).catch()
    folded.sink(MemorySink()).named("out")
    letters.sink(MemorySink()).named("letters")
    out = testing.run(job, {"in": EVENTS})
    kept = [[event for event in events if event.value >= 0] for events in BY_KEY.values()]
    assert values(out["out"]) == values([row for events in kept for row in sums_of(events)])
    assert len(out["letters"]) == sum(event.value < 0 for event in EVENTS)


def test_a_function_may_ask_the_context() -> None:
    def drawn(total: Sum, event: Event, ctx: Context) -> Sum:
        return Sum(event.key, total.rows + 1, ctx.random.getrandbits(8))

    job = Job("drawn")
    started(job).key_by("key").fold(Sum("", 0, 0), drawn).sink(MemorySink()).named("out")
    out = testing.run(job, {"in": EVENTS[:2]}, draws={"fold": [3, 5]})["out"]
    assert [row.total for row in out] == [3, 5]


def test_rows_without_a_class_are_records() -> None:
    job = Job("untyped")
    rows = started(job).select("key", "value").key_by("key")
    rows.reduce(lambda one, two: two if two.value > one.value else one).sink(MemorySink()).named("out")
    out = testing.run(job, {"in": EVENTS})["out"]
    highest = [value for events in BY_KEY.values() for value in itertools.accumulate((e.value for e in events), max)]
    assert Counter(row.value for row in out) == Counter(highest)


def test_mistakes_are_named() -> None:
    events = started(Job("folds"))
    keyed = events.key_by("key")
    with pytest.raises(GraphError, match=r"reduce: added combines Event rows, and takes or returns Sum: .*fold"):
        keyed.reduce(added)  # type: ignore[misc]
    with pytest.raises(GraphError, match="fold: initial is 0: it must be a record"):
        keyed.fold(0, added)  # type: ignore[arg-type, type-var]
    with pytest.raises(GraphError, match="fold: larger takes or returns Event, and initial is a Sum"):
        keyed.fold(Sum("", 0, 0), larger)  # type: ignore[arg-type]
    with pytest.raises(GraphError, match="fold: 5 is not a function of the result so far, a row"):
        keyed.fold(Sum("", 0, 0), 5)  # type: ignore[arg-type]
    for unbounded in (col("value").count_distinct(), col("value").collect(), aggregate_by(CONCATENATION, "note", str)):
        with pytest.raises(GraphError, match=r"after each row would take longer the more rows a key has; write \.fold"):
            keyed.reduce(n=unbounded)
    with pytest.raises(GraphError, match="reduce: it needs at least one aggregate"):
        keyed.reduce()
    with pytest.raises(GraphError, match="reduce: 'key' is a key"):
        keyed.reduce(key=count())
    with pytest.raises(GraphError, match=r"reduce: Running\.rows: nothing of that name"):
        events.select("id", "key", "value", "at").key_by("key").reduce(Running, value=col("value").sum())
    with pytest.raises(GraphError, match="reduce: n=: with a function it takes ttl= and in_order= only"):
        keyed.reduce(larger, n=count())  # type: ignore[call-overload]
    with pytest.raises(GraphError, match="it takes the result so far, a row and, if it wants, `ctx`"):
        keyed.reduce(lambda row: row)  # type: ignore[arg-type, misc]
    with pytest.raises(GraphError, match="these rows are changes of the table"):
        keyed.aggregate(n=count()).changes().key_by("key").fold(Sum("", 0, 0), added)
    with pytest.raises(GraphError, match="a reduce keeps its state by key: write key_by before it"):
        type(keyed)(keyed._rows, ()).reduce(larger)


@pytest.mark.parametrize("result", [None, 5, EVENTS[0]])
def test_a_result_of_another_class_ends_the_job(result: Any) -> None:
    job = Job("wrong")
    started(job).key_by("key").fold(Sum("", 0, 0), lambda total, event: result).sink(MemorySink()).named("out")
    with pytest.raises(
        UserCodeError, match=r"(?s)'fold' failed on record .*(function returned|not one of its outputs)"
    ):
        testing.run(job, {"in": EVENTS})
