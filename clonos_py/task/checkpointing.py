"""The task side of a checkpoint protocol: when a task takes a snapshot, and which inputs are blocked for it (D7).

The coordinator side is in ``job/checkpointing.py``. While a task runs, the task machine asks the protocol what to do
next and logs the answer. Events have the same effect in a running and a replaying task. It follows only from the events
of the log and from the state that the protocol keeps in snapshots.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from clonos_py.causal.determinants import Abort, Trigger
from clonos_py.channel.frames import Frame
from clonos_py.model.errors import ProtocolError
from clonos_py.model.ids import TaskId
from clonos_py.model.plan import PhysicalPlan
from clonos_py.process.contract import AbortRequest, TriggerRequest
from clonos_py.task.inputs import Inputs
from clonos_py.task.trigger_queue import TriggerQueue


class TaskCheckpointing:
    """The protocol object of one task machine. It blocks and releases input channels with ``Inputs.block`` and
    ``Inputs.release``. This class takes a snapshot at each trigger of the coordinator, knows no barriers and keeps no
    state."""

    def __init__(self, inputs: Inputs, plan: PhysicalPlan, task: TaskId) -> None:
        self.inputs, self.plan, self.task = inputs, plan, task
        self.triggers = TriggerQueue()

    # ---- in a running task; the answers are logged

    def due(self, now_us: int, epoch: int) -> Trigger | Abort | None:
        """The trigger or abort to perform now, from the coordinator or from the task's own clock; None if there is
        none. ``now_us``: see ``TaskMachine.step``; ``epoch``: the task's current epoch."""
        return self.triggers.next(epoch)

    @property
    def wake_us(self) -> int | None:
        """When ``due`` must be called again because of the task's own clock; None if the protocol uses no clock."""
        return None

    def before(self, frames: Sequence[Frame], epoch: int) -> Trigger | None:
        """The snapshot that must be taken before these frames; None if none is needed. Called where frames carry
        stamps."""
        return None

    @property
    def aligning(self) -> bool:
        """Whether input channels are blocked. Then the state of the task is not all in its progress."""
        return False

    # ---- effects of events, live and replayed

    def triggered(self, request: TriggerRequest | AbortRequest) -> None:
        """Takes a trigger or abort from the coordinator."""
        self.triggers.offer(request)

    def barrier(self, channel: int, checkpoint: int, epoch: int) -> bool:
        """Takes the barrier of ``checkpoint`` from an input channel. Returns whether the snapshot must be taken now."""
        raise ProtocolError(f"input {channel} brought a barrier of checkpoint {checkpoint}, where there are none")

    def took(self, frames: Sequence[Frame]) -> None:
        """Records that frames were taken, in this order. Called where frames carry stamps."""

    def abort(self, checkpoint: int) -> None:
        """Marks the checkpoint as void."""
        self.triggers.aborted.add(checkpoint)

    def taken(self, checkpoint: int) -> None:
        """Called when the snapshot that begins epoch ``checkpoint`` is taken: all output before it is cut, and
        ``state`` is called next."""
        self.triggers.passed(checkpoint)

    def stamp(self, output: int) -> bytes:
        """The stamp of a frame that is cut now for this output channel. The receiver's protocol reads it from
        ``Frame.stamp``."""
        return b""

    # ---- own state

    def state(self) -> bytes:
        """The protocol's state, for a snapshot."""
        return b""

    def restore(self, state: bytes) -> None:
        """Restores the state of a snapshot; ``state`` is empty if the task starts without one."""


TaskSide = Callable[[Inputs, PhysicalPlan, TaskId], TaskCheckpointing]
"""Creates the task side of a protocol."""
