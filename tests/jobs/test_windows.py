"""Results of windows and tables, compared with plain Python over the same rows, while tasks are killed."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

import pytest

from clonos_py import (
    Instant,
    Job,
    Record,
    UserAggregate,
    aggregate_by,
    col,
    count,
    cumulative,
    hopping,
    session,
    testing,
    tumbling,
)
from clonos_py.connectors import MemorySink
from tests.jobs.rows import (
    BY_KEY,
    EVENTS,
    HALF,
    IN_FOURS,
    KEYS,
    SECOND,
    SEEDS,
    Event,
    Total,
    both_parallelisms,
    ran,
    started,
    starts_of_windows,
    values,
)

AGGREGATES = {
    "rows": count(), "sum": col("value").sum(), "least": col("value").min(), "most": col("value").max(),
    "mean": col("value").mean(), "notes": col("note").count(),
    "different": col("value").count_distinct(),
}  # fmt: skip


def total(start: int, end: int, events: Sequence[Event]) -> Total:
    found = [event.value for event in events]
    notes = sum(event.note is not None for event in events)
    return Total(
        events[0].key, start, end, len(found), sum(found), min(found), max(found), sum(found) / len(found), notes,
        len(set(found)),
    )  # fmt: skip


def in_windows(size: int, slide: int) -> list[Total]:
    windows: defaultdict[tuple[str, int], list[Event]] = defaultdict(list)
    for event in EVENTS:
        for start in starts_of_windows(event, size, slide):
            windows[event.key, start].append(event)
    return [total(start, start + size, events) for (_, start), events in windows.items()]


def in_growing_windows(size: int, step: int) -> list[Total]:
    windows: defaultdict[tuple[str, int, int], list[Event]] = defaultdict(list)
    for event in EVENTS:
        start = event.at // size * size
        for end in range(event.at // step * step + step, start + size + 1, step):
            windows[event.key, start, end].append(event)
    return [total(start, end, events) for (_, start, end), events in windows.items()]


def in_sessions(gap: int) -> list[Total]:
    found = []
    for events in BY_KEY.values():
        ordered = sorted(events, key=lambda event: event.at)
        breaks = [n for n in range(1, len(ordered)) if ordered[n].at - ordered[n - 1].at > gap]
        for first, behind in itertools.pairwise([0, *breaks, len(ordered)]):
            part = ordered[first:behind]
            found.append(total(part[0].at, part[-1].at + gap, part))
    return found


@both_parallelisms
@pytest.mark.parametrize(
    ("window", "expected"),
    [
        (tumbling("10s"), in_windows(10 * SECOND, 10 * SECOND)),
        (hopping("10s", "2s"), in_windows(10 * SECOND, 2 * SECOND)),
        (cumulative("10s", "2s"), in_growing_windows(10 * SECOND, 2 * SECOND)),
        (session("3s"), in_sessions(3 * SECOND)),
    ],
    ids=["tumbling", "hopping", "cumulative", "session"],
)
def test_windows_in_event_time_equal_plain_python(window: Any, expected: list[Total], parallelism: int) -> None:
    rows = ran(lambda events: events.key_by("key").window(window).aggregate(Total, **AGGREGATES), parallelism)
    assert values(rows) == values(expected)


@both_parallelisms
@pytest.mark.parametrize(
    ("window", "times"),
    [
        (tumbling("3ms", processing_time=True), 1),
        (hopping("4ms", "2ms", processing_time=True), 2),
        (session("2ms", processing_time=True), 1),
    ],
    ids=["tumbling", "hopping", "session"],
)
def test_windows_in_processing_time_contain_every_row(window: Any, times: int, parallelism: int) -> None:
    for seed in range(SEEDS):
        job = Job("semantics")
        windowed = started(job).key_by("key").window(window).aggregate(rows=count())
        windowed.select("key", "rows").sink(MemorySink()).named("out")
        out = testing.run(job, {"in": IN_FOURS}, kills=2, first_seed=seed, parallelism=parallelism)["out"]
        found = {key: sum(row.rows for row in out if row.key == key) for key in KEYS}
        assert found == {key: times * len(events) for key, events in BY_KEY.items()}


class Listed(Record):
    key: str
    window_end: Instant
    values: str


JOINED = UserAggregate(
    lambda: [],
    lambda found, value: [*found, value],
    lambda a, b: a + b,
    lambda found: ",".join(map(str, sorted(found))),
)


@both_parallelisms
def test_a_fold_of_user_code_equals_plain_python(parallelism: int) -> None:
    rows = ran(
        lambda events: (
            events.key_by("key")
            .window(tumbling("10s"))
            .aggregate(Listed, values=aggregate_by(JOINED, "value", returns=str))
        ),
        parallelism,
    )
    windows: defaultdict[tuple[str, int], list[int]] = defaultdict(list)
    for event in EVENTS:
        windows[event.key, (event.at // (10 * SECOND) + 1) * 10 * SECOND].append(event.value)
    assert values(rows) == values([Listed(*window, ",".join(map(str, sorted(v)))) for window, v in windows.items()])


class Latest(Record):
    key: str
    rows: int
    sum: int


FINAL = [Latest(key, len(events), sum(event.value for event in events)) for key, events in BY_KEY.items()]


@both_parallelisms
def test_a_table_emits_its_results_at_the_end(parallelism: int) -> None:
    rows = ran(
        lambda events: events.key_by("key").aggregate(Latest, rows=count(), sum=col("value").sum()).at_end(),
        parallelism,
    )
    assert values(rows) == values(FINAL)


@both_parallelisms
def test_the_changes_of_a_table_lead_to_its_results(parallelism: int) -> None:
    for seed in range(SEEDS):
        job = Job("semantics")
        table = started(job).key_by("key").aggregate(Latest, rows=count(), sum=col("value").sum())
        table.changes().sink(MemorySink()).named("out")
        out = testing.run(job, {"in": IN_FOURS}, kills=2, first_seed=seed, parallelism=parallelism)["out"]
        assert values(max((r for r in out if r.key == key), key=lambda r: r.rows) for key in KEYS) == values(FINAL)  # type: ignore[arg-type]
        assert len(values(out)) == len(out), "a change is emitted once"


@both_parallelisms
def test_every_row_is_in_its_window_or_late(parallelism: int) -> None:
    """No row is lost or doubled while tasks are killed."""
    late_rows = 0
    for seed in range(SEEDS):
        job = Job("semantics")
        keyed = started(job, out_of_order="0s").key_by("key")
        on_time, late = keyed.window(tumbling("500ms"), lateness="250ms").aggregate(rows=count()).with_late()
        on_time.sink(MemorySink()).named("on-time")
        late.select("id").sink(MemorySink()).named("late")
        out = testing.run(job, {"in": IN_FOURS}, kills=2, first_seed=seed, parallelism=parallelism)
        latest = {(row.key, row.window_end): row.rows for row in sorted(out["on-time"], key=lambda row: row.rows)}
        missed = [EVENTS[row.id] for row in out["late"]]
        assert len({event.id for event in missed}) == len(missed)
        expected = Counter((event.key, (event.at // HALF + 1) * HALF) for event in EVENTS if event not in missed)
        assert latest == expected
        late_rows += len(missed)
    assert late_rows, "no row was late: the test proves nothing"
