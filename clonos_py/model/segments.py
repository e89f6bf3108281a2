"""Segments of determinant logs: the unit in which logs travel, are held and compared (D6)."""

from __future__ import annotations

from typing import NamedTuple

import msgspec


class Reach(NamedTuple):
    """How far the log of the task with this ordinal is held: below offset ``stop`` of its life ``life``."""

    task: int
    life: int
    stop: int


class Life(NamedTuple):
    """How a task's log came to be. ``number`` counts how often the task has started anew without its log; it did so the
    last time from ``checkpoint``, in recovery round ``round``."""

    number: int = 0
    checkpoint: int = 0
    round: int = 0


class Segment(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Offsets [start, start + count) of the log of the task with this ordinal.

    ``epoch`` is the checkpoint that the task had taken last, ``epoch_start`` the offset at which it did. ``life``
    counts how often the task has started anew without its log: segments of an earlier life are void.
    """

    task: int
    epoch: int
    epoch_start: int
    start: int
    count: int
    payload: bytes
    life: int = 0

    @property
    def reach(self) -> Reach:
        """Whoever has this and what came before has the log up to here."""
        return Reach(self.task, self.life, self.stop)

    @property
    def stop(self) -> int:
        return self.start + self.count
