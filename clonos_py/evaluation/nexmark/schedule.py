"""The schedule of a paced source: when its events are due, and how its start is stored.

The replacement of a failed task must catch up with the schedule, not start a new one. So the start of the schedule is
part of the offsets, in their high bits, and thus part of logged reads and of every snapshot.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from clonos_py.evaluation.nexmark.tempo import Tempo

_YEAR_2020_US = 1_577_836_800_000_000
_TENTH_US = 100_000
_EVENT_BITS = 31
_PIECES_MAX = 5
"""The most pieces that a source reads at once while it catches up with its schedule: a tenth of a second. Each read may
send a latency marker. Without the overdue markers, percentiles would miss most of the delay."""

MOST_EVENTS = 2**_EVENT_BITS - 1
"""The most events in one partition of a paced source."""


class SourcePosition(NamedTuple):
    """The position of a partition: the number of events read, and the start of its schedule in tenths of a second since
    2020 (0: not begun, or unpaced). Tasks that begin within the same tenth have the same schedule."""

    events: int
    began: int = 0

    @property
    def offset(self) -> int:
        """The offset. For an unpaced partition, this is the number of events."""
        return self.began << _EVENT_BITS | self.events

    @staticmethod
    def at(offset: int, paced: bool) -> SourcePosition:
        return SourcePosition(offset & MOST_EVENTS, offset >> _EVENT_BITS) if paced else SourcePosition(offset)

    def begun(self, now_us: int) -> SourcePosition:
        """The position with a schedule, which begins at the next tenth of a second unless it has begun already."""
        return self if self.began else SourcePosition(self.events, -((_YEAR_2020_US - now_us) // _TENTH_US))

    @property
    def began_us(self) -> int:
        return _YEAR_2020_US + self.began * _TENTH_US


@dataclass(frozen=True)
class Pace:
    """The pace of one partition, which gets one of ``share`` events. The schedule is event time stretched by the factor
    ``slower``. Events are read in pieces of at least ``piece_us``."""

    tempo: Tempo
    share: int
    slower: float
    piece_us: int = 20_000

    @cached_property
    def piece_events(self) -> int:
        return max(round(self.piece_us * max(self.tempo.rates) / (1_000_000 * self.share * self.slower)), 1)

    def due_us(self, place: SourcePosition, stop: int) -> int:
        """When the first piece of the events from ``place`` to ``stop`` is due."""
        last = min(place.events + self.piece_events, stop)
        return place.began_us + round(self.tempo.due_us(last * self.share) * self.slower)

    def due_events(self, place: SourcePosition, now_us: int) -> int:
        """The number of the event up to which the partition may be read now."""
        due = int(self.tempo.events_until((now_us - place.began_us) / self.slower) / self.share)
        return min(due, place.events + _PIECES_MAX * self.piece_events)
