"""Segments of determinant logs: the unit in which logs travel, are held and compared (D6)."""

from __future__ import annotations

from typing import NamedTuple

import msgspec


class Reach(NamedTuple):
    """How far the log of a task (its ordinal) is held: below offset ``stop`` of its incarnation number
    ``incarnation``."""

    task: int
    incarnation: int
    stop: int


ALL_TASKS = -1
"""In a mark: the logs of all tasks."""


class StableMark(NamedTuple):
    """What the log of a task (its ordinal, or ALL_TASKS) says from before ``epoch`` is stable: the restart point of the
    task lies behind it, so that no replay needs it."""

    task: int
    epoch: int


class Incarnation(NamedTuple):
    """An incarnation of a task ends when the task restarts without its log. ``number`` counts these restarts; the last
    was from ``checkpoint``, in recovery round ``round``."""

    number: int = 0
    checkpoint: int = 0
    round: int = 0


class LogSegment(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Offsets [start, start + count) of the log of the task with this ordinal.

    ``epoch`` is the last checkpoint that the task had taken, ``epoch_start`` the offset at which it took it.
    ``incarnation`` is the number of the task's incarnation: segments of earlier ones are void.
    """

    task: int
    epoch: int
    epoch_start: int
    start: int
    count: int
    payload: bytes
    incarnation: int = 0

    @property
    def reach(self) -> Reach:
        """A process that holds this segment and all before it holds the log up to here."""
        return Reach(self.task, self.incarnation, self.stop)

    @property
    def stop(self) -> int:
        return self.start + self.count
