"""A checkpoint protocol on the side of one task: when it takes a snapshot, and which inputs wait for that (D7).

The other side is in the coordinator (``job/protocols/interface.py``). The task machine asks a running task's protocol
what to do next, and logs the answer. What events do is the same for a running and a replaying task: it follows from the
events of the log and from the state that the protocol itself keeps in snapshots.
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
    """One per task machine. It blocks and releases input channels with ``Inputs.block`` and ``Inputs.release``."""

    barriers: ClassVar[bool] = True
    """Whether a snapshot ends its epoch with a barrier on every output channel."""
    forces: ClassVar[bool] = False
    """Whether frames may force a snapshot before they are taken: only then ``before`` and ``took`` are called, and
    ``stamp`` when frames are cut."""

    def __init__(self, inputs: Inputs, plan: PhysicalPlan, task: TaskId) -> None:
        self._inputs, self._plan, self._task = inputs, plan, task
        self._calls = CheckpointCalls()

    # ---- of a running task: what is answered here is logged

    def due(self, now_us: int, epoch: int) -> Trigger | Abort | None:
        """What is to be done now: a call of the coordinator, or what the task's own clock says. ``now_us``: see
        ``TaskMachine.step``; ``epoch``: the one that the task is in."""
        return self._calls.next(epoch)

    @property
    def wake_us(self) -> int | None:
        """When ``due`` has an answer at the latest, by the task's own clock; None: the task has none."""
        return None

    def before(self, frames: Sequence[Frame], epoch: int) -> Trigger | None:
        """The snapshot that must be taken before these frames are."""
        return None

    # ---- what events do, live and replayed alike

    def called(self, call: TriggerCall | AbortCall) -> None:
        """The coordinator calls."""
        self._calls.offer(call)

    @abstractmethod
    def barrier(self, channel: int, checkpoint: int, epoch: int) -> bool:
        """The barrier of ``checkpoint`` was taken from an input channel. Whether its snapshot is to be taken now."""

    def took(self, frames: Sequence[Frame]) -> None:  # noqa: B027 - most protocols need nothing here
        """Frames are taken, in this order."""

    def abort(self, checkpoint: int) -> None:
        """The checkpoint is void."""
        self._calls.aborted.add(checkpoint)

    def taken(self, checkpoint: int) -> None:
        """The snapshot is taken that begins the epoch of this number: what was to be sent before is cut, and ``state``
        is asked for next."""
        self._calls.passed(checkpoint)

    def stamp(self, output: int) -> bytes:
        """What a frame carries that is cut now for this output channel; its receiver's protocol finds it in
        ``Frame.stamp``."""
        return b""

    # ---- own state

    def state(self) -> bytes:
        """What a snapshot keeps."""
        return b""

    @abstractmethod
    def restore(self, state: bytes) -> None:
        """Goes on after a snapshot; ``state`` is empty where the task starts from nothing."""
