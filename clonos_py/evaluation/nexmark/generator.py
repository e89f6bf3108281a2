"""The Nexmark event generator. Event n depends only on the number n.

Of every 50 events the first is a person, the next three are auctions, the rest are bids. The distributions are those of
the official generator: three of four auctions are by the hot seller (the first of the last hundred people), half of the
bids are for the hot auction (the first of the last hundred) and three of four by the hot bidder (the second of the last
hundred people); the rest goes to one of the last 100 auctions or 1000 people, or to one of the next ten that are not
generated yet. Prices are 10 ** (6 u) * 100 for uniform u. Event n happens n / event_rate seconds after the base time.
Another ``Model`` changes these numbers. As in the official generator, bidder ids start at 2,000, although person ids
start at 1,000: no query joins the two.

Intended differences: the official event ids begin at 2, so person 1000 and auction 1000, the first hot ones, are
referenced but never generated. Here they are generated, since blocks begin with whole cycles. Names of items and
descriptions may begin or end with a blank, which the official generator strips; here they are unchecked pieces of a
pool. Times are in microseconds, the official ones in milliseconds. The random numbers differ, since they are drawn by
block instead of by event.

Events are generated in blocks of 50,000, column by column, without a Python step per event. A part of a block is a
slice.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from clonos_py.evaluation.nexmark import strings
from clonos_py.evaluation.nexmark.events import Auction, Bid, Person
from clonos_py.evaluation.nexmark.model import OFFICIAL, Model
from clonos_py.evaluation.nexmark.places import HOT, Places, places_of
from clonos_py.evaluation.nexmark.tempo import Tempo
from clonos_py.evaluation.nexmark.words import Int64s, Uint32s, below, splitmix64, words

BASE_TIME_US = 1_700_000_000_000_000
"""The time of event 0: a multiple of 10 seconds, at which windows begin."""
FIRST_ID = 1_000
FIRST_BIDDER = 2 * FIRST_ID
"""The official generator adds the first id twice."""
FIRST_CATEGORY = 10

_LEAD = 10
_CHANCES = 1 << 16

PERSON, AUCTION, BID = Person.schema(), Auction.schema(), Bid.schema()
SCHEMAS = (PERSON, AUCTION, BID)


class Events(NamedTuple):
    """A range of the stream, by kind; each kind in the order of the events."""

    person: pa.RecordBatch
    auction: pa.RecordBatch
    bid: pa.RecordBatch


KINDS = Events._fields


@dataclass(frozen=True)
class Generator:
    """Generates events. Equal generators generate equal events. ``event_rate``: events per second of event time; the
    initial rate if the model has a ``next_event_rate``."""

    seed: int = 1
    event_rate: int = 500_000
    base_time_us: int = BASE_TIME_US
    model: Model = OFFICIAL

    def block(self, number: int) -> Events:
        """Events [number * block_events, (number + 1) * block_events), all columns."""
        return Events(*(self.block_of(kind, number) for kind in range(len(KINDS))))

    def block_of(self, kind: int, number: int) -> pa.RecordBatch:
        """The events of one kind in a block, without generating the other kinds."""
        makers: tuple[Callable[[int], pa.RecordBatch], ...] = (self._people, self._auctions, self._bids)
        order = self._places.order[kind]
        rows = makers[kind](number)
        return rows if order is None else rows.take(order)

    def events(self, start: int, stop: int) -> Iterator[Events]:
        """Events [start, stop) in order, in pieces that do not cross block boundaries."""
        size = self.model.block_events
        for number in range(start // size, -(-stop // size)):
            first = number * size
            yield self.part(self.block(number), max(start - first, 0), min(stop - first, size))

    def part(self, block: Events, start: int, stop: int) -> Events:
        """Events [start, stop) of a block, counted from its beginning."""
        return Events(*(self.part_of(kind, rows, start, stop) for kind, rows in enumerate(block)))

    def part_of(self, kind: int, rows: pa.RecordBatch, start: int, stop: int) -> pa.RecordBatch:
        """As ``part``, for the rows of one kind in a block."""
        if (start, stop) == (0, self.model.block_events):
            return rows
        low, high = self._places.before(kind, start), self._places.before(kind, stop)
        return rows.slice(low, high - low)

    def counts(self, events: int) -> tuple[int, ...]:
        """The numbers of people, auctions and bids among the first ``events`` events."""
        blocks, rest = divmod(events, self.model.block_events)
        within = zip(self._places.counts(self.model.block_events), self._places.counts(rest), strict=True)
        return tuple(blocks * whole + some for whole, some in within)

    @property
    def out_of_order_us(self) -> int:
        """How much earlier in event time an event may be than a previous one."""
        return self.tempo.span_us(self.model.out_of_order_group - 1)

    @property
    def tempo(self) -> Tempo:
        """The event times of events."""
        return Tempo.of(self.event_rate, self.model)

    @property
    def _places(self) -> Places:
        return places_of(self.model)

    def _people(self, block: int) -> pa.RecordBatch:
        key, people = functools.partial(self._key, block, 0), len(self._places.person)
        random = [words(key(field), people) for field in range(9)]
        name, city, state = (
            strings.pick(dictionary, random[field])
            for field, dictionary in enumerate((strings.NAMES, strings.CITIES, strings.STATES))
        )
        email = strings.email_addresses(random[3])
        card = strings.credit_cards((random[4], random[5], random[6], random[7]))
        size = 8 + strings.text_lengths(name, email, card, city, state)
        extra = strings.filling(key(10), strings.fill_up(random[8], self.model.person_bytes - size))
        ids = np.arange(block * people, (block + 1) * people) + FIRST_ID
        return _batch(PERSON, ids, name, email, card, city, state, self._times(block, self._places.person), extra)

    def _auctions(self, block: int) -> pa.RecordBatch:
        key, places, model = functools.partial(self._key, block, 1), self._places, self.model
        auctions = len(places.auction)
        random = [words(key(field), auctions) for field in range(8)]
        people = places.auction_person + block * len(places.person)
        any_person = _active_person(people, random[0], model.active_people)
        seller = np.where(_hot(random[0], model.cold_seller), people // HOT * HOT, any_person) + FIRST_ID
        item = strings.prose(key(10), strings.lengths_between(random[1], 3, 20))
        description = strings.prose(key(11), strings.lengths_between(random[2], 3, 100))
        initial_bid = _prices(random[3])
        times = self._times(block, places.auction)
        expires = times + 1 + below(random[5], 2 * self._open_us(block, times))
        size = 8 + strings.text_lengths(item, description) + 5 * 8
        extra = strings.filling(key(12), strings.fill_up(random[7], model.auction_bytes - size))
        ids = np.arange(block * auctions, (block + 1) * auctions) + FIRST_ID
        reserve, category = initial_bid + _prices(random[4]), below(random[6], 5) + FIRST_CATEGORY
        return _batch(AUCTION, ids, item, description, initial_bid, reserve, times, expires, seller, category, extra)

    def _bids(self, block: int) -> pa.RecordBatch:
        key, places, model = functools.partial(self._key, block, 2), self._places, self.model
        random = [words(key(field), len(places.bid)) for field in range(5)]
        first_auction, first_person = block * len(places.auction), block * len(places.person)
        any_auction = _open_auction(places.bid_auction + first_auction, random[0], model.open_auctions)
        auction = np.where(_hot(random[0], model.cold_auction), places.bid_hot_auction + first_auction, any_auction)
        any_person = _active_person(places.bid_person + first_person, random[1], model.active_people)
        bidder = np.where(_hot(random[1], model.cold_bidder), places.bid_hot_person + first_person, any_person)
        channel, url = strings.channels_and_urls(random[3])
        extra = strings.filling(key(10), strings.lengths_about(random[4], model.bid_bytes - 4 * 8))
        times = self._times(block, places.bid)
        return _batch(BID, auction + FIRST_ID, bidder + FIRST_BIDDER, _prices(random[2]), channel, url, times, extra)

    def _key(self, block: int, kind: int, field: int) -> int:
        return splitmix64(splitmix64(splitmix64(self.seed) + block) + kind * 64 + field)

    def _times(self, block: int, places: Int64s) -> Int64s:
        return self.tempo.times_us(places + block * self.model.block_events) + self.base_time_us

    def _open_us(self, block: int, times: Int64s) -> int | Int64s:
        """The mean duration of an auction: the time in which as many auctions are generated as are open at a time."""
        model, rates = self.model, self.tempo.rates
        events = model.open_auctions * model.cycle_events
        if len(rates) == 1:
            return max(events * 1_000_000 // (model.auction_proportion * rates[0]), 1)
        later: Int64s = self._times(block, self._places.auction + events // model.auction_proportion)
        lasts: Int64s = np.maximum(later - times, 1)
        return lasts


def _active_person(last: Int64s, random: Uint32s, people: int) -> Int64s:
    """A random one of the last ``people`` people up to ``last``, or of the next ten."""
    if last[0] >= people:
        return last + 1 - people + below(random, people + _LEAD)
    active = np.minimum(last + 1, people)
    return last + 1 - active + below(random, active + _LEAD)


def _open_auction(last: Int64s, random: Uint32s, auctions: int) -> Int64s:
    """A random one of the last ``auctions`` auctions before ``last``, ``last`` itself, or one of the next ten."""
    first = np.maximum(last - auctions, 0)
    return first + below(random, last - first + 1 + _LEAD)


def _hot(random: Uint32s, cold: float) -> npt.NDArray[np.bool_]:
    """False with probability ``cold``. Uses the low bits of the random words; ``below`` uses the high bits."""
    chances = round(cold * _CHANCES)
    flags: npt.NDArray[np.bool_]
    if chances and _CHANCES % chances == 0:
        flags = (random & np.uint32(_CHANCES // chances - 1)) != 0
    else:
        flags = (random & np.uint32(_CHANCES - 1)) >= chances
    return flags


def _prices(random: Uint32s) -> Int64s:
    """Prices of 10 ** (6 u) * 100 cents. Computed by two table look-ups of 13 bits of u each and a product, so that the
    results are the same on every machine."""
    high, low = _price_tables()
    price: npt.NDArray[np.float64] = high[random >> np.uint32(19)]
    np.multiply(price, low[random >> np.uint32(6) & np.uint32(8191)], out=price)
    return np.rint(price, out=price).astype(np.int64)


@functools.cache
def _price_tables() -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    high = [100 * 10 ** (6 * step / 2**13) for step in range(2**13)]
    low = [10 ** (6 * step / 2**26) for step in range(2**13)]
    return np.array(high), np.array(low)


def _batch(schema: pa.Schema, *columns: Int64s | strings.Strings) -> pa.RecordBatch:
    arrays: list[pa.Array[Any]] = [pa.array(column) for column in columns]  # type: ignore[arg-type]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
