"""The positions of the kinds of events in a block, and the latest earlier person and auction of each. They are the same
for all blocks of a model."""

from __future__ import annotations

import functools
from typing import NamedTuple

import numpy as np

from clonos_py.evaluation.nexmark.model import Model
from clonos_py.evaluation.nexmark.words import Int64s

HOT = 100
"""One of this many people or auctions is hot: the first (for bidders, the second) of the last hundred."""


class Places(NamedTuple):
    """Event numbers within the block by kind. Also the last person for auctions and bids, and the last auction, hot
    auction and hot person for bids, numbered as in the first block. ``order`` sorts the rows of a kind by stream
    position; None if they are sorted. ``turns`` are the sorted stream positions."""

    person: Int64s
    auction: Int64s
    auction_person: Int64s
    bid: Int64s
    bid_person: Int64s
    bid_auction: Int64s
    bid_hot_auction: Int64s
    bid_hot_person: Int64s
    order: tuple[Int64s | None, ...]
    turns: tuple[Int64s, ...]

    def counts(self, events: int) -> tuple[int, ...]:
        """The numbers of people, auctions and bids among the first ``events`` events of a block."""
        return tuple(self.before(kind, events) for kind in range(len(self.turns)))

    def before(self, kind: int, events: int) -> int:
        """As ``counts``, for one kind."""
        return int(self.turns[kind].searchsorted(events))


@functools.cache
def places_of(model: Model) -> Places:
    people, auctions, bids = model.person_proportion, model.auction_proportion, model.bid_proportion
    cycles = np.arange(model.block_cycles, dtype=np.int64)
    auction_cycle, bid_cycle = np.repeat(cycles, auctions), np.repeat(cycles, bids)
    last_person, last_auction = bid_cycle * people + people - 1, bid_cycle * auctions + auctions - 1
    person = _numbers(model, 0, people)
    auction = _numbers(model, people, auctions)
    bid = _numbers(model, people + auctions, bids)
    order, turns = zip(*(_turns(model, numbers) for numbers in (person, auction, bid)), strict=True)
    return Places(
        person=person,
        auction=auction,
        auction_person=auction_cycle * people + people - 1,
        bid=bid,
        bid_person=last_person,
        bid_auction=last_auction,
        bid_hot_auction=last_auction // HOT * HOT,
        bid_hot_person=last_person // HOT * HOT + 1,
        order=order,
        turns=turns,
    )


def _numbers(model: Model, first: int, count: int) -> Int64s:
    """The event numbers of a kind that has ``count`` positions in each cycle, from ``first`` on."""
    cycles = np.arange(model.block_cycles, dtype=np.int64) * model.cycle_events
    return np.repeat(cycles, count) + np.tile(np.arange(count) + first, model.block_cycles)


def _turns(model: Model, numbers: Int64s) -> tuple[Int64s | None, Int64s]:
    if model.out_of_order_group == 1:
        return None, numbers
    within = numbers % model.out_of_order_group
    turns = numbers - within + np.array([model.place(number) for number in range(model.out_of_order_group)])[within]
    order = np.argsort(turns)
    return order, turns[order]
