"""Communication-induced checkpoints on the side of a task (HMNR; E10).

The coordinator calls each task at its own times, as without coordination. Besides, a task takes a snapshot before it
takes frames that could make an earlier snapshot useless: ``hmnr`` says when. Both are events of the log. A task numbers
its epochs alone, since forced snapshots come between calls.
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
from clonos_py.process.contract import AbortCall, TriggerCall
from clonos_py.task.checkpointing.hmnr import Hmnr
from clonos_py.task.checkpointing.uncoordinated import OwnSnapshots
from clonos_py.task.inputs import Inputs

_KNOWN_MAX = 256
"""So many stamps are remembered."""

_decoded = lru_cache(maxsize=_KNOWN_MAX)(HmnrStamp.decode)


class InducedSnapshots(OwnSnapshots):
    """A stamp that was taken already changes nothing and forces nothing: most frames carry that of the one before."""

    forces = True

    def __init__(self, inputs: Inputs, plan: PhysicalPlan, task: TaskId) -> None:
        super().__init__(inputs, plan, task)
        self._number, self._tasks = plan.tasks.index(task), len(plan.tasks)
        self._receivers = [plan.tasks.index(plan.receiver(channel)) for channel in plan.outputs[task]]
        self._called: int | None = None
        """The newest call that has not been answered by a snapshot."""
        self._used = 0
        """Epochs up to this one were used by a predecessor: they name no snapshots of this task any more."""
        self._hmnr = Hmnr(self._number, self._tasks)
        self._known: set[bytes] = set()
        """Stamps taken."""
        self._stamp: tuple[HmnrStamp, bytes] | None = None

    # ---- of a running task

    def called(self, call: TriggerCall | AbortCall) -> None:
        """Checkpoints of a task alone are given up when it goes back behind them."""
        if isinstance(call, TriggerCall):
            self._called = call.checkpoint
        else:
            self._used = max(self._used, call.checkpoint)

    def due(self, now_us: int, epoch: int) -> Trigger | None:
        if self._called is None:
            return None
        return Trigger(max(self._called, self._next(epoch)))

    def _next(self, epoch: int) -> int:
        return max(epoch, self._used) + 1

    def before(self, frames: Sequence[Frame], epoch: int) -> Trigger | None:
        new = self._new(frames)
        if not new or not self._hmnr.must_force(_decoded(stamp, self._tasks) for stamp in new):
            return None
        return Trigger(self._next(epoch), forced=True)

    def _new(self, frames: Sequence[Frame]) -> list[bytes]:
        """The stamps of frames that were not taken yet, each once. Frames of a run with another protocol have none:
        all snapshots of this one are after them."""
        return list(dict.fromkeys(f.stamp for f in frames if f.stamp and f.stamp not in self._known))

    # ---- what events do

    def took(self, frames: Sequence[Frame]) -> None:
        new = self._new(frames)
        for stamp in new:
            self._hmnr.took(_decoded(stamp, self._tasks))
        if new:
            if len(self._known) > _KNOWN_MAX:
                self._known.clear()
            self._known.update(new)

    def taken(self, checkpoint: int) -> None:
        if self._called is not None and self._called <= checkpoint:
            self._called = None
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
        """Raises CodecError if the state is not of this task among as many."""
        self._known.clear()
        self._hmnr = Hmnr.decode(state) if state else Hmnr(self._number, self._tasks)
        if (self._hmnr.task, self._hmnr.tasks) != (self._number, self._tasks):
            raise CodecError(
                f"the protocol state of a snapshot is of task {self._hmnr.task} among {self._hmnr.tasks}, and it is to "
                f"be that of task {self._number} among {self._tasks}: the snapshot is damaged"
            )
