"""The task side of loops: the order of inputs at a loop head, and each task's progress report (E11).

The head takes rows from feedback edges before rows that enter the loop, so that the loop finishes its work before it
accepts more. It takes barriers before both, so that a checkpoint does not wait until the loop is empty. The head aligns
only the channels that enter the loop. Frames in flight on feedback channels are stored with the snapshots of their
senders.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from clonos_py.causal.determinants import FrameBatch, InputOrder, LoopEnd
from clonos_py.channel.frames import FrameKind
from clonos_py.model.ids import TaskId
from clonos_py.model.plan import PhysicalPlan
from clonos_py.process.contract import LoopCounts
from clonos_py.task.inputs import Inputs


class LoopInputs(Inputs):
    """The input channels of a loop head. ``feedback``: the indexes of its feedback channels."""

    def __init__(
        self, merge_rows: Sequence[int], frames_merged: int, feedback: Sequence[int], untimed: Collection[int] = ()
    ) -> None:
        super().__init__(merge_rows, frames_merged, untimed)
        self._feedback = feedback
        self._entries = [index for index in range(len(merge_rows)) if index not in feedback]

    def choose(self, rows_max: int | None = None) -> InputOrder | FrameBatch | None:
        for index in self._entries:
            if self.ready(index) and self.waiting(index, 1)[0].kind is not FrameKind.DATA:
                return InputOrder(index, 1)
        for group in (self._feedback, self._entries):
            for index in (*(i for i in group if i >= self._next), *(i for i in group if i < self._next)):
                if self.ready(index):
                    self._next = index + 1
                    return self._arrival(index, rows_max)
        return None

    @property
    def all_blocked(self) -> bool:
        return all(self._channels[index].blocked for index in self._entries)


class LoopMember:
    """The loop state of one task in a loop. ``feedback``: the indexes of its feedback channels, if it is a head."""

    def __init__(self, plan: PhysicalPlan, task: TaskId, inputs: Inputs) -> None:
        loop = plan.loop_of(task)
        assert loop is not None
        self._inputs = inputs
        channels = list(enumerate(plan.inputs[task]))
        self._entries = [index for index, channel in channels if plan.sender(channel).vertex not in loop.members]
        self.feedback = feedback_inputs(plan, task)
        self._end_called = False

    def restore(self) -> None:
        """Resets the state after a snapshot was restored."""
        self._end_called = False

    def call_end(self) -> None:
        """Takes the coordinator's call to end the loop: no rows are left in it."""
        self._end_called = True

    def due(self) -> LoopEnd | None:
        """The end of the loop to log and perform, once all channels that enter the loop have ended. Only the first call
        to end has an effect."""
        if not self._end_called:
            return None
        progress = self._inputs.progress
        if not all(progress[index].ended for index in self._entries):
            return None
        self._end_called = False
        return None if all(progress[index].ended for index in self.feedback) else LoopEnd()

    def end(self) -> None:
        """Marks the feedback channels as ended."""
        for index in self.feedback:
            self._inputs.end(index)

    def counts(self, number: int, at_rest: bool, epoch: int, cut: Sequence[int]) -> LoopCounts:
        """The progress report of this task. ``at_rest``: it runs, and no rows are being processed or wait to be cut."""
        progress = self._inputs.progress
        passive = at_rest and all(progress[index].ended for index in self._entries)
        return LoopCounts(number, passive, epoch, cut, [channel.next_seq for channel in progress])


def feedback_inputs(plan: PhysicalPlan, task: TaskId) -> list[int]:
    """The indexes of a task's feedback channels."""
    return [index for index, channel in enumerate(plan.inputs[task]) if plan.edges[channel.edge].feedback]


def inputs_of(plan: PhysicalPlan, task: TaskId, frames_merged: int) -> Inputs:
    """Creates the input channels of a task, whether or not it is a loop head."""
    edges = [plan.edges[channel.edge] for channel in plan.inputs[task]]
    merge_rows = [edge.merge_rows for edge in edges]
    untimed = {index for index, edge in enumerate(edges) if edge.untimed}
    feedback = feedback_inputs(plan, task)
    if feedback:
        return LoopInputs(merge_rows, frames_merged, feedback, untimed)
    return Inputs(merge_rows, frames_merged, untimed)
