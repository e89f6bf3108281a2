"""Warns of implausible event times: before 1990, or more than a day ahead of the clock. The usual cause is a unit other
than the job declares.

The run's driver compares the times that sources have read with the clock. It does so outside of tasks, so nothing in a
job depends on it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta

from clonos_py.model.counters import EventTimesRead
from clonos_py.observe.events import ImplausibleEventTimes

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_EARLIEST_US = 631_152_000_000_000
"""1990-01-01."""
_DAY_US = 86_400_000_000
_FACTORS = {"s": 1_000_000.0, "ms": 1_000.0, "ns": 0.001}


class TimeWatch:
    """Finds implausible event times, and warns once for each source."""

    def __init__(self) -> None:
        self._warned: set[str] = set()

    def warnings(self, read: Iterable[EventTimesRead], now_us: int) -> Iterator[ImplausibleEventTimes]:
        for times in read:
            value_us = _implausible(times, now_us)
            if value_us is not None and times.source not in self._warned:
                self._warned.add(times.source)
                reason = _reason(times, value_us, now_us)
                yield ImplausibleEventTimes(source=times.source, column=times.column, value_us=value_us, reason=reason)


def _implausible(times: EventTimesRead, now_us: int) -> int | None:
    if times.earliest_us < _EARLIEST_US:
        return times.earliest_us
    return times.latest_us if times.latest_us > now_us + _DAY_US else None


def _reason(times: EventTimesRead, value_us: int, now_us: int) -> str:
    when = "before 1990" if value_us < _EARLIEST_US else "more than a day ahead of the clock"
    likely = [unit for unit, factor in _FACTORS.items() if _EARLIEST_US <= value_us * factor <= now_us + _DAY_US]
    unit = likely[0] if likely else "ms"
    guess = f"it is probably in {_NAMES[unit]}" if likely else "usually its unit is another one"
    return (
        f"source {times.source!r}: event time {times.column!r} is {_shown(value_us)}, {when}: {guess}; declare "
        f"{times.column}: Annotated[datetime, Epoch({unit!r})], or bring the column to microseconds UTC"
    )


_NAMES = {"s": "seconds", "ms": "milliseconds", "ns": "nanoseconds"}


def _shown(value_us: int) -> str:
    try:
        return f"{_EPOCH + timedelta(microseconds=value_us):%Y-%m-%d %H:%M:%S}"
    except OverflowError:
        return f"in the year {1970 + value_us // (365 * _DAY_US):,}"
