"""Random numbers, times and answers are the same on every path, and the report of a test whose runs differ."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from clonos_py import Context, Instant, Job, Process, Record, col, service, state, testing
from clonos_py.connectors import MemorySink
from clonos_py.runtime.sim.run import SimulatedRun, simulate_plan
from tests.jobs.rows import EVENTS, IN_FOURS, Event, both_parallelisms, started, values


class Witnessed(Record):
    id: int
    key: str
    dice: float
    time: Instant
    ticket: int


_tickets = itertools.count()


@service
def tickets() -> Iterator[Callable[[int], int]]:
    """A service that never answers twice with the same value."""
    yield lambda row: next(_tickets)


def witnessed(event: Event, ctx: Context) -> Witnessed:
    return Witnessed(event.id, event.key, ctx.random.random(), ctx.time.now(), ctx.call(tickets, event.id))


class Through(Process[Witnessed, Witnessed]):
    rows: int = state(0)

    def on_row(self, row: Witnessed, ctx: Context) -> Witnessed:
        self.rows += 1
        return row


@both_parallelisms
def test_two_paths_give_the_same_answers_for_every_row(parallelism: int) -> None:
    for seed in range(4):
        job = Job("semantics")
        rows = started(job).map(witnessed)
        rows.sink(MemorySink()).named("left")
        rows.key_by("key").process(Through).sink(MemorySink()).named("right")
        out = testing.run(job, {"in": IN_FOURS}, kills=3, first_seed=seed, parallelism=parallelism)
        assert values(out["left"]) == values(out["right"])
        assert sorted(row.id for row in out["left"]) == [event.id for event in EVENTS]


def test_runs_that_differ_are_reported_with_their_differences() -> None:
    job = Job("semantics")
    started(job).filter(col("id") == 0).map(witnessed).sink(MemorySink()).named("out")
    with pytest.raises(AssertionError, match=r"sink 'out' got other rows .* 1 more, such as .* 1 less"):
        testing.run(job, {"in": IN_FOURS}, kills=1, seeds=3)


def test_kills_happen_however_short_the_job_is(monkeypatch: pytest.MonkeyPatch) -> None:
    kills = []

    def counted(*given: Any, **named: Any) -> SimulatedRun:
        outcome = simulate_plan(*given, **named)
        kills.append(outcome.kills)
        return outcome

    monkeypatch.setattr("clonos_py.testing.jobs.simulate_plan", counted)
    job = Job("semantics")
    started(job).sink(MemorySink()).named("out")
    testing.run(job, {"in": EVENTS[:5]}, kills=2, seeds=20)
    assert sum(kills) >= 20
