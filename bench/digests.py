"""Checks that every query gives the same results on every driver, at every parallelism, with and without a kill.

Each run writes into files. Its rows must equal those of an independent computation. When they are sorted, they must be
the same bytes as in every other run of the query. A kill counts only if it had an effect: unacknowledged frames were at
stake, rows were replayed, or events were read a second time. Query 12 depends on processing time, so only the sum of
its counts is checked: it must be the number of bids.
"""

from __future__ import annotations

import hashlib
import itertools
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from clonos_py.bench.oracle import expected, total_bids
from clonos_py.connectors import read_results
from clonos_py.dsl.job import Job
from clonos_py.evaluation.nexmark.jobs import QUERIES, build, files_of
from clonos_py.evaluation.nexmark.new_users import difference
from clonos_py.evaluation.nexmark.source import NexmarkSource
from clonos_py.evaluation.nexmark.victims import SOURCE, task_to_kill
from clonos_py.model.coordinator_events import Replayed, RolledBack
from clonos_py.observe.events import Event, Progress, TaskFailed
from clonos_py.plan.physical import plan
from clonos_py.runtime.launch import run_job
from clonos_py.runtime.run_settings import raise_for
from clonos_py.runtime.sim.run import simulate_plan
from clonos_py.settings.definitions import Runtime
from clonos_py.settings.protocols import DEFAULT_PROTOCOL
from clonos_py.settings.resolution import resolve

PARALLELISMS = (1, 2)
PACED = NexmarkSource(events=6_400, rate=2_000, event_rate=150, partitions=2)
"""Lasts about three seconds, so that a task can be killed in the middle of the run."""
UNPACED = NexmarkSource(events=6_400, event_rate=150)
KILL_TIME = "2.6s"
CHECKPOINT_INTERVAL = "1s"

_STANDBYS_PER_PROCESS = 4
"""Standbys share processes, since on Ray half of the time of a run goes into starting processes."""


@dataclass(frozen=True)
class DigestCase:
    """One run of a query. In the simulator the seed decides which tasks are killed."""

    query: str
    parallelism: int
    runtime: Runtime
    killed: bool = False
    protocol: str = DEFAULT_PROTOCOL.name

    @property
    def task_to_kill(self) -> str:
        return task_to_kill(self.query, self.parallelism)

    def __str__(self) -> str:
        harm = (
            "no task killed"
            if not self.killed
            else "killed by seed"
            if self.runtime is Runtime.SIM
            else self.task_to_kill
        )
        return f"{self.query:<4} {self.parallelism}  {self.runtime.value:<5}  {harm:<18}"


@dataclass(frozen=True)
class DigestFinding:
    """The result of a run: ``digest`` of its sorted rows (None if they are not deterministic), and what is wrong."""

    rows: int
    digest: str | None
    wrong: str | None


def find(case: DigestCase) -> DigestFinding:
    """Runs a case. Raises what the run raises."""
    with tempfile.TemporaryDirectory(prefix="clonos-digests-") as folder:
        problem = _run(case, folder)
        rows = read_results(folder) if any(Path(folder).iterdir()) else []
    answers = wrong_answers(case.query, [tuple(row.values()) for row in rows])
    text = "\n".join(sorted(map(repr, rows)))
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    return DigestFinding(len(rows), None if case.query == "q12" else digest, answers or problem)


def wrong_answers(query: str, rows: Sequence[tuple[Any, ...]]) -> str | None:
    if query != "q12":
        return difference(expected(query, UNPACED), rows)
    found, bids = sum(row[1] for row in rows), total_bids(UNPACED)
    return None if found == bids else f"{found} bids were counted, there are {bids}"


def _run(case: DigestCase, folder: str) -> str | None:
    """Runs a case into a folder. Returns what was wrong with its failures, or None."""
    if case.killed and case.runtime is Runtime.SIM:
        return _simulate_kills(case, folder)
    given: dict[str, Any] = {
        "runtime": case.runtime.value,
        "parallelism": case.parallelism,
        "checkpoint_interval": CHECKPOINT_INTERVAL,
        "standbys": int(case.killed),
        "kills": [f"{case.task_to_kill}@{KILL_TIME}"] if case.killed else [],
        "protocol": case.protocol,
    }
    if case.killed and case.runtime is Runtime.RAY:
        given["standbys_per_process"] = _STANDBYS_PER_PROCESS
    events: list[Event] = []
    run_job(_job(case, folder), resolve(given), lambda at_us, event: events.append(event))
    return wrong_failures(case, events)


def _job(case: DigestCase, folder: str) -> Job:
    paced = case.killed and case.runtime is not Runtime.SIM
    return build(case.query, PACED if paced else UNPACED, files_of(case.query, folder))


def wrong_failures(case: DigestCase, events: Sequence[Event]) -> str | None:
    failed = [event for event in events if isinstance(event, TaskFailed)]
    if any(isinstance(event, RolledBack) for event in events):
        return "the job rolled back"
    if [str(event.task) for event in failed] != [case.task_to_kill] * case.killed:
        return f"failed: {[str(event.task) for event in failed]}, ordered: {[case.task_to_kill] * case.killed}"
    replayed = sum(event.rows for event in events if isinstance(event, Replayed))
    if case.killed and not (failed[0].frames_at_stake or replayed or _read_twice(events)):
        return "the kill had no effect, so the run proves nothing"
    return None


def _read_twice(events: Sequence[Event]) -> int:
    """How many events the source tasks together read more than once."""
    last = next(event for event in reversed(events) if isinstance(event, Progress))
    return sum(vertex.rows_in for vertex in last.vertices if vertex.vertex == SOURCE) - UNPACED.events


def _simulate_kills(case: DigestCase, folder: str) -> str | None:
    """Simulates the case with two kills. A run without kills shows how long a run lasts, so that both fall into it."""
    with tempfile.TemporaryDirectory(prefix="clonos-digests-") as calm_folder:
        calm = simulate_plan(plan(_job(case, calm_folder), parallelism=case.parallelism), seed=1, kills=0)
    job = plan(_job(case, folder), parallelism=case.parallelism)
    outcome = simulate_plan(job, seed=1, kills=2, actions_expected=calm.actions)
    if outcome.ended is not None:
        raise_for(outcome.ended)
    return "; ".join(outcome.problems) or (None if outcome.kills else "no task could be killed")


def cases(queries: Sequence[str], runtimes: Sequence[Runtime]) -> Iterator[DigestCase]:
    """All runs to compare, query by query."""
    for query in queries:
        for runtime, parallelism, killed in itertools.product(runtimes, PARALLELISMS, (False, True)):
            yield DigestCase(query, parallelism, runtime, killed)


def verdict(finding: DigestFinding, first: DigestFinding) -> str:
    """The result in words, compared with the first run of the same query."""
    if finding.wrong is None and finding.digest != first.digest:
        return f"DIFFERENT from the first run, {first.digest}"
    return "identical" if finding.wrong is None else f"WRONG: {finding.wrong}"


def run(queries: tuple[str, ...], runtimes: tuple[str, ...]) -> None:
    """Runs all cases and prints a line for each. Exits with 1 if the result of any case is wrong or different."""
    chosen = [Runtime(name) for name in runtimes or [runtime.value for runtime in Runtime]]
    firsts: dict[str, DigestFinding] = {}
    verdicts = []
    with ExitStack() as stack:
        if Runtime.RAY in chosen:
            from clonos_py.runtime.ray.cluster import connected

            stack.enter_context(connected(None))  # one Ray for all runs
        for case in cases(queries or QUERIES, chosen):
            finding = find(case)
            verdicts.append(verdict(finding, firsts.setdefault(case.query, finding)))
            click.echo(f"{case} {finding.rows:>6} rows  {finding.digest or '-':<16}  {verdicts[-1]}")
    if set(verdicts) != {"identical"}:
        raise click.exceptions.Exit(1)


command = click.Command(
    "digests",
    callback=run,
    params=[
        click.Argument(["queries"], nargs=-1, type=click.Choice(QUERIES)),
        click.Option(
            ["--runtime", "runtimes"],
            multiple=True,
            type=click.Choice([runtime.value for runtime in Runtime]),
            help="Only this driver; may be given several times.",
        ),
    ],
    help="Whether QUERIES (all without any) give the same results on every driver, with and without kills.",
)
