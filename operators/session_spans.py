"""Sessions that are found row by row: for the rows behind their watermark, of keys with sessions that have ended."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field


@dataclass
class SessionSpan:
    """A session of one key: live sessions, by number, and rows that it is merged from."""

    start: int
    end: int
    numbers: list[int] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)

    def take(self, other: SessionSpan) -> None:
        self.start, self.end = min(self.start, other.start), max(self.end, other.end)
        self.numbers += other.numbers
        self.rows += other.rows


class SessionSpans:
    """The sessions of some keys."""

    def __init__(self, live: Sequence[Iterable[SessionSpan]]) -> None:
        """``live``: the live sessions of each key."""
        self._spans = [list(found) for found in live]

    def take(self, row: int, key: int, start: int, end: int, open_from: int) -> bool:
        """Adds a row, which alone is a session from ``start`` to ``end``, to the sessions that it meets and that do not
        end before ``open_from``. False if the row is late: there are none, and the row itself ends before that."""
        spans = self._spans[key]
        met = [span for span in spans if span.start <= end and start <= span.end and open_from <= span.end]
        if not met and end < open_from:
            return False
        merged = SessionSpan(start, end, rows=[row])
        for span in met:
            merged.take(span)
        self._spans[key] = [*(span for span in spans if all(span is not one for one in met)), merged]
        return True

    @property
    def changed(self) -> list[SessionSpan]:
        """The sessions that rows were added to."""
        return [span for spans in self._spans for span in spans if span.rows]
