"""Event time of a source's rows, partition by partition: which watermark they come to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from clonos_py.model.times import MIN_TIME


class PartitionTimes:
    """The highest event time of each partition; rows may be ``out_of_order_us`` behind it. What partitions there are,
    and which of them are idle or finished, is the source's to know."""

    def __init__(self, out_of_order_us: int, highest: Mapping[int, int] | None = None) -> None:
        self._out_of_order_us = out_of_order_us
        self._highest = dict(highest or {})

    def observe(self, partition: int, latest_us: int) -> None:
        """Rows of a partition, of which this is the latest."""
        self._highest[partition] = max(self.of(partition), latest_us)

    def of(self, partition: int) -> int:
        """MIN_TIME if nothing is known of it."""
        return self._highest.get(partition, MIN_TIME)

    @property
    def all(self) -> dict[int, int]:
        """By partition of which something is known."""
        return dict(self._highest)

    def watermark(self, awake: Sequence[int], finished: Sequence[int]) -> int:
        """Event time below which no partition that is awake will give a row, but for late ones. Where none is, it is
        what the finished ones had come to."""
        reached = min(map(self.of, awake)) if awake else max(map(self.of, finished), default=MIN_TIME)
        return reached if reached == MIN_TIME else reached - self._out_of_order_us
