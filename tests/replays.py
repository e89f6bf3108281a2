"""Simulated jobs that record, and replays of what they did."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import pytest

from clonos_py.checkpoint.memory import MemoryStore
from clonos_py.model.errors import ProtocolError, RecordError
from clonos_py.model.plan import PhysicalPlan
from clonos_py.model.record_limits import RecordLimit
from clonos_py.model.snapshots import Manifest
from clonos_py.process.contract import ChannelLimits
from clonos_py.runtime.replay.interval import legs, recorded_tasks
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
    """Runs the job of a seed, which records."""
    made = generate(seed, range_)
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
    made, plan, store = run.made, run.plan, run.store
    manifests = store.manifests()
    for first, last in _intervals(manifests, random.Random(seed)):
        found.intervals += 1
        try:
            _replay(found, made, plan, store, first, last)
        except RecordError as problem:
            if "restarted without its log" not in str(problem):
                found.problems.append(f"from {_number(first)} to {last.checkpoint}: {problem}")
        except ProtocolError as problem:
            found.problems.append(f"from {_number(first)} to {last.checkpoint}: {problem}")
    return found


def _intervals(manifests: list[Manifest], draw: random.Random) -> Iterator[tuple[Manifest | None, Manifest]]:
    if manifests:
        yield None, manifests[-1]
    for _ in range(2 if len(manifests) > 1 else 0):
        first, last = sorted(draw.sample(range(len(manifests)), 2))
        yield manifests[first], manifests[last]


def _replay(
    found: Replays, made: Scenario, plan: PhysicalPlan, store: MemoryStore, first: Manifest | None, last: Manifest
) -> None:
    manifests = store.manifests()
    limits = ChannelLimits(window=made.conditions.window, policy=made.conditions.spill)
    for leg in legs(manifests, first, last):
        tasks = recorded_tasks(plan, leg, manifests, store.read_record)
        observed = without_sinks(plan, lambda task, sink, rows: None)
        result = LegReplay(observed, tasks, store, leg.names, limits).run()
        found.snapshots += result.snapshots
        found.problems += [f"from {_number(first)} to {last.checkpoint}: {line}" for line in result.differences]


def _number(manifest: Manifest | None) -> int:
    return manifest.checkpoint if manifest is not None else 0
