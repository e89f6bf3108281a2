"""A task of a job that records: it logs what nobody needs, and its progress has a checksum of what sinks were given."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from clonos_py.causal.codec import LogCodec
from clonos_py.causal.determinants import InputOrder
from clonos_py.columns.chained import chained
from clonos_py.model.operators import Sink
from clonos_py.model.plan import PhysicalPlan
from clonos_py.model.record_limits import RecordLimit
from clonos_py.model.segments import LogSegment
from clonos_py.process.contract import Begin, Deliver, Produced, RestoreState, SnapshotTaken, TaskProgress
from clonos_py.task.machine import TaskMachine
from tests.machines import task_machine
from tests.unit.link.links import FIRST
from tests.unit.task.plans import DOWN, Outside, barrier, data, rows, three


class Dropping(Sink):
    def on_rows(self, rows: pa.RecordBatch, side: int) -> None:
        pass


def _plan() -> PhysicalPlan:
    plan = three()
    *others, down = plan.vertices
    operator = replace(down.operators[0], factory=Dropping)
    return replace(plan, vertices=(*others, replace(down, operators=(operator,))))


PLAN = _plan()
RECORDED = replace(PLAN, record=RecordLimit(60_000_000))


def sink(plan: PhysicalPlan, log: Sequence[LogSegment] = (), restored: TaskProgress | None = None) -> TaskMachine:
    assert not plan.logged(DOWN)
    machine = task_machine(plan, DOWN, Outside())
    if restored is not None:
        machine.offer(RestoreState(1, {}, restored))
    machine.offer(Begin(FIRST, log, []))
    return machine


def given(machine: TaskMachine, *frames: Any) -> list[Any]:
    """The task takes these frames. Returns its events."""
    for frame in frames:
        machine.offer(Deliver(0, frame))
    events: list[Any] = []
    while (outcome := machine.step(0)).wake_us is None:
        events += outcome.events
    return [*events, *outcome.events]


def log_of(events: Sequence[Any]) -> list[LogSegment]:
    return [event.log for event in events if isinstance(event, Produced) and event.log is not None]


def snapshot_of(events: Sequence[Any]) -> TaskProgress:
    (taken,) = [event for event in events if isinstance(event, SnapshotTaken)]
    return taken.progress


def of_rows(*batches: pa.RecordBatch) -> int:
    found = 0
    for batch in batches:
        found = chained(found, batch)
    return found


def test_a_log_that_nobody_needs_is_cut_for_the_record() -> None:
    frames = data(0, 1, 2), data(1, 3), barrier(2, 1)
    assert log_of(given(sink(PLAN), *frames)) == []
    (segment,) = log_of(given(sink(RECORDED), *frames))
    assert LogCodec().load(segment) == [InputOrder(0, 3)]


def test_the_checksum_of_a_sink_covers_all_rows_that_it_was_given() -> None:
    events = given(sink(RECORDED), data(0, 1, 2), data(1, 3), barrier(2, 1), data(3, 4))
    assert snapshot_of(events).sunk == [of_rows(rows(1, 2, 3))]


def test_a_replay_gives_the_same_checksum() -> None:
    frames = data(0, 1, 2), data(1, 3), barrier(2, 1)
    first = given(sink(RECORDED), *frames)
    again = sink(RECORDED, log_of(first))
    assert snapshot_of(given(again, *frames)).sunk == snapshot_of(first).sunk
    other = sink(RECORDED, log_of(first))
    assert snapshot_of(given(other, data(0, 1, 2), data(1, 4), barrier(2, 1))).sunk != snapshot_of(first).sunk


def test_a_checksum_goes_on_after_a_restart() -> None:
    progress = snapshot_of(given(sink(RECORDED), data(0, 1, 2), barrier(1, 1)))
    restarted = sink(RECORDED, restored=progress)
    assert snapshot_of(given(restarted, data(2, 3), barrier(3, 2))).sunk == [of_rows(rows(1, 2), rows(3))]


def test_without_a_record_there_is_no_checksum_and_a_later_one_begins_at_zero() -> None:
    progress = snapshot_of(given(sink(PLAN), data(0, 1, 2), barrier(1, 1)))
    assert progress.sunk == []
    restarted = sink(RECORDED, restored=progress)
    assert snapshot_of(given(restarted, data(2, 3), barrier(3, 2))).sunk == [of_rows(rows(3))]
