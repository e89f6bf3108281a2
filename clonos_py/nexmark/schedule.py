"""When a paced source's events are due, and how a source remembers when its schedule began.

A task that dies and is replaced must catch up with its schedule, not begin a new one. So the beginning is part of the
offsets: it stands in their high bits, and thereby in the log of the reads and in every snapshot.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from clonos_py.nexmark.tempo import Tempo

_YEAR_2020_US = 1_577_836_800_000_000
_TENTH_US = 100_000
_EVENT_BITS = 31
_PIECES_MAX = 5
"""Who catches up with its schedule reads at most so many pieces at once, a tenth of a second of it. Each read may send
a latency marker; without those that fell due meanwhile, percentiles would forget most of the delay."""

MOST_EVENTS = 2**_EVENT_BITS - 1
"""Of one partition of a paced source."""


class SourcePosition(NamedTuple):
    """Where a partition stands: how many of its events were read, and since when (0: not begun, or without a pace) in
    tenths of a second since 2020. Tasks that begin within the same tenth have the same schedule."""

    events: int
    began: int = 0

    @property
    def offset(self) -> int:
        """For a partition without a pace simply the number of events."""
        return self.began << _EVENT_BITS | self.events

    @staticmethod
    def at(offset: int, paced: bool) -> SourcePosition:
        return SourcePosition(offset & MOST_EVENTS, offset >> _EVENT_BITS) if paced else SourcePosition(offset)

    def begun(self, now_us: int) -> SourcePosition:
        """With a schedule, which begins at the next tenth of a second unless it has begun already."""
        return self if self.began else SourcePosition(self.events, -((_YEAR_2020_US - now_us) // _TENTH_US))

    @property
    def began_us(self) -> int:
        return _YEAR_2020_US + self.began * _TENTH_US


@dataclass(frozen=True)
class Pace:
    """Of one partition, which gets every ``share``-th event: event time, ``slower`` so many times. It is read in pieces
    of at least ``piece_us``."""

    tempo: Tempo
    share: int
    slower: float
    piece_us: int = 20_000

    @cached_property
    def piece_events(self) -> int:
        return max(round(self.piece_us * max(self.tempo.rates) / (1_000_000 * self.share * self.slower)), 1)

    def due_us(self, place: SourcePosition, stop: int) -> int:
        """When the first piece of the events from ``place`` to ``stop`` is to be read."""
        last = min(place.events + self.piece_events, stop)
        return place.began_us + round(self.tempo.due_us(last * self.share) * self.slower)

    def due_events(self, place: SourcePosition, now_us: int) -> int:
        """Up to which event the partition may be read now."""
        due = int(self.tempo.events_until((now_us - place.began_us) / self.slower) / self.share)
        return min(due, place.events + _PIECES_MAX * self.piece_events)
