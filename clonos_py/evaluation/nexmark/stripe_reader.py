"""Reads stripes of events from a store, from all partitions of a task in turn, optionally paced.

The stream is cut into stripes; stripe s belongs to partition s % partitions. An offset is the number of earlier events
in its partition (a paced source adds the start of its schedule). Every read is within one stripe. The partition that is
furthest behind is read first, so that event time advances evenly.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol

import pyarrow as pa

from clonos_py.evaluation.nexmark.layout import Layout
from clonos_py.evaluation.nexmark.schedule import Pace, SourcePosition
from clonos_py.model.errors import SourceError
from clonos_py.model.operators import End, Read, Source, Wait


class Stripe(NamedTuple):
    """Events of one partition by kind; None for a kind without rows, or whose columns are not needed."""

    rows: tuple[pa.RecordBatch | None, ...]
    checksum: int


class Store(Protocol):
    """A store of events. Its columns are chosen at creation."""

    def open(self, partitions: int) -> None:
        """Prepares for reading this many partitions in turn."""
        ...

    def seek(self) -> None:
        """The next read need not follow the last one."""
        ...

    def read(self, partition: int, start: int, stop: int) -> Stripe:
        """Events [start, stop) of a partition, all in one stripe."""
        ...


class StripeReader(Source):
    """The source of one task."""

    def __init__(
        self, store: Store, layout: Layout, pace: Pace | None, read_rows: int | None = None, kinds: int = 3
    ) -> None:
        """``kinds``: the number of kinds of events."""
        self._store, self._kinds = store, kinds
        self._layout = layout
        self._pace = pace
        self._read_events_max = min(read_rows or layout.stripe_events, layout.stripe_events)
        self._read_events = self._read_events_max
        self._places: dict[int, SourcePosition] = {}
        self._marked: set[int] = set()
        """Partitions whose end was marked since the last seek."""

    def partitions(self) -> int:
        return self._layout.partitions

    def open(self, index: int, parallelism: int) -> None:
        self._places = dict.fromkeys(range(index, self.partitions(), parallelism), SourcePosition(0))
        self._store.open(len(self._places))

    def seek(self, positions: Mapping[int, int]) -> None:
        self._places = {partition: self._place(positions.get(partition, 0)) for partition in self._places}
        self._marked = set()
        self._store.seek()

    def limit(self, rows: int) -> None:
        self._read_events = min(rows, self._read_events_max)

    def poll(self, now: int) -> Read | Wait | End:
        if self._pace is not None:
            self._places = {partition: place.begun(now) for partition, place in self._places.items()}
        for p, place in self._places.items():
            if p not in self._marked and place.events == self._layout.size(p):
                return self._ended(p)
        left = [(place.events, p) for p, place in self._places.items() if place.events < self._layout.size(p)]
        if not left:
            return End()
        start, partition = min(left)
        stop = min(self._layout.stripe_end(partition, start), start + self._read_events)
        if self._pace is None:
            return self._read(partition, self._places[partition], stop)
        return self._read_when_due(self._pace, partition, self._places[partition], stop, now)

    def reread(self, partition: int, start: int, stop: int) -> Read:
        first, after = self._place(start), self._place(stop)
        if start == stop and first.events == self._layout.size(partition):
            return self._ended(partition)
        if partition not in self._places or not first.events < after.events <= self._layout.stripe_end(
            partition, first.events
        ):
            raise SourceError(
                f"partition {partition} of the generated events has no read [{start}, {stop}): the job's events, "
                "partitions, pace and seed must be those of the run it resumes"
            )
        return self._read(partition, first, after.events)

    def _place(self, offset: int) -> SourcePosition:
        return SourcePosition.at(offset, paced=self._pace is not None)

    def _read_when_due(self, pace: Pace, partition: int, place: SourcePosition, stop: int, now: int) -> Read | Wait:
        """Reads the due events before ``stop``, or returns the time at which the next piece is due."""
        due_us = pace.due_us(place, stop)
        if now < due_us:
            return Wait(due_us)
        due = max(pace.due_events(place, now), place.events + pace.piece_events)
        return self._read(partition, place, min(stop, due))

    def _ended(self, partition: int) -> Read:
        """Marks a partition after a seek to its end."""
        self._marked.add(partition)
        offset = self._places[partition].offset
        return Read(partition, offset, offset, (None,) * self._kinds, events=0, last=True)

    def _read(self, partition: int, place: SourcePosition, stop: int) -> Read:
        if stop == self._layout.size(partition):
            self._marked.add(partition)
        stripe = self._store.read(partition, place.events, stop)
        self._places[partition] = place._replace(events=stop)
        return Read(
            partition,
            place.offset,
            self._places[partition].offset,
            rows=stripe.rows,
            checksum=stripe.checksum,
            events=stop - place.events,
            last=stop == self._layout.size(partition),
            due_us=self._pace.due_us(place, stop) if self._pace else 0,
        )
