"""Decides which partitions of a source are idle: they have given no rows for a while, though the task has read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

_ROUNDS = 2
"""A partition that has rows is read within one round of all partitions; this one may have begun behind it."""


class Idleness:
    """The idle partitions of one source task. The caller says which partitions are active, that is, neither idle nor
    finished.

    A task does not read while it processes rows, or while its outputs are full. A partition may have rows by then. So
    when its idle time is over, it is idle only once the source had nothing to give, or has given rows of others for two
    rounds of reads.
    """

    def __init__(self, idle_us: int | None) -> None:
        """``idle_us``: the idle time; None: no partition falls idle."""
        self._idle_us = idle_us
        self.begin()

    def begin(self, idle: Iterable[int] = ()) -> None:
        """From now on these partitions are idle, and no others."""
        self.idle = set(idle)
        self._active_us: dict[int, int] = {}
        self._reads_when_due: dict[int, int] = {}
        """By partition whose idle time is over: the number of reads before that."""
        self._reads = 0
        self._nothing_us: int | None = None

    def gave(self, partition: int, now_us: int) -> None:
        """A read of this partition enters the task."""
        self.idle.discard(partition)
        self._active_us[partition] = now_us
        self._reads_when_due.pop(partition, None)
        self._reads += 1

    def had_nothing(self, now_us: int) -> None:
        """The source has no more rows at this time."""
        self._nothing_us = now_us

    def due(self, active: Sequence[int], now_us: int) -> int | None:
        """The first partition that has to fall idle; None if there is none."""
        return next((partition for partition in active if self._is_due(partition, len(active), now_us)), None)

    def _is_due(self, partition: int, active: int, now_us: int) -> bool:
        if self._idle_us is None:
            return False
        due_us = self._active_us.setdefault(partition, now_us) + self._idle_us
        if now_us < due_us:
            return False
        if self._nothing_us is not None and self._nothing_us >= due_us:
            return True
        return self._reads - self._reads_when_due.setdefault(partition, self._reads) >= _ROUNDS * active

    def next_us(self, active: Sequence[int]) -> int | None:
        """The time at which the next partition may fall idle, if the source has nothing by then; None if none can."""
        since = [self._active_us[partition] for partition in active if partition in self._active_us]
        return min(since) + self._idle_us if since and self._idle_us is not None else None
