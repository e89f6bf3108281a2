"""Segments of determinant logs: the unit in which logs are sent, held and compared (D6)."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from clonos_py.model.ids import LogId


class Reach(NamedTuple):
    """How far a log is held: below offset ``stop``, in incarnation number ``incarnation``."""

    log: LogId
    incarnation: int
    stop: int


ALL_LOGS = LogId(-1)
"""In a mark: the logs of all tasks."""


class StableMark(NamedTuple):
    """Determinants of a log (or of ALL_LOGS) from before ``epoch`` are stable: the restart point of the task lies
    behind them, so no replay needs them."""

    log: LogId
    epoch: int


class Incarnation(NamedTuple):
    """A task's log up to its next restart without log. ``number`` counts these restarts; the last was from
    ``checkpoint``, in recovery round ``round``."""

    number: int = 0
    checkpoint: int = 0
    round: int = 0


class LogSegment(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Offsets [start, start + count) of a task's log.

    ``epoch`` is the last checkpoint that the task had taken, ``epoch_start`` the offset at which it took it.
    ``incarnation`` is the number of the task's incarnation: segments of earlier ones are void. ``self_contained``: it
    can be decoded without the segments before it.
    """

    log: LogId
    epoch: int
    epoch_start: int
    start: int
    count: int
    payload: bytes
    incarnation: int = 0
    self_contained: bool = False

    @property
    def reach(self) -> Reach:
        """How far the log is held by a process that holds this segment and all before it."""
        return Reach(self.log, self.incarnation, self.stop)

    @property
    def stop(self) -> int:
        return self.start + self.count
