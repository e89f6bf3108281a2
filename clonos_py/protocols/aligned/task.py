"""The task side of aligned barriers (Clonos, section 6; Flink's aligned checkpoints; D7).

    no barrier --the first barrier of a checkpoint--> aligning --the last barrier--> snapshot, all channels go on
    aligning --abort, or a barrier of a later checkpoint--> the channels go on

A channel whose barrier was taken is blocked until the barriers of all other channels are taken. Only logged events
decide which barriers were taken and which checkpoints were aborted. So a replay aligns exactly as its predecessor did.
"""

from __future__ import annotations

from clonos_py.model.ids import TaskId
from clonos_py.model.plan import PhysicalPlan
from clonos_py.task.checkpointing import TaskCheckpointing
from clonos_py.task.inputs import Inputs


class AlignedBarriers(TaskCheckpointing):
    """Sources take a snapshot when the coordinator triggers it; other tasks when they have taken all barriers."""

    def __init__(self, inputs: Inputs, plan: PhysicalPlan, task: TaskId) -> None:
        super().__init__(inputs, plan, task)
        self._aligning = 0
        """The checkpoint that is being aligned; 0 if none is."""

    @property
    def aligning(self) -> bool:
        return self._aligning != 0

    def barrier(self, channel: int, checkpoint: int, epoch: int) -> bool:
        if checkpoint <= epoch or checkpoint < self._aligning or checkpoint in self.triggers.aborted:
            return False
        if checkpoint > self._aligning:
            self._release()
            self._aligning = checkpoint
        self.inputs.block(channel)
        if not self.inputs.all_blocked:
            return False
        self._release()
        return True

    def abort(self, checkpoint: int) -> None:
        super().abort(checkpoint)
        if self._aligning == checkpoint:
            self._release()

    def restore(self, state: bytes) -> None:
        """Releases all channels. A snapshot has no alignment state, since it is taken when alignment is over."""
        self._release()

    def _release(self) -> None:
        self._aligning = 0
        self.inputs.release()
