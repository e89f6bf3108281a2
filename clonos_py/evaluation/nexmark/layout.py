"""The layout of events in partitions: the stream is cut into stripes, which are assigned to partitions round-robin.
Sources, files and Spark share it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from clonos_py.evaluation.nexmark.model import OFFICIAL, Model
from clonos_py.evaluation.nexmark.places import places_of

_ENOUGH_STRIPES = 4


@dataclass(frozen=True)
class Layout:
    """The layout of ``events`` events in at most ``most`` partitions. Stripe s belongs to partition s % partitions.

    A stripe never spans two blocks. It begins with a person, unless events are out of order.
    """

    events: int
    most: int
    model: Model = OFFICIAL

    @cached_property
    def stripe_events(self) -> int:
        """The size of a stripe. Small streams have small stripes, so that every partition gets some."""
        block = self.model.block_events
        sizes = [block, block // 10, block // 100, self.model.cycle_events]
        whole = [size for size in sizes if size % self.model.out_of_order_group == 0]
        return next((size for size in whole if size * self.most * _ENOUGH_STRIPES <= self.events), whole[-1])

    @cached_property
    def partitions(self) -> int:
        """The number of partitions. No partition is empty, as it would hold back the watermark."""
        return min(self.most, -(-self.events // self.stripe_events))

    def event(self, partition: int, offset: int) -> int:
        """The number of the event at an offset of a partition."""
        stripe, rest = divmod(offset, self.stripe_events)
        return (stripe * self.partitions + partition) * self.stripe_events + rest

    def size(self, partition: int) -> int:
        """The number of events in a partition."""
        rounds, rest = divmod(self.events, self.stripe_events * self.partitions)
        return rounds * self.stripe_events + min(max(rest - partition * self.stripe_events, 0), self.stripe_events)

    def stripe_end(self, partition: int, offset: int) -> int:
        """The end offset of the stripe that contains an offset."""
        return min((offset // self.stripe_events + 1) * self.stripe_events, self.size(partition))

    def counts(self, partition: int, offset: int) -> tuple[int, ...]:
        """The numbers of people, auctions and bids before an offset."""
        whole, rest = divmod(offset, self.stripe_events)
        start = self.event(partition, offset - rest) % self.model.block_events
        places = places_of(self.model)
        per_kind = zip(
            places.counts(self.stripe_events), places.counts(start), places.counts(start + rest), strict=True
        )
        return tuple(whole * stripe + after - before for stripe, before, after in per_kind)

    def stripes(self, partition: int) -> Iterator[tuple[int, int, int]]:
        """A partition's stripes in order: the number of the block, and the start and end in it."""
        for offset in range(0, self.size(partition), self.stripe_events):
            block, start = divmod(self.event(partition, offset), self.model.block_events)
            yield block, start, start + self.stripe_end(partition, offset) - offset
