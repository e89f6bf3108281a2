"""The task side of communication-induced checkpoints (HMNR; E10).

The coordinator triggers each task at separate times, as in the uncoordinated protocol. In addition, a task takes a
forced snapshot before it takes frames that could make an earlier snapshot useless; ``hmnr`` decides when. Both kinds
are events of the log. Each task numbers its own epochs, since forced snapshots come between triggers.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from clonos_py.causal.determinants import Trigger
from clonos_py.channel.frames import Frame
from clonos_py.channel.stamps import HmnrStamp
from clonos_py.model.errors import CodecError
from clonos_py.model.ids import TaskId
from clonos_py.model.plan import PhysicalPlan
from clonos_py.process.contract import AbortRequest, TriggerRequest
from clonos_py.protocols.induced.hmnr import Hmnr
from clonos_py.task.checkpointing import TaskCheckpointing
from clonos_py.task.inputs import Inputs

_STAMPS_CACHED_MAX = 256
"""The number of stamps that are cached."""

_decoded = lru_cache(maxsize=_STAMPS_CACHED_MAX)(HmnrStamp.decode)


class InducedSnapshots(TaskCheckpointing):
    """Takes triggered and forced snapshots. A stamp that was taken before has no effect; most frames repeat one."""

    def __init__(self, inputs: Inputs, plan: PhysicalPlan, task: TaskId) -> None:
        super().__init__(inputs, plan, task)
        self._ordinal, self._tasks = plan.tasks.index(task), len(plan.tasks)
        self._receivers = [plan.tasks.index(plan.receiver(channel)) for channel in plan.outputs[task]]
        self._trigger: int | None = None
        """The newest trigger that no snapshot has answered; None if there is none."""
        self._last_used_epoch = 0
        """The last epoch that a predecessor has used. Snapshots of this task get higher numbers."""
        self._hmnr = Hmnr(self._ordinal, self._tasks)
        self._stamps_taken: set[bytes] = set()
        """The stamps that were taken."""
        self._stamp: tuple[HmnrStamp, bytes] | None = None

    # ---- in a running task

    def triggered(self, request: TriggerRequest | AbortRequest) -> None:
        """Takes a trigger or abort from the coordinator. An abort marks epochs as used: the task restarted before
        them."""
        if isinstance(request, TriggerRequest):
            self._trigger = request.checkpoint
        else:
            self._last_used_epoch = max(self._last_used_epoch, request.checkpoint)

    def due(self, now_us: int, epoch: int) -> Trigger | None:
        if self._trigger is None:
            return None
        return Trigger(max(self._trigger, self._next(epoch)))

    def _next(self, epoch: int) -> int:
        return max(epoch, self._last_used_epoch) + 1

    def before(self, frames: Sequence[Frame], epoch: int) -> Trigger | None:
        new = self._new(frames)
        if not new or not self._hmnr.must_force(_decoded(stamp, self._tasks) for stamp in new):
            return None
        return Trigger(self._next(epoch), forced=True)

    def _new(self, frames: Sequence[Frame]) -> list[bytes]:
        """The stamps of ``frames`` that were not taken before, each once. Frames of an earlier run with another
        protocol have no stamp; all snapshots of this protocol come after them."""
        return list(dict.fromkeys(f.stamp for f in frames if f.stamp and f.stamp not in self._stamps_taken))

    # ---- effects of events

    def took(self, frames: Sequence[Frame]) -> None:
        new = self._new(frames)
        for stamp in new:
            self._hmnr.took(_decoded(stamp, self._tasks))
        if new:
            if len(self._stamps_taken) > _STAMPS_CACHED_MAX:
                self._stamps_taken.clear()
            self._stamps_taken.update(new)

    def taken(self, checkpoint: int) -> None:
        if self._trigger is not None and self._trigger <= checkpoint:
            self._trigger = None
        self._hmnr.snapshot()

    def stamp(self, output: int) -> bytes:
        self._hmnr.sent(self._receivers[output])
        stamp = self._hmnr.stamp()
        if self._stamp is None or self._stamp[0] is not stamp:
            self._stamp = stamp, stamp.encode()
        return self._stamp[1]

    # ---- own state

    def state(self) -> bytes:
        return self._hmnr.encode()

    def restore(self, state: bytes) -> None:
        """Restores the state. Raises CodecError if it belongs to another task or to another number of tasks."""
        self._stamps_taken.clear()
        self._hmnr = Hmnr.decode(state) if state else Hmnr(self._ordinal, self._tasks)
        if (self._hmnr.task, self._hmnr.tasks) != (self._ordinal, self._tasks):
            raise CodecError(
                f"the protocol state of a snapshot is of task {self._hmnr.task} among {self._hmnr.tasks}, and it is to "
                f"be that of task {self._ordinal} among {self._tasks}: the snapshot is damaged"
            )
