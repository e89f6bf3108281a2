"""Checkpoints that tasks take alone, without logs: after a failure tasks go back to the recovery line (E9).

A failed task may decide differently when it runs again, and tasks downstream must not have seen the old decisions. So
all tasks that it reaches go back with it, to their newest snapshots that fit together (``checkpoint/line.py``). Tasks
upstream of it, and those on other paths, continue.

A manifest names, for each task, the newest snapshot and all earlier ones to which the task may still have to go back,
beginning with its snapshot on the recovery line of all tasks. That line never moves back. Sinks commit what the line
covers, and frames that it does not cover are retained. Before tasks go back, a manifest is written without the
snapshots that they give up. So these never count again, even under another coordinator. There is no manifest before a
line has a snapshot of each task; until then tasks go back to the start.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import chain

import msgspec

from clonos_py.checkpoint.line import Positions, at_the_start, line_channels, recovery_line
from clonos_py.job.context import CoordinatorContext
from clonos_py.job.events import Instructions, ReportEvent
from clonos_py.model.coordinator_events import WentBack
from clonos_py.model.ids import TaskId
from clonos_py.model.messages import Fallback, Restore
from clonos_py.model.snapshots import Manifest, TaskHandle
from clonos_py.process.progress import progress_of
from clonos_py.protocols.parts.restart_points import NamedSnapshots, RestartPoints

_TRIGGER_AGAIN_US = 1_000_000
_History = Sequence[TaskHandle]
"""The snapshots of one task, oldest first."""


class RecoveryLine(RestartPoints):
    """Keeps snapshots from the recovery line on. ``_histories``: those of the newest manifest; empty without one."""

    searched = True

    def __init__(self, context: CoordinatorContext) -> None:
        super().__init__(context)
        self._channels = line_channels(context.plan)
        self._histories: dict[TaskId, _History] = {}
        self._safe: dict[TaskId, TaskHandle] = {}
        """By task: its snapshot on the recovery line of all tasks."""
        self._near_budget: dict[TaskId, dict[TaskId, int]] = {}
        """By task whose retained frames take half of their budget: the epochs that its receivers had on the line."""
        self._trigger_again_us = 0
        """The time before which the tasks are not triggered again for these."""
        self._reported_failed: frozenset[TaskId] = frozenset()
        """The failed tasks of the last report."""
        self._durable = 0
        self._before_line: Counter[TaskId] = Counter()
        """The number of snapshots of each task, while no line has one of every task."""
        self._given_up = 0
        """The snapshots given up at the last failure have numbers up to this one."""
        if self.completed.manifest is not None and self.completed.handle(context.plan.tasks[0]) is not None:
            self._take(self.completed.manifest)

    # ---- the line

    def _take(self, manifest: Manifest) -> None:
        self._histories = _histories(manifest.handles)
        line = self._line(self._histories)
        self._safe = {task: history[line[task]] for task, history in self._histories.items()}

    def _line(self, histories: Mapping[TaskId, _History], from_nothing: bool = False) -> dict[TaskId, int]:
        """By task: the index of its snapshot on the recovery line of these tasks. Only the channels between them count.
        ``from_nothing``: index -1 is the start."""
        start = {task: [at_the_start(self.context.plan, task)] if from_nothing else [] for task in histories}
        positions = {task: [*start[task], *map(_positions, history)] for task, history in histories.items()}
        channels = [c for c in self._channels if c.sender in histories and c.receiver in histories]
        return {task: index - from_nothing for task, index in recovery_line(positions, channels).items()}

    def first(self, task: TaskId) -> TaskHandle | None:
        return self._safe.get(task)

    def safe_epoch(self, task: TaskId) -> int:
        handle = self._safe.get(task)
        return handle.checkpoint if handle is not None else 0

    # ---- from trigger to manifest

    def durable(self, handle: TaskHandle) -> None:
        self._durable += 1
        if not self._histories:
            self._before_line[handle.task] += 1

    def named(self, gathered: Sequence[TaskHandle]) -> NamedSnapshots | None:
        histories = _histories(chain(*self._histories.values(), gathered))
        if len(histories) < len(self.context.plan.tasks):
            return None
        line = self._line(histories, from_nothing=not self._histories)
        if min(line.values()) < 0:
            return None
        self._before_line.clear()
        return self._naming({task: history[line[task] :] for task, history in histories.items()})

    def _naming(self, histories: Mapping[TaskId, _History]) -> NamedSnapshots:
        tasks = self.context.plan.tasks
        return NamedSnapshots(
            [histories[task][-1] for task in tasks], [handle for task in tasks for handle in histories[task][:-1]]
        )

    def adopt(self, manifest: Manifest, tasks: Collection[TaskId]) -> Collection[TaskId]:
        """Returns also the tasks whose newest snapshot or whose snapshot on the line has changed."""
        before = dict(self._safe)
        self._take(manifest)
        newest = {task: history[-1].checkpoint for task, history in self._histories.items()}
        epoch = self.completed.epoch
        return {*tasks, *(t for t, handle in self._safe.items() if before.get(t) != handle or newest[t] != epoch(t))}

    # ---- little room for retained frames

    def short_of_room(self, task: TaskId) -> Sequence[TaskId]:
        """All tasks, again after a pause, until the line passes what the receivers of ``task`` cover now."""
        plan = self.context.plan
        receivers = {plan.receiver(channel) for channel in plan.outputs[task]}
        self._near_budget[task] = {receiver: self.safe_epoch(receiver) for receiver in receivers}
        return self._all_after_pause()

    def to_trigger(self) -> Sequence[TaskId]:
        self._near_budget = {
            task: epochs
            for task, epochs in self._near_budget.items()
            if any(self.safe_epoch(receiver) == epoch for receiver, epoch in epochs.items())
        }
        return self._all_after_pause() if self._near_budget else ()

    def _all_after_pause(self) -> Sequence[TaskId]:
        if self._trigger_again_us > self.context.now_us:
            return ()
        self._trigger_again_us = self.context.now_us + _TRIGGER_AGAIN_US
        return self.context.plan.tasks

    # ---- failures

    def condemned(self, lost: Collection[TaskId]) -> set[TaskId]:
        """All tasks downstream of a failed task. What they have received is not examined: only a task that has received
        nothing since the snapshot of a task before it could continue."""
        hops = self.context.plan.hops
        return {task for origin in lost for task in hops[origin]}

    def fall_back(self, failed: Collection[TaskId], last: int) -> tuple[Instructions, NamedSnapshots | None]:
        if not self._histories:
            return self._report(failed, sum(self._before_line.pop(task, 0) for task in failed)), None
        going_back = {task: self._histories[task] for task in failed}
        line = self._line(going_back)
        kept = {task: history[: line[task] + 1] for task, history in going_back.items()}
        invalid = sum(len(going_back[task]) - len(kept[task]) for task in failed)
        reports = self._report(failed, invalid)
        if not invalid:
            return reports, None
        self._given_up = last
        return reports, self._naming({**self._histories, **kept})

    def _report(self, failed: Collection[TaskId], invalid: int) -> Instructions:
        if not self._durable or self._reported_failed == frozenset(failed):
            return []
        self._reported_failed = frozenset(failed)
        return [ReportEvent(WentBack(len(failed), invalid, self._durable))]

    def begin(self) -> None:
        self._reported_failed = frozenset()

    # ---- where tasks restart

    def restart(self, task: TaskId, newest: Restore) -> Restore:
        safe = self._safe.get(task)
        if safe is None or safe.checkpoint == newest.checkpoint:
            return newest
        covered = [channel.next_seq for channel in progress_of(safe).inputs]
        fallback = Fallback(safe.checkpoint, dict(safe.committables), covered)
        return msgspec.structs.replace(newest, fallback=fallback)

    @property
    def void(self) -> Sequence[int]:
        """A task that goes back gives its snapshots new numbers, above those of all that were given up."""
        newest = min(map(self.completed.epoch, self.context.plan.tasks))
        return [self._given_up] if self._given_up > newest else []

    def resume(self) -> None:
        self._given_up = self.completed.number


def _histories(handles: Iterable[TaskHandle]) -> dict[TaskId, _History]:
    found: dict[TaskId, list[TaskHandle]] = {}
    for handle in handles:
        found.setdefault(handle.task, []).append(handle)
    return {task: sorted(history, key=lambda handle: handle.checkpoint) for task, history in found.items()}


def _positions(handle: TaskHandle) -> Positions:
    progress = progress_of(handle)
    return Positions([channel.next_seq for channel in progress.inputs], progress.outputs)
