"""Sessions as tables: at every moment the changes so far give the sessions that should be known then, however rows are
out of order or late, and through restores at another parallelism."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clonos_py.model.tables import TableMode
from clonos_py.model.times import MAX_TIME, MIN_TIME
from clonos_py.model.windows import Emit, Every, OnChange, Session
from clonos_py.operators.keyed_rows import live_rows
from tests.unit.operators.scripted import compacted_early
from tests.unit.operators.test_window_table import INPUT, Instances, Results, Row, Step, emits, follow, histories

GAP = 4


@pytest.fixture(autouse=True, scope="module")
def _state_is_compacted_early() -> Iterator[None]:
    with compacted_early():
        yield


class Found(NamedTuple):
    key: str | None
    start: int
    end: int
    values: list[int | None]

    def meets(self, other: Found) -> bool:
        return self.key == other.key and self.start <= other.end and other.start <= self.end

    @property
    def result(self) -> Results:
        some = [value for value in self.values if value is not None]
        figures = len(self.values), sum(some) if some else None, len(set(some))
        return {(self.key, self.start, self.end): figures}


def merged(sessions: list[Found]) -> list[Found]:
    """Sessions that meet, directly or through others, as one."""
    done: list[Found] = []
    for one in sorted(sessions, key=lambda found: (repr(found.key), found.start)):
        last = done.pop() if done and done[-1].meets(one) else Found(one.key, one.start, one.end, [])
        done.append(Found(one.key, last.start, max(last.end, one.end), last.values + one.values))
    return done


class Model:
    """Sessions of a table in plain Python."""

    def __init__(self, emit: Emit, lateness: int) -> None:
        self.emit, self.lateness = emit, lateness
        self.live: list[Found] = []
        self.final: Results = {}
        self.shown: Results = {}
        self.reached = self.ended = MIN_TIME
        """``ended``: sessions that end up to this time have ended. A row of the watermark's own time may still come."""
        self.late = 0

    def feed(self, given_rows: list[Row]) -> None:
        fresh = merged([Found(key, at, at + GAP, [value]) for key, value, at in given_rows])
        until = self.ended if self.ended in (MIN_TIME, MAX_TIME) else self.ended - self.lateness
        taken = [one for one in fresh if one.end > until or any(one.meets(other) for other in self.live)]
        self.late += sum(len(one.values) for one in fresh if one not in taken)
        self.live = merged(self.live + taken)
        self.show(isinstance(self.emit, OnChange))

    def advance(self, watermark: int) -> None:
        before, self.reached = self.reached, max(self.reached, watermark)
        self.ended = self.reached if self.reached in (MIN_TIME, MAX_TIME) else self.reached - 1
        tick = False
        if isinstance(self.emit, Every) and before != MIN_TIME:
            tick = before // self.emit.period_us < self.reached // self.emit.period_us
        self.show(tick)
        over = [one for one in self.live if one.end + self.lateness <= self.ended]
        self.live = [one for one in self.live if one not in over]
        for one in over:
            self.final |= one.result

    def show(self, everything: bool) -> None:
        """Of sessions that contain others, unless these are final: rows that come too late for a session, and not for
        themselves, make another one."""
        for one in self.live:
            if everything or one.end <= self.ended:
                self.shown = {
                    (key, start, end): values
                    for (key, start, end), values in self.shown.items()
                    if (key, start, end) in self.final or not (key == one.key and one.start <= start and end <= one.end)
                } | one.result


@settings(max_examples=150)
@given(
    emits, st.sampled_from(["changes", "deltas", "at_end"]), histories, st.integers(0, 12), st.integers(0, 12),
    st.sampled_from([1, 3]),
)  # fmt: skip
def test_changes_add_up_to_the_sessions_that_are_known(
    emit: Emit, mode: TableMode, history: list[Step], lateness: int, rescale_at: int, count: int
) -> None:
    found, model = Instances(Session(GAP), emit, mode, lateness), Model(emit, lateness)
    follow(found, model, history, rescale_at, count)
    assert found.results == model.final
    for made, _, _ in found.running:
        state = made.snapshot()
        for name, schema in made.tables([INPUT]).items():
            assert not any(batch.num_rows for batch in live_rows(state, name))
            assert all(chunk.rows.schema == schema for chunk in state.tables[name])


def test_a_session_that_was_shown_stays_until_the_one_that_contains_it_is_shown_also_after_a_restore() -> None:
    found = Instances(Session(GAP), Every(10), "changes", 0)
    found.advance(1)
    found.feed([("a", 1, 2), ("a", 1, 8)])
    found.advance(3)
    assert not found.results, "no period has ended"
    found.advance(10)
    assert found.results == {("a", 2, 6): (1, 1, 1), ("a", 8, 12): (1, 1, 1)}
    found.feed([("a", 1, 11)])
    assert found.results == {("a", 2, 6): (1, 1, 1), ("a", 8, 12): (1, 1, 1)}
    found.rescale(3)
    found.advance(16)
    assert found.results == {("a", 2, 6): (1, 1, 1), ("a", 8, 15): (2, 2, 1)}


def test_by_the_clock_changes_come_when_a_timer_fires_also_after_a_restore() -> None:
    found = Instances(Session(GAP), Every(1_000, processing_time=True), "changes", 0)
    found.feed([("a", 1, 0), ("b", 2, 0)])
    ((_, ctx, _),) = found.running
    assert (found.results, ctx.timers) == ({}, {2_000})
    found.rescale(2)
    for made, ctx, _ in found.running:
        for at in sorted(ctx.timers):
            made.on_timer(at)
    found.apply()
    assert found.results == {("a", 0, 4): (1, 1, 1), ("b", 0, 4): (1, 2, 1)}
