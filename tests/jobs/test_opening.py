"""Functions with ``open`` in whole jobs: each attempt of a task opens a copy of its own, whichever task is killed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from clonos_py import ClonosError, Context, Job, OpenContext, Process, Record, Stream, UserCodeError, state, testing
from clonos_py.connectors import MemorySink
from clonos_py.operators import opening, process
from tests.jobs.rows import EVENTS, IN_FOURS, Event, started


class Scored(Record):
    id: int
    number: int
    score: int
    task: int


class Scorer(Process[Event, Scored]):
    number: int = state(0)

    def __init__(self, factor: int) -> None:
        self.factor = factor

    def open(self, ctx: OpenContext) -> None:
        self.model = {value: value * self.factor for value in range(-50, 50)}
        self.task = ctx.index

    def on_row(self, event: Event, ctx: Context) -> Scored:
        self.number += 1
        return Scored(event.id, self.number, self.model[event.value], self.task)


class Scores:
    """The same as a function of rows."""

    def __init__(self, factor: int) -> None:
        self.factor = factor

    def open(self, ctx: OpenContext) -> None:
        self.model = {value: value * self.factor for value in range(-50, 50)}

    def __call__(self, event: Event) -> Scored:
        return Scored(event.id, 0, self.model[event.value], 0)


class ManyScores(Scores):
    def __call__(self, event: Event) -> Iterator[Scored]:  # type: ignore[override]
        yield super().__call__(event)


class BatchesOfScores(Scores):
    def __call__(self, rows: pa.RecordBatch) -> pa.RecordBatch:  # type: ignore[override]
        values: list[Any] = rows.column("value").to_pylist()
        none = [0] * len(values)
        scores = [self.model[value] for value in values]
        return pa.record_batch({"id": rows.column("id"), "number": none, "score": scores, "task": none})


def scored(events: Stream[Event]) -> Stream[Scored]:
    return events.key_by("key").process(Scorer(3)).named("scorer")


def ran(body: Any, seeds: int = 6, **options: Any) -> list[Any]:
    job = Job("opening")
    body(started(job)).sink(MemorySink()).named("out")
    return testing.run(job, {"in": IN_FOURS}, kills=2, seeds=seeds, parallelism=2, **options)["out"]


def check(rows: list[Any]) -> None:
    assert Counter((row.id, row.score) for row in rows) == Counter((event.id, event.value * 3) for event in EVENTS)


def test_a_replacement_opens_its_functions_before_it_replays() -> None:
    rows = ran(scored)
    check(rows)
    assert {row.task for row in rows} == {0, 1}
    assert max(row.number for row in rows) == max(Counter(event.key for event in EVENTS).values())


@pytest.mark.parametrize(
    "body",
    [
        lambda events: events.map(Scores(3)),
        lambda events: events.flat_map(ManyScores(3)),
        lambda events: events.map_batches(BatchesOfScores(3), returns=Scored),
    ],
)
def test_function_objects_are_opened_in_replacements(body: Any) -> None:
    check(ran(body))


def test_the_test_finds_a_replacement_that_does_not_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bug is planted: only the first process of each task opens."""
    seen: set[Any] = set()

    def only_at_first(function: Any, ctx: Any) -> None:
        if ctx.task not in seen:
            opening.call_open(function, ctx)
        seen.add(ctx.task)

    monkeypatch.setattr(process, "call_open", only_at_first)
    with pytest.raises(UserCodeError, match="'Scorer' object has no attribute 'model'"):
        ran(scored)


def test_the_test_finds_an_object_that_tasks_share(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bug is planted: no task copies it."""
    monkeypatch.setattr(process, "copied", lambda function: function)
    with pytest.raises((AssertionError, ClonosError, KeyError, AttributeError)):
        test_a_replacement_opens_its_functions_before_it_replays()


class Failing(Scorer):
    def open(self, ctx: OpenContext) -> None:
        raise FileNotFoundError("no model.bin")


def test_a_failure_in_open_ends_the_job_with_its_line() -> None:
    with pytest.raises(
        UserCodeError, match=r"operator 'failing' failed in open: FileNotFoundError: .*test_opening.py:"
    ):
        ran(lambda events: events.key_by("key").process(Failing(1)).named("failing"), seeds=1)
