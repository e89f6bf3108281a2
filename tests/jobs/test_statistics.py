"""Variances, sketches and bounded lists in jobs: in windows, tables and tables of tables, whatever dies."""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

import pytest

from clonos_py import GraphError, Job, Stream, col, count, counted, hopping, session
from tests.jobs.rows import BY_KEY, EVENTS, SECOND, Event, both_parallelisms, ran, started, starts_of_windows

FIGURES: dict[str, Any] = {
    "variance": col("value").var(), "deviation": col("value").std(ddof=0),
    "median": col("value").approx_quantile(0.5), "different": col("value").approx_count_distinct(),
}  # fmt: skip
LISTED = FIGURES | {"few": col("id").collect(limit=3)}


def figures(found: Iterable[int]) -> tuple[Any, ...]:
    values = list(found)
    variance = round(statistics.variance(values), 6) if len(values) > 1 else None
    return variance, round(statistics.pstdev(values), 6), statistics.median_low(values), len(set(values))


def listed(events: Sequence[Event]) -> tuple[Any, ...]:
    """With the first ids in order of event time; in EVENTS they are in order of arrival."""
    few = tuple(event.id for event in sorted(events, key=lambda event: event.at)[:3])
    return *figures(event.value for event in events), few


def found(rows: Iterable[Any], *keys: str) -> Counter[tuple[Any, ...]]:
    names = [*keys, *FIGURES]
    return Counter((*(plain(getattr(row, name)) for name in names), *few(row)) for row in rows)


def few(row: Any) -> tuple[Any, ...]:
    return (tuple(row.few),) if hasattr(row, "few") else ()


def plain(value: Any) -> Any:
    return round(value, 6) if isinstance(value, float) else value


def in_windows(size: int, slide: int) -> Counter[tuple[Any, ...]]:
    windows: defaultdict[tuple[str, int], list[Event]] = defaultdict(list)
    for event in EVENTS:
        for start in starts_of_windows(event, size, slide):
            windows[event.key, start].append(event)
    return Counter((key, start, *listed(events)) for (key, start), events in windows.items())


def in_sessions(gap: int) -> Counter[tuple[Any, ...]]:
    expected = Counter[tuple[Any, ...]]()
    for key, events in BY_KEY.items():
        sessions: list[list[Event]] = []
        for event in sorted(events, key=lambda event: event.at):
            if not sessions or event.at - sessions[-1][-1].at > gap:
                sessions.append([])
            sessions[-1].append(event)
        expected.update((key, one[0].at, *listed(one)) for one in sessions)
    return expected


@both_parallelisms
@pytest.mark.parametrize(
    ("window", "expected"),
    [(hopping("10s", "2s"), in_windows(10 * SECOND, 2 * SECOND)), (session("3s"), in_sessions(3 * SECOND))],
    ids=["hopping", "session"],
)
def test_windows_have_the_figures_of_their_rows(window: Any, expected: Counter[Any], parallelism: int) -> None:
    rows = ran(lambda events: events.key_by("key").window(window).aggregate(**LISTED), parallelism)
    assert found(rows, "key", "window_start") == expected


def test_count_windows_have_the_figures_of_their_rows_and_lists_in_order_of_arrival() -> None:
    rows = ran(lambda events: events.key_by("key").window(counted(4)).aggregate(**LISTED), 2)
    fours = [(key, events[start : start + 4]) for key, events in BY_KEY.items() for start in range(0, len(events), 4)]
    assert found(rows, "key") == Counter(
        (key, *figures(event.value for event in four), tuple(event.id for event in four[:3]))
        for key, four in fours
        if len(four) == 4
    )


@both_parallelisms
def test_tables_have_the_figures_of_their_rows(parallelism: int) -> None:
    rows = ran(lambda events: events.key_by("key").aggregate(**FIGURES).at_end(), parallelism)
    assert found(rows, "key") == Counter(
        (key, *figures(event.value for event in events)) for key, events in BY_KEY.items()
    )


@both_parallelisms
def test_rows_have_the_figures_of_the_rows_of_their_key_so_far(parallelism: int) -> None:
    rows = ran(lambda events: events.key_by("key").reduce(**FIGURES), parallelism)
    assert found(rows, "id") == Counter(
        (event.id, *figures(before.value for before in events[: number + 1]))
        for events in BY_KEY.values()
        for number, event in enumerate(events)
    )


@both_parallelisms
def test_figures_of_a_table_follow_its_changes(parallelism: int) -> None:
    def body(events: Stream[Event]) -> Stream[Any]:
        totals = events.key_by("key").aggregate(value=col("value").sum(), n=count()).named("totals")
        halves = totals.key_by(half=col("key") < "d").aggregate(**FIGURES)
        return halves.at_end()

    totals = {key: sum(event.value for event in events) for key, events in BY_KEY.items()}
    expected = (
        (half, *figures(total for key, total in totals.items() if (key < "d") == half)) for half in (False, True)
    )
    assert found(ran(body, parallelism), "half") == Counter(expected)


def test_mistakes_are_named() -> None:
    events = started(Job("figures"))
    for write, message in (
        (lambda: col("value").var(ddof=2), "var.ddof=2.: it is 1 for a sample, or 0 for all there are"),
        (lambda: col("value").approx_quantile(50), "approx_quantile.50.: it takes a share of the values, 0 to 1"),
        (lambda: col("value").collect(limit=0), "collect.limit=0.: it takes a number of values, at least 1"),
        (lambda: events.aggregate(n=col("key").std()), "key is string, which std does not take"),
        (lambda: events.aggregate(n=col("key").approx_quantile(0.5)), "key is string, which approx_quantile does not"),
    ):
        with pytest.raises(GraphError, match=message) as caught:
            write()
        assert "tests/jobs/test_statistics.py:" in str(caught.value)
