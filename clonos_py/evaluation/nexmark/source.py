"""The generator as a source of three ports: people, auctions, bids. Replayable from any offset, and optionally paced.

All columns of every event are generated before any are dropped, even if a query needs only two.
"""

from __future__ import annotations

import functools
import math
from collections import OrderedDict
from dataclasses import dataclass, field
from datetime import timedelta

import pyarrow as pa
import xxhash

from clonos_py.evaluation.nexmark.events import Auction, Bid, Person
from clonos_py.evaluation.nexmark.generator import BASE_TIME_US, SCHEMAS, Events, Generator
from clonos_py.evaluation.nexmark.layout import Layout
from clonos_py.evaluation.nexmark.model import OFFICIAL, Model
from clonos_py.evaluation.nexmark.schedule import MOST_EVENTS, Pace
from clonos_py.evaluation.nexmark.stripe_reader import Stripe, StripeReader
from clonos_py.model.connectors import MultiSourceDefinition
from clonos_py.model.errors import SettingError
from clonos_py.model.record import Record

EVENT_TIME = "date_time"
RECORDS: tuple[type[Record] | None, ...] = (Person, Auction, Bid)
_GOLDEN = 0.618
"""Its multiples modulo 1 are far apart from each other."""
_KEPT_EACH = 2

Columns = tuple[tuple[str, ...] | None, ...]


@dataclass(frozen=True)
class NexmarkSource(MultiSourceDefinition):
    """Events 0 to ``events`` of a generator.

    ``rate``: events per second of processing time over all partitions, None for as fast as possible. The schedule
    begins when the source is first polled. A replacement catches up with it. If the model's rate has a shape, the pace
    has the same shape and begins with ``rate``.
    """

    events: int
    rate: float | None = None
    event_rate: int = 500_000
    seed: int = 1
    partitions: int = 8
    base_time_us: int = BASE_TIME_US
    model: Model = OFFICIAL
    schemas: tuple[pa.Schema, ...] = field(default=SCHEMAS, init=False)
    records: tuple[type[Record] | None, ...] = field(default=RECORDS, init=False)

    def __post_init__(self) -> None:
        for name in ("events", "event_rate", "partitions", "rate"):
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise SettingError(f"{name} is {value}: a Nexmark source needs a number above 0")
        if self.rate is not None and self.events > MOST_EVENTS:
            raise SettingError(f"events is {self.events}: a paced Nexmark source has at most {MOST_EVENTS}")

    @property
    def origin(self) -> NexmarkSource:
        """The generator source of these events: itself."""
        return self

    @property
    def generator(self) -> Generator:
        return Generator(self.seed, self.event_rate, self.base_time_us, self.model)

    @property
    def layout(self) -> Layout:
        return Layout(self.events, self.partitions, self.model)

    @property
    def pace(self) -> Pace | None:
        """The pace of each partition; None if unpaced."""
        if self.rate is None:
            return None
        return Pace(self.generator.tempo, self.layout.partitions, self.event_rate / self.rate)

    @property
    def out_of_order(self) -> timedelta:
        return timedelta(microseconds=self.generator.out_of_order_us)

    def create(self, columns: Columns, read_rows: int | None = None) -> StripeReader:
        return StripeReader(GeneratedEvents(self.generator, self.layout, columns), self.layout, self.pace, read_rows)


class GeneratedEvents:
    """Generates blocks when they are read. If blocks are read in small pieces, the next block is generated ahead of
    time. Each partition does so at a different position of its block, since generating all at once would delay a reader
    that waits for a few events."""

    def __init__(self, generator: Generator, layout: Layout, columns: Columns) -> None:
        self._generator = generator
        self._layout = layout
        self._columns = columns
        self._kept = 0
        self._blocks: OrderedDict[int, Events] = OrderedDict()

    def open(self, partitions: int) -> None:
        self._kept = partitions
        self._block(0, last=True)  # fills the text pools before the first read after a recovery

    def seek(self) -> None:
        self._blocks.clear()

    def read(self, partition: int, start: int, stop: int) -> Stripe:
        size = self._generator.model.block_events
        block, first = divmod(self._layout.event(partition, start), size)
        after = first + stop - start
        events = self._generator.part(self._block(block, last=after == size), first, after)
        if after % size > _GOLDEN * partition % 1 * size:
            self._make_ahead(partition, start)
        rows = tuple(_projected(rows, columns) for rows, columns in zip(events, self._columns, strict=True))
        return Stripe(rows, _checksum(events))

    def _block(self, number: int, last: bool) -> Events:
        """A block, cached until its last read. All readers share the blocks of small streams."""
        if self._layout.stripe_events < self._generator.model.block_events:
            return _shared_block(self._generator, number)
        block = self._blocks.pop(number, None) or self._generator.block(number)
        if not last:
            self._keep(number, block)
        return block

    def _keep(self, number: int, block: Events) -> None:
        self._blocks[number] = block
        while len(self._blocks) > _KEPT_EACH * self._kept:
            self._blocks.popitem(last=False)

    def _make_ahead(self, partition: int, offset: int) -> None:
        size = self._layout.stripe_events
        after = (offset // size + 1) * size
        if size < self._generator.model.block_events or after >= self._layout.size(partition):
            return
        number = self._layout.event(partition, after) // size
        if number not in self._blocks:
            self._keep(number, self._generator.block(number))


@functools.lru_cache(maxsize=4)
def _shared_block(generator: Generator, number: int) -> Events:
    return generator.block(number)


def _projected(rows: pa.RecordBatch, columns: tuple[str, ...] | None) -> pa.RecordBatch | None:
    if not rows.num_rows:
        return None
    return rows if columns is None else rows.select(list(columns))


def _checksum(events: Events) -> int:
    """A checksum of prices, reserves and times, which differ by event, seed and range. It costs one pass."""
    checksum = 0
    for rows, column in ((events.bid, "price"), (events.auction, "reserve"), (events.person, "date_time")):
        values = rows.column(column)
        data = values.buffers()[1]
        if data is not None:
            checksum = xxhash.xxh3_64_intdigest(data.slice(values.offset * 8, len(values) * 8), seed=checksum)
    return checksum
