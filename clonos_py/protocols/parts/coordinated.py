"""Coordinated checkpoints, on the coordinator's side: trigger, collect, complete or abort (D7).

One checkpoint at a time. The number of a checkpoint is the epoch that it begins in all tasks. Numbers only grow, and
those of aborted checkpoints are not used again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from clonos_py.job.checkpointing import Adopted, JobCheckpointing
from clonos_py.job.context import CoordinatorContext
from clonos_py.job.events import Instructions, ReportEvent, Send, WriteManifest
from clonos_py.job.fleet import Role, TaskProcess
from clonos_py.model import messages
from clonos_py.model.coordinator_events import (
    CheckpointAborted,
    CheckpointCompleted,
    CheckpointSkipped,
    CheckpointTriggered,
)
from clonos_py.model.ids import TaskId
from clonos_py.model.plan import PhysicalPlan
from clonos_py.model.purposes import Purpose
from clonos_py.model.segments import ALL_LOGS, StableMark
from clonos_py.model.snapshots import Manifest, TaskHandle
from clonos_py.model.times import MAX_TIME
from clonos_py.protocols.parts.epoch_numbers import EpochNumbers

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
    skipped: bool = False
    """Whether a checkpoint was due while this one was pending."""
    durable_ms: float = 0.0
    """How long after the trigger all snapshots were durable."""
    busiest_ms: tuple[float, float] = (0.0, 0.0)
    """Of the task with the most to do: its work since its last snapshot, with the cost of this one, and that cost."""


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
        self.numbers = EpochNumbers(self.completed, _UNSEEN_MAX)
        self._since_us: int | None = None
        """When the current interval began."""
        self._skipped = 0
        """How many checkpoints were skipped since one was complete within the interval."""

    # ---- time

    def begin(self) -> None:
        if self.context.interval_us and self._since_us is None:
            self._since_us = self.context.now_us

    @property
    def _next_us(self) -> int:
        """When the interval ends."""
        return MAX_TIME if self._since_us is None else self._since_us + self.context.interval_us

    @property
    def wake_us(self) -> int:
        if self._pending is not None:
            return self.limit_us
        return self._next_us

    @property
    def limit_us(self) -> int:
        policy, pending = self.context.policy, self._pending
        if pending is None:
            return MAX_TIME
        if pending.manifest is not None:
            return pending.writing_us + policy.manifest_timeout_us
        return pending.triggered_us + policy.checkpoint_timeout_us

    def tick(self, running: bool) -> Instructions:
        if self._next_us > self.context.now_us:
            return []
        self._since_us = self.context.now_us
        if not running:
            return []
        return self.trigger(Purpose.PERIODIC) if self._pending is None else self._skip(self._pending)

    def _skip(self, pending: Pending) -> Instructions:
        """A checkpoint is due while another one is pending."""
        pending.skipped = True
        self._skipped += 1
        pending_ms = (self.context.clock_us - pending.clock_us) / 1_000
        asked_ms = self.context.interval_us / 1_000
        return [ReportEvent(CheckpointSkipped(pending.checkpoint, pending_ms, asked_ms, self._skipped))]

    # ---- from trigger to manifest

    @property
    def pending(self) -> bool:
        return self._pending is not None

    @property
    def writing(self) -> int | None:
        manifest = self._pending.manifest if self._pending is not None else None
        return manifest.checkpoint if manifest is not None else None

    def trigger(self, purpose: Purpose) -> Instructions:
        context = self.context
        assert self._pending is None
        number = self.numbers.next()
        self._pending = Pending(number, context.now_us, context.clock_us, purpose)
        trigger = messages.TriggerCheckpoint(number, purpose)
        return [
            ReportEvent(CheckpointTriggered(number)),
            *(Send(process.number, trigger) for process in self._triggered(context)),
        ]

    def abort(self, reason: str) -> Instructions:
        pending, self._pending = self._pending, None
        if pending is None:
            return []
        self._aborted.append(pending.checkpoint)
        abort = messages.AbortCheckpoint(pending.checkpoint)
        return [
            ReportEvent(CheckpointAborted(pending.checkpoint, reason)),
            *(Send(process.number, abort) for process in all_tasks(self.context)),
        ]

    def collect(self, message: messages.Snapshotted) -> Instructions:
        if self.context.fleet.processes[message.process].role is not Role.ACTIVE:
            return []
        pending, handle, plan = self._pending, message.handle, self.context.plan
        if pending is None or handle.checkpoint != pending.checkpoint or pending.manifest is not None:
            return []
        pending.handles[handle.task] = handle
        pending.busiest_ms = max(pending.busiest_ms, (message.busy_ms + message.cost_ms, message.cost_ms))
        return self._all_collected(pending) if len(pending.handles) == len(plan.tasks) else []

    def not_durable(self, message: messages.SnapshotFailed) -> Instructions:
        pending = self._pending
        awaited = pending is not None and pending.manifest is None and pending.checkpoint == message.checkpoint
        return self.abort(message.reason) if awaited else []

    def _all_collected(self, pending: Pending) -> Instructions:
        handles = [pending.handles[task] for task in self.context.plan.tasks]
        if not self._fits(self.context.plan, handles):
            return self.abort("the snapshots do not fit together")
        pending.durable_ms = (self.context.clock_us - pending.clock_us) / 1_000
        pending.manifest = self.completed.next(pending.checkpoint, self.context.generation, handles)
        pending.writing_us = self.context.now_us
        return [WriteManifest(pending.manifest)]

    def write_again(self) -> Instructions:
        assert self._pending is not None
        assert self._pending.manifest is not None
        self._pending.writing_us = self.context.now_us
        return [WriteManifest(self._pending.manifest)]

    def written(self) -> Adopted:
        context, pending = self.context, self._pending
        assert pending is not None
        assert pending.manifest is not None
        self._pending, self._aborted = None, []
        if not pending.skipped:
            self._skipped = 0
        duration_ms = (context.clock_us - pending.clock_us) / 1_000
        written_bytes = sum(handle.written_bytes for handle in pending.manifest.tasks)
        tasks = len(pending.manifest.tasks)
        durable_ms, (_, cost_ms) = pending.durable_ms, pending.busiest_ms
        completed = CheckpointCompleted(
            pending.checkpoint, duration_ms, written_bytes, tasks, 0, 1, durable_ms, cost_ms, self.requests.take()
        )
        announced = self.announce(pending.manifest, context.plan.tasks)
        return Adopted([ReportEvent(completed), *announced], pending.purpose)

    # ---- where tasks restart

    def marks(self, task: TaskId) -> Sequence[StableMark]:
        """The newest checkpoint is the restart point of all tasks: one mark is enough."""
        return [StableMark(ALL_LOGS, self.completed.number)] if self.completed.number else []

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
        self.numbers.resume(newest)
        self._aborted = list(range(self.completed.number + 1, self.numbers.last + 1))

    def skip_to(self, epoch: int) -> None:
        """An epoch beyond the last number here was triggered by an earlier run. It is void, as are all before it since
        the last completed one."""
        self._aborted += range(self.numbers.last + 1, epoch + 1)
        self.numbers.skip_to(epoch)
