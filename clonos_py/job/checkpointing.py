"""A checkpoint protocol on the coordinator's side: when snapshots are taken, when they count, where tasks restart (D7).

The other side is in each task (``task/checkpointing.py``). The coordinator (``job/machine.py``) calls the
protocol at the right moments and carries out the instructions that it returns; recovery rounds act on its answers.

What every protocol must guarantee:
- a snapshot counts when a manifest that names it is written; a task restarts from no other snapshot;
- the epochs of a task only grow, and those of snapshots that were given up are not used again;
- a mark makes stable only determinants that no restart needs: the restart point of their task lies behind them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import msgspec

from clonos_py.job.checkpoint_requests import CheckpointRequests
from clonos_py.job.completed import CompletedCheckpoint
from clonos_py.job.context import CoordinatorContext
from clonos_py.job.events import Instructions, ReportEvent, Send
from clonos_py.job.fleet import Role, TaskProcess
from clonos_py.model import messages
from clonos_py.model.coordinator_events import DeletionFailed
from clonos_py.model.ids import TaskId
from clonos_py.model.messages import Restore
from clonos_py.model.purposes import Purpose
from clonos_py.model.segments import StableMark
from clonos_py.model.snapshots import Manifest


@dataclass(frozen=True, slots=True)
class Adopted:
    """A manifest counts. ``purpose``: what its checkpoint serves. ``tasks``: the tasks of which it has a new snapshot.
    None: all tasks, and data has flowed between all of them since the last checkpoint."""

    instructions: Instructions
    purpose: Purpose
    tasks: Collection[TaskId] | None = None


class JobCheckpointing(ABC):
    """The coordinator's part of a checkpoint protocol. Non-abstract methods are the same in all known protocols."""

    def __init__(self, context: CoordinatorContext) -> None:
        self.context = context
        self.completed: CompletedCheckpoint = context.completed
        self.requests = CheckpointRequests()
        self._not_deleted: str | None = None

    # ---- time

    @abstractmethod
    def begin(self) -> None:
        """All tasks run: the first interval begins, unless it already has."""

    @property
    @abstractmethod
    def wake_us(self) -> int:
        """When the limit is reached, or ``tick`` must be called next."""

    @property
    @abstractmethod
    def limit_us(self) -> int:
        """When the snapshots of a checkpoint, or the writing of its manifest, take too long; MAX_TIME: none pend."""

    @abstractmethod
    def tick(self, running: bool) -> Instructions:
        """Processes the passing of time. ``running``: all tasks run, and the job has not taken its last checkpoint."""

    # ---- from trigger to manifest

    @abstractmethod
    def trigger(self, purpose: Purpose) -> Instructions:
        """Triggers a checkpoint, or the snapshots that one for this purpose still lacks; no other may be pending."""

    def request(self, task: TaskId) -> tuple[Instructions, bool]:
        """Called when the retained frames of ``task`` take half of their budget. Also returns whether to trigger a
        checkpoint as soon as possible; a pending one is enough."""
        return [], not self.pending

    @abstractmethod
    def collect(self, message: messages.Snapshotted) -> Instructions:
        """The snapshot of a task is durable."""

    @abstractmethod
    def not_durable(self, message: messages.SnapshotFailed) -> Instructions:
        """The snapshot of a task is not durable, since storage did not answer. The next one may be."""

    @abstractmethod
    def write_again(self) -> Instructions:
        """Storage did not answer: whether it has the manifest ``writing`` is not known until it is written again."""

    @abstractmethod
    def written(self) -> Adopted:
        """The manifest ``writing`` is written."""

    @abstractmethod
    def abort(self, reason: str) -> Instructions:
        """Aborts the pending checkpoint, which cannot be completed."""

    @property
    @abstractmethod
    def pending(self) -> bool:
        """Whether a checkpoint is under way. Recovery rounds wait until it is completed or aborted."""

    @property
    @abstractmethod
    def writing(self) -> int | None:
        """The number of the manifest that is being written: until it is, it is open which checkpoint is the last."""

    def retired(self, problem: str | None) -> Instructions:
        """Earlier checkpoints have been deleted, or could not be because of ``problem``. The same problem is reported
        once, not with every checkpoint."""
        known, self._not_deleted = self._not_deleted, problem
        return [ReportEvent(DeletionFailed(problem))] if problem is not None and problem != known else []

    # ---- where tasks restart

    def restart(self, task: TaskId) -> Restore:
        """The restart point of a task, from the newest manifest."""
        return msgspec.structs.replace(self.completed.restart(task), marks=list(self.marks(task)))

    def epoch(self, task: TaskId) -> int:
        """The epoch that begins with the restart point of a task; 0 if the task starts empty."""
        return self.completed.epoch(task)

    def safe_epoch(self, task: TaskId) -> int:
        """The task never goes back to an earlier epoch than this, whatever fails. It is that of its restart point,
        unless the protocol may have to choose an earlier one."""
        return self.epoch(task)

    @abstractmethod
    def marks(self, task: TaskId) -> Sequence[StableMark]:
        """The stable marks that ``task`` needs."""

    @property
    @abstractmethod
    def void(self) -> Sequence[int]:
        """Epochs after the restart point that a replacement may find in its log and that no longer count."""

    @property
    def all_go_back(self) -> bool:
        """Whether every failure rolls the whole job back. Then survivors are not asked what they hold (E2)."""
        return False

    def condemned(self, lost: Collection[TaskId]) -> set[TaskId]:
        """Survivors that must restart with the tasks in ``lost``, whose restart points their state does not fit."""
        return set()

    def fall_back(self, failed: Collection[TaskId]) -> Instructions:
        """Called before failed tasks, condemned ones included, restart: from then on ``restart`` gives their restart
        points. If a manifest must be written first, the protocol is ``pending`` until it is."""
        return []

    # ---- a new coordinator, or a new run

    @abstractmethod
    def resume(self, newest: int) -> None:
        """Continues after a lost coordinator. ``newest``: the highest epoch that any process reports."""

    @abstractmethod
    def skip_to(self, epoch: int) -> None:
        """Does not use this epoch again: it is named in logs of an earlier run that will be replayed."""

    # ---- messages to processes

    def send_complete(self, process: TaskProcess) -> Send:
        """Sends an active process its new restart point after a manifest was written."""
        return Send(process.number, self.complete_message(process.task))

    def complete_message(self, task: TaskId) -> messages.Complete:
        return messages.Complete(self.epoch(task), list(self.marks(task)))

    def prepare(self, process: TaskProcess) -> Instructions:
        """Sends a standby the restart point of its task to load, if there is one."""
        if self.completed.manifest is None:
            return []
        return [Send(process.number, messages.Prepare(self.restart(process.task)))]

    def announce(self, manifest: Manifest, tasks: Collection[TaskId]) -> Instructions:
        """Adopts ``manifest`` as the newest, and sends the processes of ``tasks`` their new restart points."""
        self.completed.adopt(manifest)
        out: Instructions = [
            self.send_complete(p) for p in self.context.fleet.with_role(Role.ACTIVE) if p.task in tasks
        ]
        for process in self.context.fleet.with_role(Role.STANDBY):
            if process.task in tasks and process.address is not None:
                out += self.prepare(process)
        return out


JobSide = Callable[[CoordinatorContext], JobCheckpointing]
"""Creates the coordinator's side of a protocol."""
