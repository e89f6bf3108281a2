"""Snapshots that tasks take alone, on the coordinator's side (E5, E6; see ``schedules.py`` for when).

    triggered --durable--> gathered --for a while--> manifest being written --written--> adopted, the task may truncate

A snapshot counts when a manifest names it. Manifests and triggers share one counter, so that the numbers of epochs and
of manifests only grow, even across coordinators. What a manifest names is decided in ``restart_points.py``; there is no
manifest before each task has taken a snapshot. When a task fails, its durable snapshots that no manifest names are
dropped. Those of other tasks count with the next manifest.

A task that takes a snapshot without being triggered numbers it from its last one on (E10).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from clonos_py.job.checkpointing import Adopted, JobCheckpointing
from clonos_py.job.context import CoordinatorContext
from clonos_py.job.events import Instructions, ReportEvent, Send, WriteManifest
from clonos_py.job.fleet import Role
from clonos_py.model import messages
from clonos_py.model.coordinator_events import CheckpointCompleted, IntervalExceeded, SnapshotDurable
from clonos_py.model.ids import TaskId
from clonos_py.model.messages import Restore
from clonos_py.model.purposes import Purpose
from clonos_py.model.segments import StableMark
from clonos_py.model.snapshots import Manifest
from clonos_py.model.times import MAX_TIME
from clonos_py.process.progress import progress_of
from clonos_py.protocols.parts.epoch_numbers import EpochNumbers
from clonos_py.protocols.parts.gathered import GatheredSnapshots
from clonos_py.protocols.parts.recovery_line import RecoveryLine
from clonos_py.protocols.parts.restart_points import NamedSnapshots, NewestSnapshots, RestartPoints
from clonos_py.protocols.parts.schedules import IndependentTriggers, StaggeredTriggers, TriggerSchedule

_GATHER_US = 100_000
"""How long snapshots are gathered for one manifest; at most a tenth of the interval."""
_PAUSE_US = 1_000
"""The least time before the next attempt to write a manifest that cannot be written now."""
_SLOW_MIN = 3
"""After so many slow snapshots of a task in a row it is reported that it does not keep the interval."""
_UNSEEN_MAX = 2
"""How many numbers per task a lost coordinator may have used that no running process has received."""


@dataclass
class _Writing:
    """A manifest that is being written."""

    manifest: Manifest
    since_us: int
    triggered_us: int
    """When the first of its new snapshots was triggered, on the driver's clock."""
    tasks: Sequence[TaskId]
    """The tasks of which it has a new snapshot."""


class _Exceeded:
    """Reports once that snapshots of a task take longer than the interval. A single slow write is not enough."""

    def __init__(self, context: CoordinatorContext) -> None:
        self._context = context
        self._slow: Counter[TaskId] = Counter()
        """By task: how many of its triggered snapshots in a row took longer than an interval to become durable."""
        self._reported = False

    def durable(self, task: TaskId, triggered_us: int) -> None:
        interval_us = self._context.interval_us
        slow = 0 < interval_us < self._context.clock_us - triggered_us
        self._slow[task] = self._slow[task] + 1 if slow else 0

    def triggering(self, triggered_us: Mapping[TaskId, int]) -> Instructions:
        """Tasks are triggered by the schedule. ``triggered_us``: by task, the previous trigger."""
        for task, before_us in triggered_us.items():
            if self._slow[task] >= _SLOW_MIN and not self._reported:
                self._reported = True
                asked_ms, kept_ms = self._context.interval_us, self._context.clock_us - before_us
                return [ReportEvent(IntervalExceeded(task, asked_ms / 1_000, kept_ms / 1_000))]
        return []


class IndependentCheckpoints(JobCheckpointing):
    """The coordinator's side of checkpoints that each task takes alone. ``numbers``: of triggers and manifests."""

    def __init__(self, context: CoordinatorContext, points: RestartPoints) -> None:
        super().__init__(context)
        self.points = points
        self.numbers = EpochNumbers(self.completed, _UNSEEN_MAX * len(context.plan.tasks))
        self._times: TriggerSchedule = (
            StaggeredTriggers(context, self._is_awaited, self.completed)
            if context.policy.staggered
            else IndependentTriggers(context, self._is_awaited)
        )
        self._triggers: dict[TaskId, tuple[int, int]] = {}
        """By task: the number of the newest trigger, and its time on the driver's clock."""
        self._awaited_processes: dict[TaskId, int] = {}
        """By task: the process that was triggered last, until its snapshot is durable."""
        self._exceeded = _Exceeded(context)
        self._stop_triggers: dict[TaskId, int] = {}
        """By task: the number of its first trigger since the user has stopped the job. The job ends once the restart
        point of each task is at that trigger or later."""
        self._gathered = GatheredSnapshots(several=points.searched)
        self._gather_until_us = MAX_TIME
        self._durable_ms: list[float] = []
        """How long after their trigger snapshots became durable, since the last report."""
        self._writing: _Writing | None = None

    # ---- time

    @property
    def _interval_us(self) -> int:
        return self.context.interval_us

    def begin(self) -> None:
        self.points.begin()
        self._times.begin()

    @property
    def wake_us(self) -> int:
        return min(self.limit_us, self._gather_until_us, self._times.wake_us)

    @property
    def limit_us(self) -> int:
        return self._writing.since_us + self.context.policy.manifest_timeout_us if self._writing else MAX_TIME

    def tick(self, running: bool) -> Instructions:
        due, gathered = self._times.due(), self._gather_until_us <= self.context.now_us
        if running:
            before_us = {task: self._triggers[task][1] for task in due if task in self._triggers}
            triggers = self._exceeded.triggering(before_us) + self._send_triggers(due)
            return triggers + self._write() if gathered else triggers
        if gathered:
            self._gather_later()
        return []

    @property
    def _gather_us(self) -> int:
        return min(_GATHER_US, self._interval_us // 10) if self._interval_us else 0

    def _gather_later(self) -> None:
        self._gather_until_us = self.context.now_us + max(self._gather_us, _PAUSE_US)

    # ---- from trigger to manifest

    @property
    def pending(self) -> bool:
        return self._writing is not None

    @property
    def writing(self) -> int | None:
        return self._writing.manifest.checkpoint if self._writing is not None else None

    def trigger(self, purpose: Purpose) -> Instructions:
        """Triggers the tasks that lack a snapshot for this purpose. At the end of all input these are the tasks that
        have not taken their last snapshot. If all have, as in a job that had ended before, all are triggered once more,
        because a manifest ends the job."""
        tasks = self.context.plan.tasks
        match purpose:
            case Purpose.PERIODIC | Purpose.REQUESTED:
                return self._send_triggers(tasks, purpose)
            case Purpose.FINAL:
                return self._send_triggers([task for task in tasks if not self._finished(task)] or tasks)
            case Purpose.STOP:
                return self._trigger_stop([task for task in tasks if not self._passed_stop(task)])

    def _trigger_stop(self, lacking: Sequence[TaskId]) -> Instructions:
        """Triggers the tasks that have no restart point since the stop. A recovery line passes the first triggers only
        when later snapshots are durable."""
        triggers = self._send_triggers(lacking)
        for task in lacking:
            self._stop_triggers.setdefault(task, self._triggers[task][0])
        return triggers

    def request(self, task: TaskId) -> tuple[Instructions, bool]:
        """Tasks that cannot be triggered now restart: all tasks are triggered when they have."""
        tasks = self.points.short_of_room(task)
        triggers = self._send_triggers(tasks, Purpose.REQUESTED)
        return triggers, len(triggers) < len(tasks) and not self.points.searched

    def _passed_stop(self, task: TaskId) -> bool:
        """Whether the restart point of a task is at its first trigger since the stop or later."""
        triggered = self._stop_triggers.get(task)
        return triggered is not None and self.safe_epoch(task) >= triggered

    def _finished(self, task: TaskId) -> bool:
        """Whether the restart point of a task is after its last event."""
        handle = self.points.first(task)
        return handle is not None and progress_of(handle).finished

    def _send_triggers(self, tasks: Iterable[TaskId], purpose: Purpose = Purpose.PERIODIC) -> Instructions:
        """Triggers those of the tasks that are active."""
        context, triggers = self.context, Instructions()
        for task in tasks:
            owner = context.fleet.owner(task)
            if owner is not None and owner.role is Role.ACTIVE:
                number = self.numbers.next()
                self._triggers[task] = number, context.clock_us
                self._awaited_processes[task] = owner.number
                triggers.append(Send(owner.number, messages.TriggerCheckpoint(number, purpose)))
        return triggers

    def collect(self, message: messages.Snapshotted) -> Instructions:
        process, handle = self.context.fleet.processes[message.process], message.handle
        if process.role is not Role.ACTIVE or handle.checkpoint <= self.completed.epoch(process.task):
            return []
        self.points.durable(handle)
        self._gathered.add(process.number, handle)
        triggered, triggered_us = self._triggers.get(handle.task, (0, 0))
        if handle.checkpoint >= triggered:
            self._awaited_processes.pop(handle.task, None)
            self._exceeded.durable(handle.task, triggered_us)
        if handle.checkpoint == triggered:
            self._durable_ms.append((self.context.clock_us - triggered_us) / 1_000)
        self.numbers.skip_to(handle.checkpoint)
        if self._times.wait_for_manifests and not self._awaited:
            self._gather_until_us = self.context.now_us
        elif self._gather_until_us == MAX_TIME:
            self._gather_until_us = self.context.now_us + self._gather_us
        return [ReportEvent(SnapshotDurable(process.task))]

    def not_durable(self, message: messages.SnapshotFailed) -> Instructions:
        """The task may be triggered again, as if the snapshot were durable."""
        task = self.context.fleet.processes[message.process].task
        if message.checkpoint >= self._triggers.get(task, (0, 0))[0] and self._is_awaited(task):
            del self._awaited_processes[task]
        self.numbers.skip_to(message.checkpoint)
        return []

    def _is_awaited(self, task: TaskId) -> bool:
        """Whether the process of a task was triggered and its snapshot is not durable yet."""
        owner = self.context.fleet.owner(task)
        return owner is not None and self._awaited_processes.get(task) == owner.number

    @property
    def _awaited(self) -> bool:
        """Whether a triggered snapshot is not durable yet."""
        durable = {handle.task: handle.checkpoint for handle in self._gathered.handles}
        return any(
            number > max(durable.get(task, 0), self.completed.epoch(task))
            for task, (number, _) in self._triggers.items()
        )

    def _write(self) -> Instructions:
        self._drop_failed()
        if self._writing is not None:
            self._gather_later()
            return []
        self._gather_until_us = MAX_TIME
        gathered = self._gathered.handles
        if not gathered or (named := self.points.named(gathered)) is None:
            return []
        self._gathered.clear()
        return [self._begin_writing(named, list(dict.fromkeys(handle.task for handle in gathered)))]

    def _begin_writing(self, named: NamedSnapshots, tasks: Sequence[TaskId]) -> WriteManifest:
        context = self.context
        manifest = self.completed.next(self.numbers.next(), context.generation, named.newest, named.earlier)
        triggered_us = min(
            (self._triggers.get(task, (0, context.clock_us))[1] for task in tasks), default=context.clock_us
        )
        self._writing = _Writing(manifest, context.now_us, triggered_us, tasks)
        return WriteManifest(manifest)

    def write_again(self) -> Instructions:
        assert self._writing is not None
        self._writing.since_us = self.context.now_us
        return [WriteManifest(self._writing.manifest)]

    def written(self) -> Adopted:
        writing, self._writing = self._writing, None
        assert writing is not None
        out = [self._completed(writing), *self.announce(writing.manifest, writing.tasks)]
        return Adopted(out, self._purpose_served, writing.tasks)

    @property
    def _purpose_served(self) -> Purpose:
        """What the newest manifest is enough for."""
        tasks = self.context.plan.tasks
        if all(map(self._finished, tasks)):
            return Purpose.FINAL
        return Purpose.STOP if all(map(self._passed_stop, tasks)) else Purpose.PERIODIC

    def _completed(self, writing: _Writing) -> ReportEvent:
        context, manifest = self.context, writing.manifest
        new = [handle for handle in manifest.tasks if handle.task in writing.tasks]
        duration_ms, written_bytes = (
            (context.clock_us - writing.triggered_us) / 1_000,
            sum(h.written_bytes for h in new),
        )
        forced, durations = sum(handle.forced for handle in new), self._taken_durations()
        return ReportEvent(
            CheckpointCompleted(
                manifest.checkpoint,
                duration_ms,
                written_bytes,
                len(new),
                forced,
                *durations,
                requests=self.requests.take(),
            )
        )

    def _taken_durations(self) -> tuple[int, float]:
        """The number of triggered snapshots that became durable since the last report, and their mean duration."""
        durable_ms, self._durable_ms = self._durable_ms, []
        return len(durable_ms), sum(durable_ms) / max(len(durable_ms), 1)

    def abort(self, reason: str) -> Instructions:
        self._drop_failed()
        self._writing = None
        return []

    def _drop_failed(self) -> None:
        """Drops gathered snapshots of failed tasks, from which their replacements do not start. Others remain valid."""
        active = {process.number for process in self.context.fleet.with_role(Role.ACTIVE)}
        self._gathered.drop_all_but_those_of(active)

    # ---- where tasks restart

    def restart(self, task: TaskId) -> Restore:
        return self.points.restart(task, super().restart(task))

    def safe_epoch(self, task: TaskId) -> int:
        return self.points.safe_epoch(task)

    def marks(self, task: TaskId) -> Sequence[StableMark]:
        return [mark for origin in self.context.plan.tasks if (mark := self._mark(origin)).epoch]

    def _mark(self, task: TaskId) -> StableMark:
        return StableMark(task.log_id, self.safe_epoch(task))

    def complete_message(self, task: TaskId) -> messages.Complete:
        """With logs only the task's own mark: those of other tasks come with their frames."""
        own = self._mark(task)
        marks = list(self.marks(task)) if self.points.searched else [own] if own.epoch else []
        return messages.Complete(own.epoch, marks)

    def announce(self, manifest: Manifest, tasks: Collection[TaskId]) -> Instructions:
        announced = super().announce(manifest, self.points.adopt(manifest, tasks))
        return announced + self._send_triggers(self.points.to_trigger())

    @property
    def void(self) -> Sequence[int]:
        return self.points.void

    def condemned(self, lost: Collection[TaskId]) -> set[TaskId]:
        return self.points.condemned(lost)

    def fall_back(self, failed: Collection[TaskId]) -> Instructions:
        reports, named = self.points.fall_back(failed, self.numbers.last)
        return reports if named is None else [*reports, self._begin_writing(named, [])]

    # ---- a new coordinator, or a new run

    def resume(self, newest: int) -> None:
        self.numbers.resume(newest)
        self.points.resume()

    def skip_to(self, epoch: int) -> None:
        self.numbers.skip_to(epoch)


def independent_checkpoints(context: CoordinatorContext) -> IndependentCheckpoints:
    """Without logs, snapshots that fit together have to be searched."""
    return IndependentCheckpoints(context, RecoveryLine(context) if context.plan.rollback else NewestSnapshots(context))
