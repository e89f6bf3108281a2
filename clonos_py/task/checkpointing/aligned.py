"""Aligned barriers on the side of a task (Clonos, section 6; Flink's aligned checkpoints; D7).

    no barrier --the first barrier of a checkpoint--> aligning --the last barrier--> snapshot, all channels go on
    aligning --abort, or a barrier of a later checkpoint--> the channels go on

A channel whose barrier was taken waits until those of all others are. Which barriers were taken and which checkpoints
were aborted is decided by events of the log only, so a replay aligns exactly as its predecessor did.
"""

from __future__ import annotations

from clonos_py.model.ids import TaskId
from clonos_py.model.plan import PhysicalPlan
from clonos_py.task.checkpointing.interface import TaskCheckpointing
from clonos_py.task.inputs import Inputs


class AlignedBarriers(TaskCheckpointing):
    """Sources take their snapshots when the coordinator calls, all others when they have all barriers."""

    def __init__(self, inputs: Inputs, plan: PhysicalPlan, task: TaskId) -> None:
        super().__init__(inputs, plan, task)
        self._aligning = 0
        """The checkpoint whose barriers are being collected; 0: none."""

    def barrier(self, channel: int, checkpoint: int, epoch: int) -> bool:
        if checkpoint <= epoch or checkpoint < self._aligning or checkpoint in self._calls.aborted:
            return False
        if checkpoint > self._aligning:
            self._release()
            self._aligning = checkpoint
        self._inputs.block(channel)
        if not self._inputs.all_blocked:
            return False
        self._release()
        return True

    def abort(self, checkpoint: int) -> None:
        super().abort(checkpoint)
        if self._aligning == checkpoint:
            self._release()

    def restore(self, state: bytes) -> None:
        """A snapshot is taken with nothing aligning."""
        self._release()

    def _release(self) -> None:
        self._aligning = 0
        self._inputs.release()
