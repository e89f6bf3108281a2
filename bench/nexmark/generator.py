"""The Nexmark event generator: event number n alone determines event n.

Of every 50 events the first is a person, the next three are auctions, the rest are bids. The distributions are those
of the official generator: three of four auctions are by the hot seller (the first of the last hundred people), half of
the bids are for the hot auction (the first of the last hundred) and three of four by the hot bidder (the second of the
last hundred people); the rest goes to one of the last 100 auctions or 1000 people, or to one of the next ten that are
not there yet. Prices are 10 ** (6 u) * 100 for uniform u. Event n happens n / event_rate seconds after the base time.

Events are made in blocks of 50,000, column by column, without a Python step per event; a part of a block is a slice.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from clonos_py.bench.nexmark import strings
from clonos_py.bench.nexmark.events import Auction, Bid, Person
from clonos_py.bench.nexmark.words import Int64s, Uint32s, below, splitmix64, words

BLOCK_EVENTS = 50_000
"""A multiple of 5,000, so that every block begins with the first of a hundred people and auctions."""
BASE_TIME_US = 1_700_000_000_000_000
"""The time of event 0: a full 10 seconds, on which windows begin."""
FIRST_ID = 1_000
FIRST_CATEGORY = 10

_CYCLE, _PERSONS, _AUCTIONS = 50, 1, 3
_BIDS = _CYCLE - _PERSONS - _AUCTIONS
_CYCLES = BLOCK_EVENTS // _CYCLE
_HOT = 100
_ACTIVE_PEOPLE, _OPEN_AUCTIONS, _LEAD = 1_000, 100, 10
_PERSON_BYTES, _AUCTION_BYTES, _BID_BYTES = 200, 500, 100

PERSON, AUCTION, BID = Person.schema(), Auction.schema(), Bid.schema()


class Events(NamedTuple):
    """A range of the stream, by kind; each kind in the order of the events."""

    person: pa.RecordBatch
    auction: pa.RecordBatch
    bid: pa.RecordBatch


@dataclass(frozen=True)
class Generator:
    """Makes events. Equal generators make equal events. ``event_rate``: events that share a second of event time."""

    seed: int = 1
    event_rate: int = 500_000
    base_time_us: int = BASE_TIME_US

    def block(self, number: int) -> Events:
        """Events [number * BLOCK_EVENTS, (number + 1) * BLOCK_EVENTS), all columns."""
        return Events(self._people(number), self._auctions(number), self._bids(number))

    def events(self, start: int, stop: int) -> Iterator[Events]:
        """Events [start, stop) in order, in pieces that end where blocks end."""
        for number in range(start // BLOCK_EVENTS, -(-stop // BLOCK_EVENTS)):
            first = number * BLOCK_EVENTS
            yield part(self.block(number), max(start - first, 0), min(stop - first, BLOCK_EVENTS))

    def _people(self, block: int) -> pa.RecordBatch:
        key = functools.partial(self._key, block, 0)
        random = [words(key(field), _CYCLES) for field in range(9)]
        name, city, state = (
            strings.pick(dictionary, random[field])
            for field, dictionary in enumerate((strings.NAMES, strings.CITIES, strings.STATES))
        )
        email = strings.email_addresses(random[3])
        card = strings.credit_cards((random[4], random[5], random[6], random[7]))
        size = 8 + strings.text_lengths(name, email, card, city, state)
        extra = strings.letters(key(10), strings.fill_up(random[8], _PERSON_BYTES - size))
        ids = np.arange(block * _CYCLES, (block + 1) * _CYCLES) + FIRST_ID
        return _batch(PERSON, ids, name, email, card, city, state, self._times(block, _places().person), extra)

    def _auctions(self, block: int) -> pa.RecordBatch:
        key, places = functools.partial(self._key, block, 1), _places()
        random = [words(key(field), _CYCLES * _AUCTIONS) for field in range(8)]
        people = places.auction_cycle + block * _CYCLES
        seller = np.where(_flag(random[0], 3), people // _HOT * _HOT, _active_person(people, random[0])) + FIRST_ID
        item = strings.prose(key(10), strings.lengths_between(random[1], 3, 20))
        description = strings.prose(key(11), strings.lengths_between(random[2], 3, 100))
        initial_bid = _prices(random[3])
        times = self._times(block, places.auction)
        expires = times + 1 + below(random[5], 2 * self._open_us())
        size = 8 + strings.text_lengths(item, description) + 5 * 8
        extra = strings.letters(key(12), strings.fill_up(random[7], _AUCTION_BYTES - size))
        ids = np.arange(block * _CYCLES * _AUCTIONS, (block + 1) * _CYCLES * _AUCTIONS) + FIRST_ID
        reserve, category = initial_bid + _prices(random[4]), below(random[6], 5) + FIRST_CATEGORY
        return _batch(AUCTION, ids, item, description, initial_bid, reserve, times, expires, seller, category, extra)

    def _bids(self, block: int) -> pa.RecordBatch:
        key, places = functools.partial(self._key, block, 2), _places()
        random = [words(key(field), _CYCLES * _BIDS) for field in range(5)]
        first_auction, first_person = block * _CYCLES * _AUCTIONS, block * _CYCLES
        any_auction = _open_auction(places.bid_last_auction + first_auction, random[0])
        auction = np.where(_flag(random[0], 1), places.bid_hot_auction + first_auction, any_auction)
        any_person = _active_person(places.bid_cycle + first_person, random[1])
        bidder = np.where(_flag(random[1], 3), places.bid_hot_person + first_person, any_person)
        channel, url = strings.channels_and_urls(random[3])
        extra = strings.letters(key(10), strings.lengths_between(random[4], 54, 82))
        times = self._times(block, places.bid)
        return _batch(BID, auction + FIRST_ID, bidder + FIRST_ID, _prices(random[2]), channel, url, times, extra)

    def _key(self, block: int, kind: int, field: int) -> int:
        return splitmix64(splitmix64(splitmix64(self.seed) + block) + kind * 64 + field)

    def _times(self, block: int, places: Int64s) -> Int64s:
        times = places + block * BLOCK_EVENTS
        np.multiply(times, 1_000_000, out=times)
        np.floor_divide(times, self.event_rate, out=times)
        return np.add(times, self.base_time_us, out=times)

    def _open_us(self) -> int:
        """How long it takes until as many auctions as are open at a time have been made: an auction's mean duration."""
        return max(_OPEN_AUCTIONS * _CYCLE * 1_000_000 // (_AUCTIONS * self.event_rate), 1)


def part(block: Events, start: int, stop: int) -> Events:
    """Events [start, stop) of a block, counted from its beginning."""
    if (start, stop) == (0, BLOCK_EVENTS):
        return block
    begin, end = counts(start), counts(stop)
    return Events(*(rows.slice(low, high - low) for rows, low, high in zip(block, begin, end, strict=True)))


def counts(events: int) -> tuple[int, int, int]:
    """How many people, auctions and bids are among the first ``events`` events."""
    cycles, rest = divmod(events, _CYCLE)
    people = min(rest, _PERSONS)
    auctions = min(rest - people, _AUCTIONS)
    return cycles * _PERSONS + people, cycles * _AUCTIONS + auctions, cycles * _BIDS + rest - people - auctions


class _Places(NamedTuple):
    """What every block has in common: where in it each kind of event stands (``cycle``: number of the 50 events it is
    among), and for bids the last auction, the hot one and the hot person, as if the block were the first."""

    person: Int64s
    auction: Int64s
    auction_cycle: Int64s
    bid: Int64s
    bid_cycle: Int64s
    bid_last_auction: Int64s
    bid_hot_auction: Int64s
    bid_hot_person: Int64s


@functools.cache
def _places() -> _Places:
    cycles = np.arange(_CYCLES, dtype=np.int64)
    auction_cycle, bid_cycle = np.repeat(cycles, _AUCTIONS), np.repeat(cycles, _BIDS)
    last_auction = bid_cycle * _AUCTIONS + _AUCTIONS - 1
    return _Places(
        person=cycles * _CYCLE,
        auction=auction_cycle * _CYCLE + np.tile(np.arange(_AUCTIONS) + _PERSONS, _CYCLES),
        auction_cycle=auction_cycle,
        bid=bid_cycle * _CYCLE + np.tile(np.arange(_BIDS) + _PERSONS + _AUCTIONS, _CYCLES),
        bid_cycle=bid_cycle,
        bid_last_auction=last_auction,
        bid_hot_auction=last_auction // _HOT * _HOT,
        bid_hot_person=bid_cycle // _HOT * _HOT + 1,
    )


def _active_person(last: Int64s, random: Uint32s) -> Int64s:
    """One of the last 1000 people up to ``last``, or of the next ten."""
    if last[0] >= _ACTIVE_PEOPLE:
        return last + 1 - _ACTIVE_PEOPLE + below(random, _ACTIVE_PEOPLE + _LEAD)
    active = np.minimum(last + 1, _ACTIVE_PEOPLE)
    return last + 1 - active + below(random, active + _LEAD)


def _open_auction(last: Int64s, random: Uint32s) -> Int64s:
    """One of the last 100 auctions before ``last``, itself, or one of the next ten."""
    first = np.maximum(last - _OPEN_AUCTIONS, 0)
    return first + below(random, last - first + 1 + _LEAD)


def _flag(random: Uint32s, mask: int) -> npt.NDArray[np.bool_]:
    """True unless all bits of the mask are 0. The low bits serve here, the high ones ``below``."""
    flags: npt.NDArray[np.bool_] = (random & np.uint32(mask)) != 0
    return flags


def _prices(random: Uint32s) -> Int64s:
    """10 ** (6 u) * 100 in cents. Two table look-ups of 13 bits of u each and a product: the same on every machine."""
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
