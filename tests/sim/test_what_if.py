"""The same code beside a replay gives the same rows, in generated jobs whose tasks fail."""

from __future__ import annotations

import itertools
import random
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pytest

from clonos_py.model.errors import ProtocolError, RecordError
from clonos_py.model.ids import TaskId
from clonos_py.model.snapshots import Manifest
from clonos_py.process.contract import ChannelLimits
from clonos_py.runtime.replay.answers import RecordedAnswers
from clonos_py.runtime.replay.counterparts import Counterparts, unrecorded
from clonos_py.runtime.replay.interval import Leg, legs, recorded_tasks
from clonos_py.runtime.replay.lockstep import SideBySide
from clonos_py.runtime.replay.sinks import SinkObserver
from clonos_py.runtime.replay.starting_states import StartingStates
from clonos_py.runtime.sim.generator import Range
from tests.replays import RecordedRun, recorded_run
from tests.sim.small_first import small_seeds

SEEDS = small_seeds(24)


class _Refused(Exception):
    """The interval cannot be compared, and the user is told why."""


def _observer(rows: Counter[tuple[str, str]]) -> SinkObserver:
    def observe(task: TaskId, sink: str, batch: pa.RecordBatch) -> None:
        rows.update((sink, repr(row)) for row in batch.to_pylist())

    return observe


def _intervals(seed: int, manifests: Sequence[Manifest]) -> Iterator[tuple[Manifest | None, Manifest]]:
    yield None, manifests[-1]
    if len(manifests) > 1:
        first, last = sorted(random.Random(seed).sample(range(len(manifests)), 2))
        yield manifests[first], manifests[last]


def _compared(run: RecordedRun, leg: Leg, manifests: Sequence[Manifest]) -> int:
    """Compares a leg with itself. Returns the number of rows."""
    store, generated = run.store, run.made
    plans = run.plan, unrecorded(run.plan)
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
        names=leg.names,
        limits=ChannelLimits(window=generated.conditions.window, policy=generated.conditions.spill),
        checkpoints_us=[(manifest.checkpoint, 0) for manifest in manifests],
    )
    result, _ = sides.run(states.of_tasks())
    assert not result.differences
    assert (before, record.left) == (after, 0)
    return sum(before.values())


def _run(seed: int, patch: pytest.MonkeyPatch) -> int:
    """Compares intervals of a run with themselves. Returns the number of rows."""
    run = recorded_run(seed, Range(), patch)
    if not run.replayable:
        return 0
    rows, manifests = 0, run.store.manifests()
    for first, last in _intervals(seed, manifests) if manifests else ():
        for leg in legs(manifests, first, last):
            with suppress(_Refused):
                rows += _compared(run, leg, manifests)
    return rows


def test_the_same_code_gives_the_same_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    assert sum(_run(seed, monkeypatch) for seed in SEEDS) > 10 * len(SEEDS)


def test_events_that_are_not_followed_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The test above can fail: what tasks take at all is not enough."""
    follow, events = Counterparts.follow, itertools.count()

    def now_and_then(self: Counterparts, *given: Any) -> None:
        if next(events) % 5:
            follow(self, *given)

    monkeypatch.setattr(Counterparts, "follow", now_and_then)
    with pytest.raises((AssertionError, RecordError, ProtocolError)):
        sum(_run(seed, monkeypatch) for seed in SEEDS)
