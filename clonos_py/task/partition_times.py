"""The event time that each partition of a source has reached, and the watermark that follows from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from clonos_py.model.times import MAX_TIME, MIN_TIME


class PartitionTimes:
    """The highest event time of each partition; rows may be ``out_of_order_us`` behind it. The caller says which
    partitions are active, that is, neither idle nor finished."""

    def __init__(self, out_of_order_us: int, highest: Mapping[int, int] | None = None) -> None:
        self._out_of_order_us = out_of_order_us
        self._highest = dict(highest or {})

    def observe(self, partition: int, latest_us: int) -> None:
        """Takes the latest event time among new rows of a partition."""
        self._highest[partition] = max(self.of(partition), latest_us)

    def of(self, partition: int) -> int:
        """The highest event time of a partition; MIN_TIME if it has none yet."""
        return self._highest.get(partition, MIN_TIME)

    @property
    def all(self) -> dict[int, int]:
        """The highest event time by partition, without the partitions that have none yet."""
        return dict(self._highest)

    def watermark(self, active: Sequence[int]) -> int:
        """The event time below which the partitions in ``active`` give no more rows, except late ones. If none is
        active, that of the partition farthest ahead. MAX_TIME is for the end of a stream, not for a row."""
        reached = min(map(self.of, active)) if active else max(self._highest.values(), default=MIN_TIME)
        return min(max(reached - self._out_of_order_us, MIN_TIME), MAX_TIME - 1)
