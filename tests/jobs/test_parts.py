"""Jobs whose windows and keys are saved one by one, compared with plain Python while tasks are killed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from clonos_py import Job, Stream, Table, col, count, counted, hopping, session, testing, tumbling
from clonos_py.connectors import MemorySink
from clonos_py.settings.protocols import CONTINUOUS
from clonos_py.task.partwise import PartwiseState
from tests.jobs.rows import BY_KEY, EVENTS, SECOND, Event, started, starts_of_windows
from tests.often import often

POLICIES: dict[str, dict[str, Any]] = {
    "only as windows open": {"check_time": "off"},
    "by targets": {"extent_max": 4, "replay_max": 20, "check_period": "1ms", "check_time": "1ms"},
    "by cost": {"mtbf": "1ms", "check_period": "1ms", "check_time": "1ms"},
}
ONE_BY_ONE = [[event] for event in EVENTS]
KILLS = 6
SEEDS = 4


def summed(events: Stream[Event], window: Any) -> Any:
    return (
        events.key_by("key").window(window).aggregate(rows=count(), total=col("value").sum(), ids=col("id").collect())
    )


def totals(events: Stream[Event]) -> Table[Any]:
    return events.key_by("key").aggregate(rows=count(), total=col("value").sum(), last=col("id").last())


def of_counted(size: int, every: int) -> Counter[Any]:
    windows = (
        (key, events[start : start + size])
        for key, events in BY_KEY.items()
        for start in range(0, len(events) - size + 1, every)
    )
    return Counter((key, size, sum(e.value for e in part), tuple(e.id for e in part)) for key, part in windows)


def of_time(size: int, slide: int) -> Counter[Any]:
    windows: dict[tuple[str, int], list[Event]] = {}
    for event in EVENTS:
        for start in starts_of_windows(event, size, slide):
            windows.setdefault((event.key, start), []).append(event)
    return Counter(
        (key, len(part), sum(e.value for e in part), tuple(e.id for e in part)) for (key, _), part in windows.items()
    )


def of_sessions(gap: int) -> Counter[Any]:
    found: Counter[Any] = Counter()
    for key, events in BY_KEY.items():
        in_order = sorted(events, key=lambda event: event.at)
        breaks = [n for n in range(1, len(in_order)) if in_order[n].at - in_order[n - 1].at > gap]
        for start, stop in pairwise([0, *breaks, len(in_order)]):
            part = in_order[start:stop]
            found[key, len(part), sum(e.value for e in part), tuple(sorted(e.id for e in part))] += 1
    return found


BODIES: dict[str, tuple[Callable[[Stream[Event]], Stream[Any]], Counter[Any]]] = {
    "counted": (lambda events: summed(events, counted(4)), of_counted(4, 4)),
    "counted, sliding": (lambda events: summed(events, counted(4, every=2)), of_counted(4, 2)),
    "tumbling": (lambda events: summed(events, tumbling("8s")), of_time(8 * SECOND, 8 * SECOND)),
    "sessions": (lambda events: summed(events, session("2s")), of_sessions(2 * SECOND)),
    "hopping": (lambda events: summed(events, hopping("8s", "2s")), of_time(8 * SECOND, 2 * SECOND)),
}


@pytest.mark.parametrize("policy", often(POLICIES, ["by cost"]))
@pytest.mark.parametrize("body", BODIES)
def test_windows_equal_plain_python(body: str, policy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also that tasks did take input again, as those of count windows have to: their windows stay open for long, unless
    saving them costs nothing beside the failures."""
    finish, again = PartwiseState.finish, []

    def noted(self: PartwiseState, *given: Any) -> None:
        again.append(len(self._segments))
        finish(self, *given)

    monkeypatch.setattr(PartwiseState, "finish", noted)
    job = Job("parts", protocol=CONTINUOUS.name, checkpoint_interval="8ms", **POLICIES[policy])
    make, expected = BODIES[body]
    make(started(job)).sink(MemorySink()).named("out")
    rows = testing.run(job, {"in": ONE_BY_ONE}, kills=KILLS, seeds=SEEDS, parallelism=2)["out"]
    assert Counter((row.key, row.rows, row.total, tuple(row.ids)) for row in rows) == expected
    assert again
    assert any(again) or not body.startswith("counted") or policy == "by cost"


@pytest.mark.parametrize("policy", POLICIES)
def test_running_totals_equal_plain_python(policy: str) -> None:
    job = Job("parts", protocol=CONTINUOUS.name, checkpoint_interval="8ms", **POLICIES[policy])
    totals(started(job)).changes().sink(MemorySink()).named("out")
    rows = testing.run(job, {"in": ONE_BY_ONE}, kills=KILLS, seeds=SEEDS, parallelism=2)["out"]
    last = {row.key: (row.rows, row.total, row.last) for row in rows}
    expected = {key: (len(found), sum(e.value for e in found), found[-1].id) for key, found in BY_KEY.items()}
    assert last == expected
