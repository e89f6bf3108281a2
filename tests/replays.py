"""Simulated jobs that record, and replays of what they did.

``python -m tests.replays START COUNT`` runs and replays so many seeds, and prints what differs.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import click
import pytest

from clonos_py.checkpoint.memory import MemoryStore
from clonos_py.model.errors import ClonosError, ProtocolError, RecordError
from clonos_py.model.plan import PhysicalPlan
from clonos_py.model.record_limits import RecordLimit
from clonos_py.model.snapshots import Manifest
from clonos_py.process.contract import ChannelLimits
from clonos_py.runtime.replay.interval import Leg, legs, recorded_tasks, tails_after
from clonos_py.runtime.replay.machines import LegReplay
from clonos_py.runtime.replay.sinks import without_sinks
from clonos_py.runtime.sim import scenario
from clonos_py.runtime.sim.generator import Range, Scenario, generate
from clonos_py.runtime.sim.histories import HistoryLedger
from clonos_py.runtime.sim.topology import Topology

_FOR_EVER_US = 10**15
_ALL = 1 << 30


class KeepingStore(MemoryStore):
    """Deletes nothing."""

    kept: KeepingStore | None = None
    """The last one made."""

    def __init__(self, job: str, deltas_max: int) -> None:
        super().__init__(job, deltas_max)
        KeepingStore.kept = self

    def retire(self, keep: int = 2) -> None:
        super().retire(_ALL)


@dataclass
class Replays:
    """The outcome of the replays of one simulated job."""

    seed: int
    problems: list[str] = field(default_factory=list)
    """What differs, and what cannot be replayed although nothing restarted without its log."""
    snapshots: int = 0
    """How many snapshots were equal."""
    intervals: int = 0
    failures: int = 0
    """How many runs ended by an error and were replayed after their last checkpoint."""
    after_checkpoints: int = 0
    """How many events were replayed there."""


@dataclass(frozen=True)
class RecordedRun:
    """A generated job that recorded what it did, and its plan."""

    made: Scenario
    plan: PhysicalPlan
    store: MemoryStore

    @property
    def replayable(self) -> bool:
        """False for an at-least-once job, of which tasks restart without their logs."""
        return self.plan.sharing_depth != 0 or self.plan.rollback


def recorded_run(seed: int, range_: Range, patch: pytest.MonkeyPatch) -> RecordedRun:
    """Runs the job of a seed, which records, with the same tasks all the time."""
    made = generate(seed, range_)
    made = replace(made, conditions=replace(made.conditions, rescales=False))
    planned = Topology.plan
    with patch.context() as recording:
        recording.setattr(
            Topology, "plan", lambda self, ledger: replace(planned(self, ledger), record=RecordLimit(_FOR_EVER_US))
        )
        recording.setattr(scenario, "MemoryStore", KeepingStore)
        result = scenario.run_scenario(made)
        assert not result.problems, f"seed {seed}: {result.problems[0]}"
        plan = made.topology.plan(HistoryLedger())
    assert KeepingStore.kept is not None
    KeepingStore.kept.fail_no_more()
    return RecordedRun(made, plan, KeepingStore.kept)


def replays_of(seed: int, range_: Range, patch: pytest.MonkeyPatch) -> Replays:
    """Runs the job of a seed, which records, and replays it whole and from other checkpoints."""
    found = Replays(seed)
    run = recorded_run(seed, range_, patch)
    if not run.replayable:
        return found
    manifests = run.store.manifests()
    for first, last in _intervals(manifests, random.Random(seed)):
        found.intervals += 1
        try:
            _replay_legs(found, run, manifests, legs(manifests, first, last))
        except RecordError as problem:
            if "restarted without its log" not in str(problem):
                found.problems.append(f"from {_number(first)} to {last.checkpoint}: {problem}")
        except ProtocolError as problem:
            found.problems.append(f"from {_number(first)} to {last.checkpoint}: {problem}")
    _replay_failures(found, run)
    return found


def _replay_failures(found: Replays, run: RecordedRun) -> None:
    """Replays the ends of the runs that ended by an error, each with what was stored by then."""
    tails = run.store.tails()
    for generation in sorted({tail.interval.generation for tail in tails}):
        manifests = [manifest for manifest in run.store.manifests() if manifest.generation <= generation]
        newest = manifests[-1] if manifests else None
        of_run = tails_after(newest, [tail for tail in tails if tail.interval.generation == generation])
        if not of_run:
            continue
        found.failures += 1
        try:
            found.after_checkpoints += _replay_legs(found, run, manifests, legs(manifests, newest, newest, of_run))
        except ClonosError as problem:
            found.problems.append(f"after {_number(newest)} to the failure in generation {generation}: {problem}")


def _intervals(manifests: list[Manifest], draw: random.Random) -> Iterator[tuple[Manifest | None, Manifest]]:
    if manifests:
        yield None, manifests[-1]
    for _ in range(2 if len(manifests) > 1 else 0):
        first, last = sorted(draw.sample(range(len(manifests)), 2))
        yield manifests[first], manifests[last]


def _replay_legs(found: Replays, run: RecordedRun, manifests: list[Manifest], parts: list[Leg]) -> int:
    """Replays legs; returns the number of events."""
    limits = ChannelLimits(window=run.made.conditions.window, policy=run.made.conditions.spill)
    events = 0
    for leg in parts:
        tasks = recorded_tasks(run.plan, leg, manifests, run.store.read_record)
        observed = without_sinks(run.plan, lambda task, sink, rows: None)
        result = LegReplay(observed, tasks, run.store, leg.names, limits, failed=bool(leg.tails)).run()
        events += result.events
        found.snapshots += result.snapshots
        until = leg.end.checkpoint if leg.end is not None else 0
        found.problems += [f"from {_number(leg.before)} to {until}: {line}" for line in result.differences]
    return events


def _number(manifest: Manifest | None) -> int:
    return manifest.checkpoint if manifest is not None else 0


def main(start: int, count: int) -> int:
    """Replays the jobs of these seeds. Returns the exit code: 1 if anything differs."""
    bad, total = 0, Replays(start)
    for seed in range(start, start + count):
        with pytest.MonkeyPatch.context() as patch:
            found = replays_of(seed, Range(protocol=None), patch)
        for problem in found.problems[:1]:
            bad += 1
            click.echo(f"seed {seed}: {problem}")
        total.snapshots += found.snapshots
        total.intervals += found.intervals
        total.failures += found.failures
    click.echo(
        f"{count:,} seeds, {total.intervals:,} intervals, {total.snapshots:,} equal snapshots, "
        f"{total.failures:,} ends of failed runs: {bad} seeds differ"
    )
    return min(bad, 1)


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
