"""A checkpoint protocol on the coordinator's side: when snapshots are taken, when they count, where tasks restart (D7).

The other side is in each task (``task/checkpointing/interface.py``). A protocol decides; the coordinator
(``job/machine.py``) asks it at the right moments, and recovery rounds go on from what it answers. Instructions go to
the context.

What every protocol must keep:
- a snapshot counts when a manifest names it, and the manifest is written; a task restarts from nothing else;
- the epochs of a task only grow, those of snapshots that were given up are not used again;
- a mark makes stable only what no restart needs: the restart point of that task lies behind it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import ClassVar

import msgspec

from clonos_py.job.completed import CompletedCheckpoint
from clonos_py.job.context import CoordinatorContext
from clonos_py.job.fleet import Role, TaskProcess
from clonos_py.model import messages
from clonos_py.model.coordinator_events import DeletionFailed
from clonos_py.model.ids import TaskId
from clonos_py.model.messages import Restore
from clonos_py.model.segments import StableMark
from clonos_py.model.snapshots import Manifest


class Late(Enum):
    """What has taken too long."""

    SNAPSHOTS = "the snapshots of a checkpoint, which was given up"
    MANIFEST = "the writing of a manifest, which cannot be given up"


@dataclass(frozen=True, slots=True)
class Adopted:
    """A manifest counts. ``final``: it is of the checkpoint that ends the job. ``tasks``: those of which it has a new
    snapshot; None: all, between which data has flowed since the last."""

    final: bool
    tasks: Collection[TaskId] | None = None


class JobCheckpointing(ABC):
    """One per coordinator. What is not abstract is the same for all protocols known."""

    stores_logs: ClassVar[bool] = False
    """Whether snapshots hold determinants, so that processes which start from one are asked for them in a round."""

    def __init__(self, context: CoordinatorContext) -> None:
        self._context = context
        self.completed: CompletedCheckpoint = context.completed
        self.wanted = False
        """Whether a checkpoint was asked for since the last was triggered; it comes as soon as it can."""
        self._not_deleted: str | None = None

    # ---- time

    @abstractmethod
    def begin(self) -> None:
        """All tasks run: the first interval begins, if it has not yet."""

    @property
    @abstractmethod
    def wake_us(self) -> int:
        """When ``give_up_late`` or ``tick`` is due next."""

    @abstractmethod
    def give_up_late(self) -> Late | None:
        """What has taken too long by now. Gives up what can be given up."""

    @abstractmethod
    def tick(self, running: bool) -> None:
        """Time has passed. ``running``: all tasks run, and the job has not taken its last checkpoint."""

    # ---- from trigger to manifest

    @abstractmethod
    def trigger(self, final: bool) -> None:
        """Has a checkpoint taken now, while none is pending. ``final``: the job ends with it, since all tasks are at
        the end of their input or the user stops the job."""

    def request(self, task: TaskId) -> bool:
        """The retained frames of ``task`` take half of their budget. Whether a checkpoint is to be triggered; one that
        is pending serves."""
        self.wanted = self.wanted or not self.pending
        return not self.pending

    @abstractmethod
    def collect(self, message: messages.Snapshotted) -> None:
        """The snapshot of a task is durable."""

    @abstractmethod
    def written(self, checkpoint: int) -> Adopted | None:
        """The manifest of ``checkpoint`` is written. None if it was not waited for (any more)."""

    @abstractmethod
    def abort(self, reason: str) -> None:
        """What is pending cannot be completed: it is given up."""

    @property
    @abstractmethod
    def pending(self) -> bool:
        """Whether a checkpoint is under way. Recovery rounds wait until it is completed or given up."""

    @property
    @abstractmethod
    def settling(self) -> bool:
        """Whether a manifest is being written: which checkpoint counts is being decided right now."""

    def retired(self, problem: str | None) -> None:
        """Earlier checkpoints have been deleted, or could not be. The same reason is reported once, not with every
        checkpoint."""
        if problem is not None and problem != self._not_deleted:
            self._context.report(DeletionFailed(problem))
        self._not_deleted = problem

    # ---- where tasks restart

    def restart(self, task: TaskId) -> Restore:
        """The restart point of a task: of the newest manifest."""
        return msgspec.structs.replace(self.completed.restart(task), marks=list(self.marks(task)))

    def epoch(self, task: TaskId) -> int:
        """The epoch that the restart point of a task begins; 0 where it starts from nothing."""
        return self.completed.epoch(task)

    def safe_epoch(self, task: TaskId) -> int:
        """The epoch before which the task never goes back, whatever fails: that of its restart point, unless a protocol
        may have to choose an earlier one."""
        return self.epoch(task)

    @abstractmethod
    def marks(self, task: TaskId) -> Sequence[StableMark]:
        """What is stable, as far as ``task`` has to know."""

    @property
    @abstractmethod
    def void(self) -> Sequence[int]:
        """Epochs after the restart point that a replacement may find in its log, and that count no more."""

    @property
    def all_go_back(self) -> bool:
        """Whether any failure sends the whole job back, whatever survivors hold: then they are not asked (E2)."""
        return False

    def condemned(self, lost: Collection[TaskId]) -> set[TaskId]:
        """Tasks whose processes have to begin anew, since what they have taken or received does not fit the restart
        points of those that have lost theirs: they go back, too."""
        return set()

    def fall_back(self, failed: Collection[TaskId]) -> bool:
        """Failed tasks, condemned ones among them, are about to restart: from now on ``restart`` says where. Whether a
        manifest has to be written first; then the protocol is ``pending``."""
        return False

    # ---- a new coordinator, or a new run

    @abstractmethod
    def resume(self, newest: int) -> None:
        """Goes on after a coordinator that was lost. ``newest``: the highest epoch that any process knows."""

    @abstractmethod
    def skip_to(self, epoch: int) -> None:
        """Logs of an earlier run, which are to be replayed, name this epoch: it is not used again."""

    # ---- messages to processes

    def send_complete(self, process: TaskProcess) -> None:
        """Sends an active process its restart point, which the newest manifest has moved."""
        self._context.send(process, self.complete_message(process.task))

    def complete_message(self, task: TaskId) -> messages.Complete:
        return messages.Complete(self.epoch(task), list(self.marks(task)))

    def prepare(self, process: TaskProcess) -> None:
        """Has a standby load the state of its restart point, if there is one."""
        if self.completed.manifest is not None:
            self._context.send(process, messages.Prepare(self.restart(process.task)))

    def announce(self, manifest: Manifest, tasks: Collection[TaskId]) -> None:
        """``manifest`` is the newest, and moves the restart points of ``tasks``: their processes get them."""
        self.completed.adopt(manifest)
        for process in self._context.fleet.with_role(Role.ACTIVE):
            if process.task in tasks:
                self.send_complete(process)
        for process in self._context.fleet.with_role(Role.STANDBY):
            if process.task in tasks and process.address is not None:
                self.prepare(process)
