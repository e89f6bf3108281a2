"""Meters that read no clock: mergeable latency histograms, and rates over a sliding window.

Times are parameters (microseconds), so the same meters work with virtual and real time, and tests need not sleep.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping

_SUB_BUCKET_BITS = 6
LATENCY_WINDOW_US = 250_000
_WINDOWS_KEPT = 20


class LatencyHistogram:
    """Counts of durations in buckets that are 1/64 of a power of two wide: a percentile is at most 1.6% too high.

    The layout is that of HdrHistogram: durations below 128 us have a bucket each, then every doubling has 64.
    Histograms of several tasks merge without loss.
    """

    def __init__(self, counts: Mapping[int, int] | None = None) -> None:
        self._counts = dict(counts or {})

    @property
    def counts(self) -> dict[int, int]:
        """The counts by non-empty bucket, for transfer between processes. The constructor accepts them."""
        return dict(self._counts)

    @property
    def total(self) -> int:
        return sum(self._counts.values())

    def record(self, duration_us: int, times: int = 1) -> None:
        """Counts a duration. A negative one (from the clocks of two machines) counts as zero."""
        bucket = _bucket(max(duration_us, 0))
        self._counts[bucket] = self._counts.get(bucket, 0) + times

    def merge(self, other: LatencyHistogram) -> None:
        for bucket, times in other._counts.items():
            self._counts[bucket] = self._counts.get(bucket, 0) + times

    def since(self, earlier: LatencyHistogram) -> LatencyHistogram:
        """The durations recorded after ``earlier``, a former copy of this histogram."""
        times = {bucket: count - earlier._counts.get(bucket, 0) for bucket, count in self._counts.items()}
        return LatencyHistogram({bucket: count for bucket, count in times.items() if count > 0})

    def durations(self) -> Iterator[tuple[int, int]]:
        """(Upper end of a bucket in microseconds, count), in ascending order."""
        yield from ((_upper_end(bucket), self._counts[bucket]) for bucket in sorted(self._counts))

    def percentile_us(self, percent: float) -> int | None:
        """The upper end of the bucket that contains this percentile of the durations; None if there are none."""
        rank = self.total * percent / 100
        seen = 0
        for duration_us, times in self.durations():
            seen += times
            if seen >= rank:
                return duration_us
        return None


class WorstLatencies:
    """The highest latency of each window of time, of the last five seconds."""

    def __init__(self) -> None:
        self.windows: dict[int, int] = {}
        """By number of the window since the epoch of the clock. Windows without markers are left out."""

    def record(self, now_us: int, duration_us: int) -> None:
        number = now_us // LATENCY_WINDOW_US
        if number not in self.windows:
            self.windows = {n: worst for n, worst in self.windows.items() if n > number - _WINDOWS_KEPT}
        self.windows[number] = max(duration_us, self.windows.get(number, 0))


class LatencyTotals:
    """The newest histogram of each process, which reports what it has counted since its start."""

    def __init__(self) -> None:
        self._newest: dict[int, LatencyHistogram] = {}

    def new(self, process: int, counts: Mapping[int, int]) -> LatencyHistogram:
        """The durations that the process has counted since its last report. ``counts``: all, by bucket."""
        newest, earlier = LatencyHistogram(counts), self._newest.get(process, LatencyHistogram())
        self._newest[process] = newest
        return newest.since(earlier)


def _bucket(value: int) -> int:
    shift = max(value.bit_length() - _SUB_BUCKET_BITS - 1, 0)
    return (shift << _SUB_BUCKET_BITS) + (value >> shift)


def _upper_end(bucket: int) -> int:
    """The largest value of a bucket."""
    shift = max((bucket >> _SUB_BUCKET_BITS) - 1, 0)
    return ((bucket - (shift << _SUB_BUCKET_BITS) + 1) << shift) - 1


class RateMeter:
    """The rate at which a total grows, over the last ``window_us``."""

    def __init__(self, window_us: int = 2_000_000) -> None:
        self._window_us = window_us
        self._readings: deque[tuple[int, int]] = deque()

    def read(self, at_us: int, total: int) -> None:
        """Records the current total. A total that has decreased (after a rollback) starts a new window."""
        if self._readings and total < self._readings[-1][1]:
            self._readings.clear()
        self._readings.append((at_us, total))
        while len(self._readings) > 2 and self._readings[1][0] <= at_us - self._window_us:
            self._readings.popleft()

    @property
    def per_second(self) -> float:
        """The rate; zero until there are two readings."""
        if len(self._readings) < 2:
            return 0.0
        (first_us, first), (last_us, last) = self._readings[0], self._readings[-1]
        return (last - first) * 1_000_000 / (last_us - first_us) if last_us > first_us else 0.0
