"""The same code beside a replay gives the same rows, in generated jobs whose tasks fail."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from clonos_py.checkpoint.memory import MemoryStore
from clonos_py.model.errors import RecordError
from clonos_py.model.ids import TaskId
from clonos_py.model.plan import PhysicalPlan
from clonos_py.model.snapshots import Manifest, numbering_of
from clonos_py.process.contract import ChannelLimits
from clonos_py.runtime.replay.answers import RecordedAnswers
from clonos_py.runtime.replay.counterparts import Counterparts, unrecorded
from clonos_py.runtime.replay.interval import Leg, legs, recorded_tasks
from clonos_py.runtime.replay.lockstep import SideBySide
from clonos_py.runtime.replay.sinks import SinkObserver
from clonos_py.runtime.replay.starting_states import StartingStates
from clonos_py.runtime.sim import scenario
from clonos_py.runtime.sim.generator import Range, Scenario, generate
from clonos_py.runtime.sim.histories import HistoryLedger

SEEDS = range(24)
_LONG_US = 10**12


class _Refused(Exception):
    """The interval cannot be compared, and the user is told why."""


class _Kept(MemoryStore):
    """Keeps all checkpoints."""

    def retire(self, keep: int = 2) -> None:
        return None


@pytest.fixture
def recording(monkeypatch: pytest.MonkeyPatch) -> None:
    """All generated jobs keep a record."""
    monkeypatch.setattr(scenario, "MemoryStore", _Kept)
    for topology in {type(generate(seed, Range()).topology) for seed in SEEDS}:

        def recorded(self: Any, ledger: HistoryLedger, make: Any = topology.plan) -> PhysicalPlan:
            plan: PhysicalPlan = replace(make(self, ledger), record_us=_LONG_US)
            return plan

        monkeypatch.setattr(topology, "plan", recorded)


def _observer(rows: Counter[tuple[str, str]]) -> SinkObserver:
    def observe(task: TaskId, sink: str, batch: pa.RecordBatch) -> None:
        rows.update((sink, repr(row)) for row in batch.to_pylist())

    return observe


def _intervals(seed: int, manifests: Sequence[Manifest]) -> Iterator[tuple[Manifest | None, Manifest]]:
    yield None, manifests[-1]
    if len(manifests) > 1:
        first, last = sorted(random.Random(seed).sample(range(len(manifests)), 2))
        yield manifests[first], manifests[last]


def _compared(generated: Scenario, store: MemoryStore, leg: Leg, manifests: Sequence[Manifest]) -> int:
    """Compares a leg with itself. Returns the number of rows."""
    plans = generated.topology.plan(HistoryLedger()), unrecorded(generated.topology.plan(HistoryLedger()))
    try:
        tasks = recorded_tasks(plans[0], leg, manifests, store.read_record)
        states = StartingStates(plans, tasks, leg.before, store)
    except RecordError as error:
        if re.search("has a gap|in parts", str(error)):
            raise _Refused from error
        raise
    before, after = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    record = RecordedAnswers()
    sides = SideBySide(
        plans,
        tasks,
        store,
        record,
        (_observer(before), _observer(after)),
        numbering=numbering_of(leg.last.lineage, leg.last.renumberings),
        limits=ChannelLimits(window=generated.conditions.window, policy=generated.conditions.spill),
        checkpoints_us=[(manifest.checkpoint, 0) for manifest in manifests],
    )
    result, _ = sides.run(states.of_tasks())
    assert not result.differences
    assert (before, record.left) == (after, 0)
    return sum(before.values())


def _run(seed: int) -> int:
    """Compares intervals of a run with themselves. Returns the number of rows."""
    generated = generate(seed, Range())
    run = scenario._Run(generated)
    assert not run.run().problems
    store = run._store
    plan = generated.topology.plan(HistoryLedger())
    if plan.sharing_depth == 0 and not plan.rollback:
        return 0  # at-least-once: tasks restart without their logs
    rows, manifests = 0, store.manifests()
    for first, last in _intervals(seed, manifests) if manifests else ():
        for leg in legs(manifests, first, last):
            with suppress(_Refused):
                rows += _compared(generated, store, leg, manifests)
    return rows


@pytest.mark.usefixtures("recording")
def test_the_same_code_gives_the_same_rows() -> None:
    assert sum(map(_run, SEEDS)) > 1_000


@pytest.mark.usefixtures("recording")
def test_rows_that_come_at_another_event_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The test above can fail: what tasks take at all is not enough."""
    monkeypatch.setattr(Counterparts, "_end_event", lambda self, task: None)
    monkeypatch.setattr(Counterparts, "_perform", _late(Counterparts._perform))
    with pytest.raises((AssertionError, RecordError)):
        sum(map(_run, SEEDS))


def _late(perform: Any) -> Any:
    def late(self: Counterparts, task: TaskId, leader: TaskId, coming: Any) -> None:
        if self._recorded.events[leader] % 5:
            perform(self, task, leader, coming)

    return late
