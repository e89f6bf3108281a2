"""Verifies queries against Spark over several seeds and parallelisms, with and without a killed task."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from clonos_py.evaluation.nexmark.running import QueryRun, SinkKind, run_query
from clonos_py.evaluation.nexmark.source import NexmarkSource
from clonos_py.evaluation.nexmark.victims import task_to_kill
from clonos_py.evaluation.spark.generate import generate
from clonos_py.evaluation.spark.session import session
from clonos_py.evaluation.spark.verify import verify
from clonos_py.model.errors import GraphError, SettingError, one_line
from clonos_py.settings.definitions import Runtime, Settings
from clonos_py.settings.kinds import Kill


@dataclass(frozen=True)
class ProofTrial:
    """One run of a query."""

    query: str
    seed: int
    parallelism: int
    killed: bool

    @property
    def task_to_kill(self) -> str:
        return task_to_kill(self.query, self.parallelism)

    def __str__(self) -> str:
        harm = f"{self.task_to_kill} killed" if self.killed else "no task killed"
        return f"{self.query:<4} seed {self.seed}  parallelism {self.parallelism}  {harm:<24}"


@dataclass(frozen=True)
class ProofResult:
    """The result of a trial. ``lines``: its text; the first line follows the trial's name."""

    right: bool
    lines: tuple[str, ...]


def trials(queries: Sequence[str], seeds: Sequence[int], parallelisms: Sequence[int]) -> Iterator[ProofTrial]:
    """All trials, grouped by seed, since each seed has its own events."""
    for seed, query, parallelism, killed in itertools.product(seeds, queries, parallelisms, (False, True)):
        yield ProofTrial(query, seed, parallelism, killed)


def prove(
    chosen: Sequence[ProofTrial], source: NexmarkSource, settings: Settings, master: str | None = None
) -> Iterator[tuple[ProofTrial, ProofResult]]:
    """Runs the trials over events like those of ``source``, at its rate. The events of a seed are written once. A run
    that fails counts as wrong. Errors that affect every run, such as an invalid setting, are raised."""
    with ExitStack() as stack:
        stack.enter_context(session("nexmark prove", master))
        if settings.runtime is Runtime.RAY:
            from clonos_py.runtime.ray.cluster import connected

            stack.enter_context(connected(settings.address))  # one Ray for all runs
        for seed, of_seed in itertools.groupby(chosen, key=lambda trial: trial.seed):
            with tempfile.TemporaryDirectory(prefix="clonos-proof-") as folder:
                events = Path(folder) / "events"
                generate(replace(source, seed=seed), events)
                for number, trial in enumerate(of_seed):
                    yield trial, _judged(trial, source, events, Path(folder) / f"results-{number}", settings)


def _judged(trial: ProofTrial, source: NexmarkSource, events: Path, out: Path, settings: Settings) -> ProofResult:
    try:
        return _tried(trial, source, events, out, settings)
    except (SettingError, GraphError):
        raise
    except Exception as error:  # noqa: BLE001 - one failed run must not end the others
        return ProofResult(False, (f"{trial.query}: failed: {type(error).__name__}: {one_line(error)}",))


def _tried(trial: ProofTrial, source: NexmarkSource, events: Path, out: Path, settings: Settings) -> ProofResult:
    kills = (_kill(trial, source),) if trial.killed else ()
    rate = source.rate if trial.killed else None
    order = QueryRun(trial.query, source.events, rate, sink=SinkKind.FILES, out=out, events_from=events)
    report = run_query(order, replace(settings, parallelism=trial.parallelism, kills=kills))
    comparison = verify(trial.query, events, out)
    if len(report["failures"]) < len(kills):
        return ProofResult(False, ("no task could be killed: inconclusive",))
    return ProofResult(comparison.identical, tuple(comparison.lines(trial.query)))


def _kill(trial: ProofTrial, source: NexmarkSource) -> Kill:
    """Kills the trial's task half-way through the run."""
    operator, _, index = trial.task_to_kill.removesuffix("]").partition("[")
    seconds = source.events / source.rate if source.rate else 1.0
    return Kill(operator, int(index), round(seconds * 500_000))
