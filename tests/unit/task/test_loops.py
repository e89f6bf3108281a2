"""Loops on the side of their tasks: which rows go first, when tasks are passive, what is counted, and how loops end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from clonos_py.causal.determinants import LoopEnd, Trigger
from clonos_py.channel.frames import FrameKind
from clonos_py.model.errors import UserCodeError
from clonos_py.model.ids import Attempt, TaskId
from clonos_py.model.segments import LogSegment
from clonos_py.process.contract import (
    Begin,
    Deliver,
    LoopCounts,
    LoopEndRequest,
    ProbeRequest,
    Produced,
    SnapshotTaken,
    TaskState,
    TriggerRequest,
)
from clonos_py.protocols.aligned.task import AlignedBarriers
from clonos_py.task.loops import LoopInputs
from tests.machines import task_machine
from tests.unit.task.given import Given
from tests.unit.task.loops import BACK, BODY, ENTRY, HEAD, looping
from tests.unit.task.plans import Outside, barrier, data, end, keys
from tests.unit.task.test_inputs import taken


class Run(Given):
    """A task of the loop that the test steps."""

    def __init__(self, which: TaskId = HEAD, log: Sequence[LogSegment] = ()) -> None:
        super().__init__()
        self.machine = task_machine(looping(), which, Outside(), linger_us=0)
        self.machine.offer(Begin(Attempt(1, 1), log, ()))
        self.step()

    def offer(self, *items: Any) -> Run:
        for item in items:
            self.machine.offer(item)
        return self.step()

    def step(self) -> Run:
        outcome = self.machine.step(0)
        while outcome.wake_us is None:
            self.events += outcome.events
            outcome = self.machine.step(0)
        self.events += outcome.events
        return self

    @property
    def kinds(self) -> list[FrameKind]:
        """The frames it has sent to the body."""
        return [frame.kind for produced in self.of(Produced) for _, frame in produced.frames]

    @property
    def rows(self) -> list[Any]:
        return [key for produced in self.of(Produced) for _, frame in produced.frames for key in keys(frame.rows)]


def head_inputs(entering: int, back: int) -> LoopInputs:
    inputs = LoopInputs([0, 0], 1, [BACK])
    for index, count in ((ENTRY, entering), (BACK, back)):
        for seq in range(count):
            inputs.offer(index, data(seq, seq))
    return inputs


# ---- order


def test_rows_from_the_feedback_edge_go_before_rows_that_enter() -> None:
    assert taken(head_inputs(2, 3)) == [BACK, BACK, BACK, ENTRY, ENTRY]


def test_a_barrier_goes_before_rows_from_both_edges() -> None:
    inputs = LoopInputs([0, 0], 1, [BACK])
    inputs.offer(BACK, data(0, 1))
    inputs.offer(ENTRY, barrier(0, 1))
    inputs.offer(ENTRY, data(1, 2))
    assert taken(inputs) == [ENTRY, BACK, ENTRY]


def test_feedback_channels_take_turns() -> None:
    inputs = LoopInputs([0, 0, 0], 1, [1, 2])
    for index in (1, 2):
        for seq in range(2):
            inputs.offer(index, data(seq, seq))
    assert taken(inputs) == [1, 2, 1, 2]


def test_the_head_aligns_only_the_entering_channels() -> None:
    inputs = head_inputs(1, 1)
    assert AlignedBarriers(inputs, looping(), HEAD).barrier(ENTRY, 1, epoch=0), (
        "the snapshot is taken without the other barrier"
    )


def test_a_barrier_on_the_feedback_edge_waits_for_those_that_enter() -> None:
    inputs = head_inputs(1, 1)
    protocol = AlignedBarriers(inputs, looping(), HEAD)
    assert not protocol.barrier(BACK, 1, epoch=0)
    assert taken(inputs) == [ENTRY], "frames cut after it belong to the next epoch"
    assert protocol.barrier(ENTRY, 1, epoch=0)
    assert taken(inputs) == [BACK]


def test_a_late_barrier_on_the_feedback_edge_is_ignored() -> None:
    run = Run().offer(Deliver(ENTRY, barrier(0, 1)), Deliver(BACK, barrier(0, 1)), Deliver(BACK, data(1, 5)))
    assert len(run.of(SnapshotTaken)) == 1
    assert run.rows == [5]


# ---- counts


def counts(run: Run) -> LoopCounts:
    return run.offer(ProbeRequest(7)).of(LoopCounts)[-1]


def test_a_head_is_passive_when_its_entering_channels_have_ended() -> None:
    run = Run()
    assert counts(run) == LoopCounts(7, False, 0, [0], [0, 0])
    run.offer(Deliver(ENTRY, end(0)))
    assert counts(run) == LoopCounts(7, True, 0, [0], [1, 0])


def test_the_end_of_the_entering_channels_does_not_end_the_head() -> None:
    run = Run().offer(Deliver(ENTRY, end(0)))
    assert run.machine.state is TaskState.RUNNING
    assert run.kinds == []


def test_a_loop_task_without_other_inputs_is_passive() -> None:
    run = Run(BODY).offer(Deliver(0, data(0, 1)))
    assert counts(run) == LoopCounts(7, True, 0, [1, 1], [1])


def test_a_task_with_uncut_rows_is_not_passive() -> None:
    run = Run(BODY)
    run.machine._lingering._linger_us = 1_000
    run.offer(Deliver(0, data(0, 1)))
    assert not counts(run).passive
    assert counts(run).cut == [0, 0]


def test_a_task_that_replays_is_not_passive() -> None:
    log = Run(BODY).offer(Deliver(0, data(0, 1))).segments
    run = Run(BODY, log)
    assert run.machine.replaying
    assert not counts(run).passive


def test_the_answer_to_a_probe_names_the_epoch() -> None:
    run = Run().offer(Deliver(ENTRY, barrier(0, 3)))
    assert counts(run).epoch == 3


# ---- the end


def ended() -> Run:
    return Run().offer(Deliver(ENTRY, data(0, 1)), Deliver(ENTRY, end(1)), LoopEndRequest())


def test_the_end_of_a_loop_is_logged_and_ends_the_outputs() -> None:
    run = ended()
    assert run.log[-1] == LoopEnd()
    assert run.kinds == [FrameKind.DATA, FrameKind.END]
    assert run.machine.state is TaskState.FINISHED


def test_a_replay_ends_the_loop_where_its_predecessor_did() -> None:
    run = Run(log=ended().segments).offer(Deliver(ENTRY, data(0, 1)), Deliver(ENTRY, end(1)))
    assert run.machine.state is TaskState.FINISHED
    assert run.kinds == [FrameKind.DATA, FrameKind.END]


def test_only_the_first_call_ends_a_head_and_no_call_ends_another_task() -> None:
    run = ended().offer(LoopEndRequest())
    assert run.log.count(LoopEnd()) == 1
    other = Run(BODY).offer(LoopEndRequest())
    assert other.log == []
    assert other.machine.state is TaskState.RUNNING


def test_after_its_end_a_head_takes_the_end_and_barriers_from_the_feedback_edge() -> None:
    run = ended().offer(Deliver(BACK, end(0)), Deliver(ENTRY, barrier(2, 1)), Deliver(BACK, barrier(1, 1)))
    assert run.kinds == [FrameKind.DATA, FrameKind.END, FrameKind.BARRIER]
    assert run.of(SnapshotTaken)[0].progress.finished


def test_rows_from_the_feedback_edge_after_the_end_are_an_error() -> None:
    with pytest.raises(UserCodeError, match=r"rows returned to head.0., the head of a loop that has ended"):
        ended().offer(Deliver(BACK, data(0, 1)))


def test_a_head_takes_snapshots_when_it_is_called() -> None:
    run = Run().offer(TriggerRequest(1))
    assert run.log == [Trigger(1)]
