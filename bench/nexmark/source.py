"""The generator as a source of three ports: people, auctions, bids. Replayable from any offset, paced if asked.

The stream is cut into stripes; stripe s belongs to partition s % partitions, and an offset is the number of events of
its partition before it (a paced source adds when its schedule began). Every read lies in one stripe. Partitions take
turns, the one that is furthest behind first, so that event time advances evenly.

All columns of every event are made before any is left out: a query that needs two columns is not spared the others.
"""

from __future__ import annotations

import functools
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa
import xxhash

from clonos_py.bench.nexmark.events import Auction, Bid, Person
from clonos_py.bench.nexmark.generator import (
    AUCTION,
    BASE_TIME_US,
    BID,
    BLOCK_EVENTS,
    PERSON,
    Events,
    Generator,
    part,
)
from clonos_py.bench.nexmark.schedule import MOST_EVENTS, Pace, Place
from clonos_py.model.connectors import MultiSourceDefinition
from clonos_py.model.errors import SettingError, SourceError
from clonos_py.model.operators import End, Read, Source, Wait
from clonos_py.model.record import Record

EVENT_TIME = "date_time"
_STRIPES = (BLOCK_EVENTS, 5_000, 500, 50)

Columns = tuple[tuple[str, ...] | None, ...]


@dataclass(frozen=True)
class NexmarkSource(MultiSourceDefinition):
    """Events 0 to ``events`` of a generator.

    ``rate``: events per second of processing time over all partitions, None for as fast as possible. The schedule
    begins when the source is first asked for events; a task that was away catches up with it.
    """

    events: int
    rate: float | None = None
    event_rate: int = 500_000
    seed: int = 1
    partitions: int = 8
    base_time_us: int = BASE_TIME_US
    schemas: tuple[pa.Schema, ...] = field(default=(PERSON, AUCTION, BID), init=False)
    records: tuple[type[Record] | None, ...] = field(default=(Person, Auction, Bid), init=False)

    def __post_init__(self) -> None:
        for name in ("events", "event_rate", "partitions", "rate"):
            value = getattr(self, name)
            if value is not None and value <= 0:
                raise SettingError(f"{name} is {value}: a Nexmark source needs more than 0")
        if self.rate is not None and self.events > MOST_EVENTS:
            raise SettingError(f"events is {self.events}: a paced Nexmark source has at most {MOST_EVENTS}")

    @property
    def stripe_events(self) -> int:
        """Small streams are cut into small stripes, so that every partition has a share."""
        enough = (size for size in _STRIPES if size * self.partitions * 4 <= self.events)
        return next(enough, _STRIPES[-1])

    def create(self, columns: Columns, read_rows: int | None = None) -> NexmarkReader:
        return NexmarkReader(self, columns, read_rows)


class NexmarkReader(Source):
    """Reads the partitions of one task."""

    def __init__(self, definition: NexmarkSource, columns: Columns, read_rows: int | None = None) -> None:
        self._definition = definition
        self._columns = columns
        self._stripe = definition.stripe_events
        self._read_events = min(read_rows or self._stripe, self._stripe)
        self._generator = Generator(definition.seed, definition.event_rate, definition.base_time_us)
        self._places: dict[int, Place] = {}
        self._blocks: OrderedDict[int, Events] = OrderedDict()
        self._layout = _Layout(definition.events, self._stripe, definition.partitions)
        self._pace = Pace(self.partitions() * 1_000_000 / definition.rate) if definition.rate else None

    def partitions(self) -> int:
        return self._layout.partitions

    def open(self, index: int, parallelism: int) -> None:
        self._places = dict.fromkeys(range(index, self.partitions(), parallelism), Place(0))
        self._block(0, last=True)  # fills the pools of text, so that the first read after a recovery need not

    def seek(self, positions: Mapping[int, int]) -> None:
        self._places = {partition: self._place(positions.get(partition, 0)) for partition in self._places}
        self._blocks.clear()

    def poll(self, now: int) -> Read | Wait | End:
        if self._pace is not None:
            self._places = {partition: place.begun(now) for partition, place in self._places.items()}
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
        if partition not in self._places or not first.events < after.events <= self._layout.stripe_end(
            partition, first.events
        ):
            raise SourceError(
                f"nexmark partition {partition} has no read [{start}, {stop}): the job's events, partitions, pace and "
                "seed must be those of the run it resumes"
            )
        return self._read(partition, first, after.events)

    def _place(self, offset: int) -> Place:
        return Place.at(offset, paced=self._pace is not None)

    def _read_when_due(self, pace: Pace, partition: int, place: Place, stop: int, now: int) -> Read | Wait:
        """As much of what lies before ``stop`` as is due, or the time when the next piece will be."""
        due_us = pace.due_us(place, stop)
        if now < due_us:
            return Wait(due_us)
        due = max(pace.due_events(place, now), place.events + pace.piece_events)
        return self._read(partition, place, min(stop, due))

    def _read(self, partition: int, place: Place, stop: int) -> Read:
        count = stop - place.events
        block, offset = divmod(self._layout.event(partition, place.events), BLOCK_EVENTS)
        events = part(self._block(block, last=offset + count == BLOCK_EVENTS), offset, offset + count)
        self._places[partition] = place._replace(events=stop)
        return Read(
            partition,
            place.offset,
            self._places[partition].offset,
            rows=tuple(_projected(rows, columns) for rows, columns in zip(events, self._columns, strict=True)),
            checksum=_checksum(events),
            events=count,
            last=stop == self._layout.size(partition),
            due_us=self._pace.due_us(place, stop) if self._pace else 0,
        )

    def _block(self, number: int, last: bool) -> Events:
        """A block, kept as long as reads are to come from it. Those of small streams are shared by all readers."""
        if self._stripe < BLOCK_EVENTS:
            return _shared_block(self._generator, number)
        block = self._blocks.pop(number, None) or self._generator.block(number)
        if not last:
            self._blocks[number] = block
            while len(self._blocks) > len(self._places):
                self._blocks.popitem(last=False)
        return block


@dataclass(frozen=True)
class _Layout:
    """Which events lie where: ``events`` in stripes of ``stripe``, dealt to up to ``most`` partitions in turn."""

    events: int
    stripe: int
    most: int

    @property
    def partitions(self) -> int:
        """No partition is empty: it would hold back event time."""
        return min(self.most, -(-self.events // self.stripe))

    def event(self, partition: int, offset: int) -> int:
        """The number of the event at an offset."""
        stripe, rest = divmod(offset, self.stripe)
        return (stripe * self.partitions + partition) * self.stripe + rest

    def size(self, partition: int) -> int:
        """How many events a partition has."""
        rounds, rest = divmod(self.events, self.stripe * self.partitions)
        return rounds * self.stripe + min(max(rest - partition * self.stripe, 0), self.stripe)

    def stripe_end(self, partition: int, offset: int) -> int:
        """Where the stripe of an offset ends."""
        return min((offset // self.stripe + 1) * self.stripe, self.size(partition))


@functools.lru_cache(maxsize=4)
def _shared_block(generator: Generator, number: int) -> Events:
    return generator.block(number)


def _projected(rows: pa.RecordBatch, columns: tuple[str, ...] | None) -> pa.RecordBatch | None:
    if not rows.num_rows:
        return None
    return rows if columns is None else rows.select(list(columns))


def _checksum(events: Events) -> int:
    """Of the bids' prices and the reserves, which differ for every event, seed and range; the cost of one pass."""
    checksum = 0
    for rows, column in ((events.bid, "price"), (events.auction, "reserve"), (events.person, "date_time")):
        values = rows.column(column)
        data = values.buffers()[1]
        if data is not None:
            checksum = xxhash.xxh3_64_intdigest(data.slice(values.offset * 8, len(values) * 8), seed=checksum)
    return checksum
