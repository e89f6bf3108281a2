"""Tests of jobs: sources and sinks are replaced by name, and failures are injected (P10).

The job runs in the simulator, which uses the real protocol in virtual time. With ``kills`` and several ``seeds`` it
runs once per seed, each time with another schedule of delays and failures, and must give the same rows as without
kills.

Rows are read one at a time, and event time advances between them. So timers fire between them, and a table changes
with every row. Rows inside a list are read together.

    def test_large_after_probe() -> None:
        out = run(fraud.job, {"txns": [Txn(1, 50, at("0s")), Txn(1, 90_000, at("30s"))]}, kills=2, seeds=50)
        assert out["alerts"] == [Alert(1, 90_000)]

    def test_totals() -> None:
        out = run(totals.job, {"sales": [Sale("a", 2), [Sale("a", 3), Sale("b", 1)]]})  # .changes() goes to the sink
        assert out["totals"] == [Total("a", 2), Total("a", 5), Total("b", 1)]

The clock, random numbers and services can be given their answers:

    def test_price() -> None:
        answers = {"priced": [testing.http_answer(json={"rate": 2})]}
        out = run(prices.job, {"sales": [Sale("a", 2)]}, times={"priced": [at("3s")]}, answers=answers)
        assert out["prices"] == [Price("a", 4, at("3s"))]

The clock reaches processing-time timers where ``timers`` says, here after two rows of the process function:

    def test_reminder() -> None:
        out = run(orders.job, {"orders": [Order("a"), Order("b")]}, timers={"reminders": [(2, at("1h"))]})
        assert out["reminded"] == [Reminder("a"), Reminder("b")]
"""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from clonos_py.connectors.memory import MemoryPartition, MemorySink, MemorySource
from clonos_py.connectors.partitions import PartitionRead, PartitionReader
from clonos_py.dsl.job import Job
from clonos_py.model.connectors import SinkDefinition, SourceDefinition
from clonos_py.model.errors import GraphError
from clonos_py.model.operators import Source
from clonos_py.model.plan import PhysicalPlan
from clonos_py.model.record import DeadLetter, Record
from clonos_py.plan.physical import plan
from clonos_py.runtime.callers import http_client
from clonos_py.runtime.run_settings import raise_for
from clonos_py.runtime.sim.run import simulate_plan
from clonos_py.services.definition import ServiceDefinition
from clonos_py.services.registry import ServiceRegistry
from clonos_py.settings.definitions import Runtime
from clonos_py.settings.resolution import resolve
from clonos_py.testing.given_answers import GIVEN, ByOperator, GivenAnswers

Given = Sequence[Record | Sequence[Record]]
"""The rows of a source. Each is read on its own; rows in an inner list are read together."""

_numbers = itertools.count()
_SHOWN = 3


def run(
    job: Job,
    inputs: Mapping[str, Given],
    *,
    kills: int = 0,
    seeds: int = 1,
    first_seed: int = 0,
    parallelism: int = 1,
    sinks: Sequence[str] | None = None,
    services: Mapping[str, ServiceDefinition[..., Any]] | None = None,
    times: ByOperator | None = None,
    draws: ByOperator | None = None,
    answers: ByOperator | None = None,
    timers: ByOperator | None = None,
) -> dict[str, list[Any]]:
    """Runs a job and returns the rows of every sink, by the sink's name (``sink-alerts`` also as ``alerts``). For a
    table these are its changes, with the column ``_change`` if rows can leave the table.

    ``inputs`` has the rows of sources by name; one task reads each source, row by row. ``kills`` processes are killed
    in each of ``seeds`` runs, at moments drawn from the seed. ``sinks``: only these sinks, and the operators that lead
    to them; None for all. ``services`` replaces user services by name.

    ``times``, ``draws`` and ``answers`` have by operator what its functions get, in the order in which they ask:
    ``ctx.time.now()`` (microseconds UTC); ``random()`` and ``gauss(0, 1)`` (floats) and ``getrandbits()`` (ints) of
    ``ctx.random``, from which its other methods compute theirs; ``ctx.call`` and ``ctx.http`` together (values,
    ``http_answer(...)``, or a ServiceError, which is raised). Other operators ask live. A function that asks once more
    than there are answers fails; answers may be left.

    ``timers`` has by process function pairs (rows, time in microseconds UTC): once it has taken so many rows, and
    before it takes the next one, the clock reaches this time, and its processing-time timers fire that are due then.
    They do not fire otherwise; without ``timers`` they fire if the job lasts so long.

    The order in which operators ask holds for one task without failures only, so all of these are refused with
    ``kills`` and ``parallelism``.

    Raises the ClonosError that ended a run. Raises AssertionError naming the seed if one of several runs differs from
    the run without kills, if a recovery did more than it should, or if kills were requested and none happened. Dead
    letters count as equal if operator, error, record and place are. Raises GraphError if ``job`` is no Job, and for
    answers that cannot be given.
    """
    if not isinstance(job, Job):
        name = getattr(job, "__name__", None)
        remedy = f"{name} is a function; call it: run(module.{name}(), ...)" if callable(job) and name else "give a Job"
        raise GraphError(f"run() takes a Job, not {type(job).__name__}: {remedy}")
    if sinks is not None:
        job = job.leading_to(sinks)
    if (times or draws or answers or timers) and (kills or parallelism > 1):
        raise GraphError(
            "times=, draws=, answers= and timers= are for one task without failures: omit kills= and parallelism="
        )

    def given() -> GivenAnswers:
        return GivenAnswers(times or {}, draws or {}, answers or {}, timers or {})

    clean = run_once(job, inputs, first_seed, 0, parallelism, services or {}, None, given())
    other = "without kills" if kills else f"with seed {first_seed}"
    kept, killed = clean, 0
    for seed in range(first_seed if kills else first_seed + 1, first_seed + seeds):
        found = run_once(job, inputs, seed, kills, parallelism, services or {}, clean.actions, given())
        kept = found if seed == first_seed else kept
        killed += found.kills
        if seeds > 1:  # the rows of a single run with kills may depend on its timing
            for name, rows in found.rows.items():
                _check_alike(name, seed, rows, other, clean.rows[name])
    if kills and not killed:
        raise AssertionError("the job was over before anything could be killed; give it more rows, or more seeds")
    return {name.removeprefix("sink-"): rows for name, rows in kept.rows.items()} | kept.rows


@dataclass(frozen=True)
class RowsFound:
    """The result of one run: the rows of every sink, the number of killed processes, the number of actions."""

    rows: dict[str, list[Any]]
    kills: int
    actions: int


def run_once(
    job: Job,
    inputs: Mapping[str, Given],
    seed: int,
    kills: int,
    parallelism: int,
    services: Mapping[str, ServiceDefinition[..., Any]],
    actions_expected: int | None,
    given_answers: GivenAnswers,
) -> RowsFound:
    """One of the runs of ``run``."""
    sinks = {name: MemorySink(f"test-{next(_numbers)}") for name in job.sinks}
    replaced: dict[str, SourceDefinition | SinkDefinition] = dict(sinks)
    for name, rows in inputs.items():
        replaced[name] = GivenSource(rows, job.record_of(name))
    given = job.with_connectors(replaced, source_parallelism=1)
    physical = _as_given(plan(given, replace(resolve(job.settings), runtime=Runtime.SIM), parallelism=parallelism))
    physical = given_answers.answering(physical)
    registry = ServiceRegistry({**services, GIVEN.name: GIVEN}, http_client)
    try:
        outcome = simulate_plan(
            physical, seed, kills, client=registry.client, actions_expected=actions_expected, linger_us=0
        )
        if outcome.ended is not None:
            raise_for(outcome.ended)
        if outcome.problems:
            raise AssertionError(f"seed {seed}: {'; '.join(outcome.problems)}\n" + "\n".join(outcome.story))
        rows_found = {name: sink.rows(job.record_of(name)) for name, sink in sinks.items()}
    finally:
        registry.close()
        for sink in sinks.values():
            sink.clear()
    return RowsFound(rows_found, outcome.kills, outcome.actions)


class GivenSource(MemorySource):
    """A source of one partition, whose reads are those given."""

    def __init__(self, given: Given, record: type[Record]) -> None:
        reads = [[rows] if isinstance(rows, Record) else list(rows) for rows in given]
        super().__init__([row for rows in reads for row in rows], schema=record)
        self._stops = list(itertools.accumulate(len(rows) for rows in reads if rows))

    def create(self, columns: tuple[tuple[str, ...] | None, ...], read_rows: int | None = None) -> Source:
        (names,) = columns
        rows = self._rows if names is None else self._rows.select(list(names))
        return PartitionReader(1, lambda number: _GivenPartition(rows, self._stops))


class _GivenPartition(MemoryPartition):
    """``stops``: the positions at which reads end."""

    def __init__(self, rows: pa.RecordBatch, stops: Sequence[int]) -> None:
        super().__init__(rows, 0)
        self._stops = stops

    def next(self, start: int, rows_max: int | None) -> PartitionRead | None:
        number = bisect_right(self._stops, start)
        return None if number == len(self._stops) else self.between(start, self._stops[number])


def _as_given(physical: PhysicalPlan) -> PhysicalPlan:
    """The plan without merging or splitting of small reads and frames."""
    vertices = [
        replace(vertex, source=None if vertex.source is None else replace(vertex.source, merge_rows=0, adaptive=False))
        for vertex in physical.vertices
    ]
    edges = [replace(edge, merge_rows=0, adaptive=False) for edge in physical.edges]
    return replace(physical, vertices=tuple(vertices), edges=tuple(edges))


def _check_alike(name: str, seed: int, rows: list[Any], other: str, first: list[Any]) -> None:
    """Raises AssertionError naming the rows in which two runs differ."""
    now, before = Counter(map(_comparable, rows)), Counter(map(_comparable, first))
    if now != before:
        more, less = (sorted((a - b).elements()) for a, b in ((now, before), (before, now)))
        raise AssertionError(
            f"sink {name!r} got other rows with seed {seed} than {other}: {len(more)} more, such as "
            f"{more[:_SHOWN]}, {len(less)} less, such as {less[:_SHOWN]}; repeat it with first_seed={seed}, seeds=2"
        )


def _comparable(row: Any) -> str:
    """A row as text for comparison, without a dead letter's position, which depends on the cut into frames."""
    if isinstance(row, DeadLetter):
        row = DeadLetter(row.operator, row.error, row.record, 0, 0, 0, row.place)
    return repr(row)
