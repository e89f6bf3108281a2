"""Coordinated checkpoints, on the coordinator's side: trigger, collect, complete or abort (D7).

One checkpoint at a time. The number of a checkpoint is the epoch that it begins in all tasks. Numbers only grow, and
those of aborted checkpoints are not used again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from clonos_py.job.checkpointing import Adopted, JobCheckpointing, Late
from clonos_py.job.context import CoordinatorContext
from clonos_py.job.events import WriteManifest
from clonos_py.job.fleet import Role, TaskProcess
from clonos_py.model import messages
from clonos_py.model.coordinator_events import CheckpointAborted, CheckpointCompleted, CheckpointTriggered
from clonos_py.model.ids import TaskId
from clonos_py.model.plan import PhysicalPlan
from clonos_py.model.purposes import Purpose
from clonos_py.model.segments import ALL_TASKS, StableMark
from clonos_py.model.snapshots import Manifest, TaskHandle
from clonos_py.model.times import MAX_TIME

_UNSEEN_MAX = 2
"""How many checkpoints a lost coordinator may have triggered that no running process has received. One is under way at
a time, and a process that has received the next has received the one before."""


@dataclass
class Pending:
    """A pending checkpoint."""

    checkpoint: int
    triggered_us: int
    clock_us: int
    """When it was triggered, on the driver's clock."""
    purpose: Purpose
    handles: dict[TaskId, TaskHandle] = field(default_factory=dict)
    manifest: Manifest | None = None
    """Set when the manifest is handed to storage: from then on the checkpoint may be complete."""
    writing_us: int = 0
    """When the writing of the manifest began."""
    durable_ms: float = 0.0
    """How long after the trigger all snapshots were durable."""


def sources(context: CoordinatorContext) -> list[TaskProcess]:
    """The active processes with a source: barriers flow from them to all tasks."""
    return [p for p in all_tasks(context) if context.plan.by_name[p.task.vertex].source is not None]


def all_tasks(context: CoordinatorContext) -> list[TaskProcess]:
    """The active processes of all tasks."""
    return context.fleet.with_role(Role.ACTIVE)


def _always(plan: PhysicalPlan, handles: Sequence[TaskHandle]) -> bool:
    return True


class CoordinatedCheckpoints(JobCheckpointing):
    """Each checkpoint has a snapshot of every task."""

    def __init__(
        self,
        context: CoordinatorContext,
        triggered: Callable[[CoordinatorContext], Sequence[TaskProcess]] = sources,
        fits: Callable[[PhysicalPlan, Sequence[TaskHandle]], bool] = _always,
    ) -> None:
        """``triggered``: the processes that are sent a trigger. ``fits``: whether all tasks can restart from these
        snapshots together; with barriers they always can."""
        super().__init__(context)
        self._triggered, self._fits = triggered, fits
        self._pending: Pending | None = None
        self._aborted: list[int] = []
        """Checkpoints triggered since the last completed one and aborted."""
        self._last = self.completed.number
        self._next_us: int | None = None

    # ---- time

    def begin(self) -> None:
        interval_us = self.context.policy.checkpoint_interval_us
        if interval_us and self._next_us is None:
            self._next_us = self.context.now_us + interval_us

    @property
    def wake_us(self) -> int:
        if self._pending is not None:
            return self._limit_us(self._pending)
        return self._next_us if self._next_us is not None else MAX_TIME

    def _limit_us(self, pending: Pending) -> int:
        policy = self.context.policy
        if pending.manifest is not None:
            return pending.writing_us + policy.manifest_timeout_us
        return pending.triggered_us + policy.checkpoint_timeout_us

    def give_up_late(self) -> Late | None:
        pending = self._pending
        if pending is None or self.context.now_us < self._limit_us(pending):
            return None
        if self.settling:
            return Late.MANIFEST
        self.abort("timeout")
        return Late.SNAPSHOTS

    def tick(self, running: bool) -> None:
        if self._next_us is None or self._next_us > self.context.now_us:
            return
        self._next_us = self.context.now_us + self.context.policy.checkpoint_interval_us
        if running and not self.pending:
            self.trigger(Purpose.PERIODIC)

    # ---- from trigger to manifest

    @property
    def pending(self) -> bool:
        return self._pending is not None

    @property
    def settling(self) -> bool:
        return self._pending is not None and self._pending.manifest is not None

    def trigger(self, purpose: Purpose) -> None:
        context = self.context
        assert self._pending is None
        self._last += 1
        self._pending = Pending(self._last, context.now_us, context.clock_us, purpose)
        context.report(CheckpointTriggered(self._last))
        for process in self._triggered(context):
            context.send(process, messages.TriggerCheckpoint(self._last, purpose))

    def abort(self, reason: str) -> None:
        context, pending = self.context, self._pending
        if pending is None:
            return
        self._aborted.append(pending.checkpoint)
        self._pending = None
        context.report(CheckpointAborted(pending.checkpoint, reason))
        for process in context.fleet.with_role(Role.ACTIVE):
            context.send(process, messages.AbortCheckpoint(pending.checkpoint))

    def collect(self, message: messages.Snapshotted) -> None:
        if self.context.fleet.processes[message.process].role is not Role.ACTIVE:
            return
        pending, handle, plan = self._pending, message.handle, self.context.plan
        if pending is None or handle.checkpoint != pending.checkpoint or pending.manifest is not None:
            return
        pending.handles[handle.task] = handle
        if len(pending.handles) == len(plan.tasks):
            self._all_collected(pending)

    def _all_collected(self, pending: Pending) -> None:
        handles = [pending.handles[task] for task in self.context.plan.tasks]
        if not self._fits(self.context.plan, handles):
            self.abort("the snapshots do not fit together")
            return
        pending.durable_ms = (self.context.clock_us - pending.clock_us) / 1_000
        pending.manifest = self.completed.next(pending.checkpoint, self.context.generation, handles)
        pending.writing_us = self.context.now_us
        self.context.out.append(WriteManifest(pending.manifest))

    def written(self, checkpoint: int) -> Adopted | None:
        context, pending = self.context, self._pending
        if pending is None or pending.manifest is None or pending.checkpoint != checkpoint:
            return None
        self._pending, self._aborted = None, []
        duration_ms = (context.clock_us - pending.clock_us) / 1_000
        written_bytes = sum(handle.written_bytes for handle in pending.manifest.tasks)
        tasks = len(pending.manifest.tasks)
        durable_ms = pending.durable_ms
        context.report(CheckpointCompleted(checkpoint, duration_ms, written_bytes, tasks, 0, 1, durable_ms))
        self.announce(pending.manifest, context.plan.tasks)
        return Adopted(pending.purpose)

    # ---- where tasks restart

    def marks(self, task: TaskId) -> Sequence[StableMark]:
        """The newest checkpoint is the restart point of all tasks: one mark is enough."""
        return [StableMark(ALL_TASKS, self.completed.number)] if self.completed.number else []

    @property
    def all_go_back(self) -> bool:
        """True where nothing is logged: then only the newest checkpoint is consistent."""
        return self.context.plan.rollback

    @property
    def void(self) -> Sequence[int]:
        return self._aborted

    # ---- a new coordinator, or a new run

    def resume(self, newest: int) -> None:
        """Every checkpoint that the lost coordinator triggered after the last completed one is void."""
        self._last = max(newest, self.completed.number) + _UNSEEN_MAX
        self._aborted = list(range(self.completed.number + 1, self._last + 1))

    def skip_to(self, epoch: int) -> None:
        """An epoch beyond the last number here was triggered by an earlier run. It is void, as are all before it since
        the last completed one."""
        if epoch > self._last:
            self._aborted += range(self._last + 1, epoch + 1)
            self._last = epoch
