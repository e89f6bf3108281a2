"""Finds when latency is normal again after a failure: within 10% of that before (CheckMate's recovery time). Pure.

Latency is measured in windows of a quarter of a second. The worst latency of a window counts, so that one slow channel
of many is not averaged away. If a task fails before the job has recovered from earlier failures, normal latency is that
before the first of these.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median
from typing import NamedTuple

from clonos_py.observe.normality import WINDOWS_GOOD, limit_us

WINDOW_US = 250_000
_BEFORE_US = 5_000_000


class LatencyWindow(NamedTuple):
    """The worst latency of the markers that arrived from ``at_us`` on."""

    at_us: int
    worst_us: int


class Healing(NamedTuple):
    """``normal_us``: the latency before a failure (the median of the windows' worst). ``worst_us``: the highest latency
    until it was normal again. ``recovered_us``: when it was. None: not known, or not within the trace."""

    normal_us: float | None
    worst_us: int | None
    recovered_us: int | None


def healings(failures: Sequence[tuple[int, int | None]], windows: Sequence[LatencyWindow]) -> Iterator[Healing]:
    """The recovery from each failure. ``failures``: (time of failure, time of first new effect), sorted by time;
    ``windows``: sorted by time."""
    begin_us: int | None = None
    recovered_us: int | None = None
    for failed_us, effect_us in failures:
        if begin_us is None or (recovered_us is not None and recovered_us <= failed_us):
            begin_us = failed_us
        before = [w.worst_us for w in windows if begin_us - _BEFORE_US <= w.at_us <= begin_us - WINDOW_US]
        normal_us = median(before) if before else None
        recovered_us = _recovered(limit_us(before), effect_us, windows) if before else None
        during = [w.worst_us for w in windows if failed_us <= w.at_us and w.at_us <= (recovered_us or w.at_us)]
        yield Healing(normal_us, max(during, default=None), recovered_us)


def _recovered(most_us: float, effect_us: int | None, windows: Sequence[LatencyWindow]) -> int | None:
    if effect_us is None:
        return None
    later = [w for w in windows if w.at_us >= effect_us]
    for first in range(len(later) - WINDOWS_GOOD + 1):
        if all(w.worst_us <= most_us for w in later[first : first + WINDOWS_GOOD]):
            return later[first].at_us
    return None
