"""Which event times a source has read: for people, who are warned of those that cannot be meant."""

from __future__ import annotations

from clonos_py.model.counters import EventTimesRead

_WORTH_US = 1_000_000
"""What is told again only when it has grown by so much."""


class TimeExtents:
    """By source or operator, and column."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, str], EventTimesRead] = {}
        self._told: dict[tuple[str, str], EventTimesRead] = {}

    def add(self, source: str, column: str, earliest_us: int, latest_us: int) -> None:
        """Rows have been read with these times."""
        before = self._seen.get((source, column))
        if before is not None:
            earliest_us, latest_us = min(before.earliest_us, earliest_us), max(before.latest_us, latest_us)
        self._seen[source, column] = EventTimesRead(source, column, earliest_us, latest_us)

    def told(self) -> list[EventTimesRead]:
        """Those that have grown since they were told last."""
        grown = {key: seen for key, seen in self._seen.items() if self._has_grown(key, seen)}
        self._told |= grown
        return list(grown.values())

    def _has_grown(self, key: tuple[str, str], seen: EventTimesRead) -> bool:
        told = self._told.get(key)
        if told is None:
            return True
        return told.earliest_us - seen.earliest_us >= _WORTH_US or seen.latest_us - told.latest_us >= _WORTH_US
