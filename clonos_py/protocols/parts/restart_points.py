"""Where tasks that take snapshots alone restart, and so which of their snapshots a manifest names (E6).

With logs, every snapshot fits to every other: a task restarts from its newest one, and the manifest names that. Without
logs, snapshots that fit together have to be searched (``recovery_line.py``).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from typing import ClassVar, NamedTuple

from clonos_py.job.context import CoordinatorContext
from clonos_py.job.events import Instructions
from clonos_py.model.ids import TaskId
from clonos_py.model.messages import Restore
from clonos_py.model.snapshots import Manifest, TaskHandle


class NamedSnapshots(NamedTuple):
    """The snapshots that a manifest names: the newest one of each task, and earlier ones."""

    newest: Sequence[TaskHandle]
    earlier: Sequence[TaskHandle] = ()


class RestartPoints(ABC):
    """The restart points of all tasks."""

    searched: ClassVar[bool]
    """Whether restart points are searched among several snapshots of each task. Then a new snapshot does not supersede
    an earlier one."""

    def __init__(self, context: CoordinatorContext) -> None:
        self.context, self.completed = context, context.completed

    @abstractmethod
    def first(self, task: TaskId) -> TaskHandle | None:
        """The earliest snapshot to which a task may have to go back; None if this is its start."""

    @abstractmethod
    def safe_epoch(self, task: TaskId) -> int:
        """The epoch that begins with ``first``; 0 if there is none."""

    @abstractmethod
    def named(self, gathered: Sequence[TaskHandle]) -> NamedSnapshots | None:
        """What the next manifest names, if these snapshots are durable, too; None while there can be none."""

    @abstractmethod
    def short_of_room(self, task: TaskId) -> Sequence[TaskId]:
        """The tasks to trigger now, as the retained frames of ``task`` take half of their budget."""

    def begin(self) -> None:  # noqa: B027 - nothing is needed where restart points are not searched
        """All tasks run."""

    def durable(self, handle: TaskHandle) -> None:  # noqa: B027
        """A snapshot is durable that no manifest names yet."""

    def adopt(self, manifest: Manifest, tasks: Collection[TaskId]) -> Collection[TaskId]:
        """``manifest`` counts from now on; it has new snapshots of ``tasks``. Returns the tasks whose restart points it
        changes."""
        return tasks

    def to_trigger(self) -> Sequence[TaskId]:
        """The tasks to trigger again after a manifest was adopted."""
        return ()

    def restart(self, task: TaskId, newest: Restore) -> Restore:
        """The restart point of a task. ``newest``: that of its newest snapshot."""
        return newest

    def condemned(self, lost: Collection[TaskId]) -> set[TaskId]:
        """See ``JobCheckpointing.condemned``."""
        return set()

    def fall_back(self, failed: Collection[TaskId], last: int) -> tuple[Instructions, NamedSnapshots | None]:
        """Reports, and what a manifest must name before failed tasks restart; None if the newest one will do. ``last``:
        the highest number of a snapshot or manifest so far."""
        return [], None

    @property
    def void(self) -> Sequence[int]:
        """See ``JobCheckpointing.void``. None: a replay passes an epoch whose snapshot does not count like any other
        event."""
        return ()

    def resume(self) -> None:  # noqa: B027
        """This coordinator replaces one that was lost."""


class NewestSnapshots(RestartPoints):
    """Each task restarts from its newest snapshot that counts, and replays its log."""

    searched = False

    def first(self, task: TaskId) -> TaskHandle | None:
        return self.completed.handle(task)

    def safe_epoch(self, task: TaskId) -> int:
        return self.completed.epoch(task)

    def named(self, gathered: Sequence[TaskHandle]) -> NamedSnapshots | None:
        """None while some task has no snapshot yet."""
        newest = {handle.task: handle for handle in gathered}
        known = {task: newest.get(task) or self.completed.handle(task) for task in self.context.plan.tasks}
        handles = [handle for handle in known.values() if handle is not None]
        return NamedSnapshots(handles) if len(handles) == len(known) else None

    def short_of_room(self, task: TaskId) -> Sequence[TaskId]:
        """The receivers: their new restart points let the task truncate its retained frames."""
        plan = self.context.plan
        return list(dict.fromkeys(plan.receiver(channel) for channel in plan.outputs[task]))
