"""The task side of a checkpoint protocol: when a task takes a snapshot, and which inputs are blocked for it (D7).

The coordinator side is in ``job/protocols/interface.py``. While a task runs, the task machine asks the protocol what to
do next and logs the answer. Events have the same effect in a running and a replaying task. It follows only from the
events of the log and from the state that the protocol keeps in snapshots.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from clonos_py.causal.determinants import Abort, Trigger
from clonos_py.channel.frames import Frame
from clonos_py.model.ids import TaskId
from clonos_py.model.plan import PhysicalPlan
from clonos_py.process.contract import AbortCall, TriggerCall
from clonos_py.task.checkpointing.calls import CheckpointCalls
from clonos_py.task.inputs import Inputs


class TaskCheckpointing(ABC):
    """The protocol object of one task machine. It blocks and releases input channels with ``Inputs.block`` and
    ``Inputs.release``."""

    barriers: ClassVar[bool] = True
    """Whether a snapshot ends its epoch with a barrier on every output channel."""
    forces: ClassVar[bool] = False
    """Whether frames may force a snapshot before they are taken. Only then are ``before`` and ``took`` called, and
    ``stamp`` when frames are cut."""

    def __init__(self, inputs: Inputs, plan: PhysicalPlan, task: TaskId) -> None:
        self._inputs, self._plan, self._task = inputs, plan, task
        self._calls = CheckpointCalls()

    # ---- in a running task; the answers are logged

    def due(self, now_us: int, epoch: int) -> Trigger | Abort | None:
        """The trigger or abort to perform now, from the coordinator or from the task's own clock; None if there is
        none. ``now_us``: see ``TaskMachine.step``; ``epoch``: the task's current epoch."""
        return self._calls.next(epoch)

    @property
    def wake_us(self) -> int | None:
        """When ``due`` must be called again because of the task's own clock; None if the protocol uses no clock."""
        return None

    def before(self, frames: Sequence[Frame], epoch: int) -> Trigger | None:
        """The snapshot that must be taken before these frames; None if none is needed."""
        return None

    # ---- effects of events, live and replayed

    def called(self, call: TriggerCall | AbortCall) -> None:
        """Takes a trigger or abort from the coordinator."""
        self._calls.offer(call)

    @abstractmethod
    def barrier(self, channel: int, checkpoint: int, epoch: int) -> bool:
        """Takes the barrier of ``checkpoint`` from an input channel. Returns whether the snapshot must be taken now."""

    def took(self, frames: Sequence[Frame]) -> None:  # noqa: B027 - most protocols need nothing here
        """Records that frames were taken, in this order."""

    def abort(self, checkpoint: int) -> None:
        """Marks the checkpoint as void."""
        self._calls.aborted.add(checkpoint)

    def taken(self, checkpoint: int) -> None:
        """Called when the snapshot that begins epoch ``checkpoint`` is taken: all output before it is cut, and
        ``state`` is called next."""
        self._calls.passed(checkpoint)

    def stamp(self, output: int) -> bytes:
        """The stamp of a frame that is cut now for this output channel. The receiver's protocol reads it from
        ``Frame.stamp``."""
        return b""

    # ---- own state

    def state(self) -> bytes:
        """The protocol's state, for a snapshot."""
        return b""

    @abstractmethod
    def restore(self, state: bytes) -> None:
        """Restores the state of a snapshot; ``state`` is empty if the task starts without one."""
