"""The range of event times that a source has read. The user is warned of implausible ones."""

from __future__ import annotations

from clonos_py.model.counters import EventTimesRead

_REPORT_GROWTH_US = 1_000_000
"""A range is reported again only when it has grown by this much."""


class TimeExtents:
    """The earliest and latest event times, by source or operator, and column."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, str], EventTimesRead] = {}
        self._reported: dict[tuple[str, str], EventTimesRead] = {}

    def add(self, source: str, column: str, earliest_us: int, latest_us: int) -> None:
        """Adds the range of event times of new rows."""
        before = self._seen.get((source, column))
        if before is not None:
            earliest_us, latest_us = min(before.earliest_us, earliest_us), max(before.latest_us, latest_us)
        self._seen[source, column] = EventTimesRead(source, column, earliest_us, latest_us)

    def grown(self) -> list[EventTimesRead]:
        """The ranges that have grown since they were last reported."""
        grown = {key: seen for key, seen in self._seen.items() if self._has_grown(key, seen)}
        self._reported |= grown
        return list(grown.values())

    def _has_grown(self, key: tuple[str, str], seen: EventTimesRead) -> bool:
        reported = self._reported.get(key)
        if reported is None:
            return True
        return (
            reported.earliest_us - seen.earliest_us >= _REPORT_GROWTH_US
            or seen.latest_us - reported.latest_us >= _REPORT_GROWTH_US
        )
