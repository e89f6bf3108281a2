"""Tests of jobs without a server: sources and sinks are replaced by name, and failures are part of the call (P10).

The job runs in the simulator: the real protocol in virtual time. With ``kills`` and several ``seeds`` it runs once for
every seed, each time under another schedule of delays and failures, and must give the same rows every time.

    def test_large_after_probe() -> None:
        out = run(fraud.job, {"txns": [Txn(1, 50, at("0s")), Txn(1, 90_000, at("30s"))]}, kills=2, seeds=50)
        assert out["alerts"] == [Alert(1, 90_000)]
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from clonos_py.connectors.http import HttpxClient
from clonos_py.connectors.memory import MemorySink, MemorySource
from clonos_py.dsl.job import Job
from clonos_py.dsl.settings import resolve
from clonos_py.model.connectors import SinkDefinition, SourceDefinition
from clonos_py.model.record import DeadLetter, Record, at
from clonos_py.plan.physical import plan
from clonos_py.runtime.orders import raise_for
from clonos_py.runtime.sim.run import simulate_plan
from clonos_py.services.definition import ServiceDefinition
from clonos_py.services.registry import ServiceRegistry

__all__ = ["at", "run"]

_numbers = itertools.count()
_SHOWN = 3


def run(
    job: Job,
    inputs: Mapping[str, Sequence[Record]],
    *,
    kills: int = 0,
    seeds: int = 1,
    first_seed: int = 0,
    parallelism: int = 1,
    services: Mapping[str, ServiceDefinition[..., Any]] | None = None,
) -> dict[str, list[Any]]:
    """The rows of every sink, by the sink's name (``sink-alerts`` is found as ``alerts``, too).

    ``inputs`` gives the rows of sources by name. ``kills`` processes are killed in each of ``seeds`` runs, at moments
    that the seed decides. ``services`` replaces user services by name. Raises the ClonosError that ended a run, and
    AssertionError naming the seed if runs differ or a recovery needed more than it should, or if kills were asked for
    and none came to pass. Dead letters are alike if operator, error and record are.
    """
    clean = _run_once(job, inputs, first_seed, 0, parallelism, services or {}, None)
    first, killed = clean, 0
    for number, seed in enumerate(range(first_seed, first_seed + seeds)):
        if not kills and not number:
            continue
        found = _run_once(job, inputs, seed, kills, parallelism, services or {}, clean.actions)
        first = found if not number else first
        killed += found.kills
        for name, rows in found.rows.items():
            _check_alike(name, seed, rows, first_seed, first.rows[name])
    if kills and not killed:
        raise AssertionError("the job was over before anything could be killed; give it more rows, or more seeds")
    return {name.removeprefix("sink-"): rows for name, rows in first.rows.items()} | first.rows


@dataclass(frozen=True)
class _Found:
    """Of one run: the rows of every sink, how many processes were killed, how many actions it took."""

    rows: dict[str, list[Any]]
    kills: int
    actions: int


def _run_once(
    job: Job,
    inputs: Mapping[str, Sequence[Record]],
    seed: int,
    kills: int,
    parallelism: int,
    services: Mapping[str, ServiceDefinition[..., Any]],
    actions_expected: int | None,
) -> _Found:
    sinks = {name: MemorySink(f"test-{next(_numbers)}") for name in job.sinks}
    replaced: dict[str, SourceDefinition | SinkDefinition] = dict(sinks)
    for name, rows in inputs.items():
        replaced[name] = MemorySource(rows, schema=job.record_of(name), batch_rows=4)
    physical = plan(job.with_connectors(replaced), resolve(job.settings), parallelism=parallelism)
    registry = ServiceRegistry(services, HttpxClient)
    try:
        outcome = simulate_plan(physical, seed, kills, client=registry.client, actions_expected=actions_expected)
        if outcome.ended is not None:
            raise_for(outcome.ended)
        if outcome.problems:
            raise AssertionError(f"seed {seed}: {'; '.join(outcome.problems)}\n" + "\n".join(outcome.story))
        rows_found = {name: sink.rows(job.record_of(name)) for name, sink in sinks.items()}
    finally:
        registry.close()
        for sink in sinks.values():
            sink.clear()
    return _Found(rows_found, outcome.kills, outcome.actions)


def _check_alike(name: str, seed: int, rows: list[Any], first_seed: int, first: list[Any]) -> None:
    """Raises AssertionError that tells in which rows two runs differ."""
    now, before = Counter(map(_told, rows)), Counter(map(_told, first))
    if now != before:
        more, less = (sorted((a - b).elements()) for a, b in ((now, before), (before, now)))
        raise AssertionError(
            f"sink {name!r} got other rows with seed {seed} than with seed {first_seed}: {len(more)} more, such as "
            f"{more[:_SHOWN]}, {len(less)} less, such as {less[:_SHOWN]}; repeat it with first_seed={seed}, seeds=1"
        )


def _told(row: Any) -> str:
    """A row as it is compared. Where a failed row stood in the input depends on how that was cut into frames."""
    if isinstance(row, DeadLetter):
        row = DeadLetter(row.operator, row.error, row.record, 0, 0, 0)
    return repr(row)
