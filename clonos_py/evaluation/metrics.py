"""Figures that reports, traces and benchmarks share: throughput in steady state, latency, time per checkpoint. Pure.

The definitions of restart, recovery and overhead are in ``observe/definitions.py``. ``recovery.py`` finds when latency
is normal again.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from clonos_py.observe.events import Measured, Progress
from clonos_py.observe.metrics import LatencyHistogram, LatencyTotals

WARM_UP_US = 2_000_000
PERCENTS = (50, 95, 99, 99.9)
_SECOND_US = 1_000_000


# ---- throughput


class RateSample(NamedTuple):
    """The events that all sources have read until a time, and the CPU time of all task processes until then (0 if tasks
    have no processes of their own)."""

    at_us: int
    events: int
    cpu_us: int = 0


def samples(progress: Iterable[tuple[int, Progress]], sources: Collection[str]) -> list[RateSample]:
    """The events that the vertices ``sources`` had read at each (time, progress)."""
    return [
        RateSample(at_us, sum(v.rows_in for v in found.vertices if v.vertex in sources), found.cpu_us)
        for at_us, found in progress
    ]


def reading(samples: Sequence[RateSample], since_us: int) -> Sequence[RateSample]:
    """The samples from a time to the last one before reading stopped; none if there is only one."""
    found = [a for a, b in itertools.pairwise(samples) if b.events > a.events and a.at_us >= since_us]
    return found if len(found) > 1 else []


def throughput(samples: Sequence[RateSample], deployed_us: int) -> dict[str, Any]:
    """Events per second: in steady state, and in each second after deployment. Steady state is the time from the
    warm-up to the last sample before reading stopped. A run too short for that counts as a whole, from its deployment,
    or from its start if everything was read by then."""
    measured = _steady(samples, deployed_us)
    return {
        "events": samples[-1].events if samples else 0,
        "steady_events_per_s": events_per_s(measured),
        "steady_seconds": round((measured[-1].at_us - measured[0].at_us) / 1e6, 3) if measured else 0.0,
        "per_second": [round(rate) for rate in _per_second(_since(samples, deployed_us))],
    }


def cpu_us_per_event(samples: Sequence[RateSample], deployed_us: int) -> float | None:
    """CPU time of all task processes per event in steady state; None if tasks have no processes of their own, or no
    reads were measured."""
    measured = _steady(samples, deployed_us)
    if not measured or measured[-1].cpu_us == measured[0].cpu_us or measured[-1].events == measured[0].events:
        return None
    return (measured[-1].cpu_us - measured[0].cpu_us) / (measured[-1].events - measured[0].events)


def events_per_s(samples: Sequence[RateSample]) -> float:
    """The rate from the first sample to the last; 0 if they are at the same time."""
    if len(samples) < 2 or samples[-1].at_us == samples[0].at_us:
        return 0.0
    return round((samples[-1].events - samples[0].events) / (samples[-1].at_us - samples[0].at_us) * 1e6, 1)


def _steady(samples: Sequence[RateSample], deployed_us: int) -> Sequence[RateSample]:
    read = _since(samples, deployed_us)
    whole = read if any(b.events > a.events for a, b in itertools.pairwise(read)) else samples
    return reading(read, deployed_us + WARM_UP_US) or whole


def _since(samples: Sequence[RateSample], deployed_us: int) -> Sequence[RateSample]:
    return [sample for sample in samples if sample.at_us >= deployed_us]


def _per_second(samples: Sequence[RateSample]) -> Iterator[float]:
    """The rate of each second, between the first samples of consecutive seconds."""
    begin = samples[0].at_us if samples else 0
    firsts = [next(group) for _, group in itertools.groupby(samples, lambda s: (s.at_us - begin) // _SECOND_US)]
    yield from (events_per_s(pair) for pair in itertools.pairwise(firsts))


# ---- latency


class LatencyMarkers:
    """The latencies that processes have reported, each with the time of the report in microseconds."""

    def __init__(self, reported: Iterable[Measured] = ()) -> None:
        self._totals = LatencyTotals()
        self.found: list[tuple[int, LatencyHistogram]] = []
        for event in reported:
            self.take(event)

    def take(self, event: Measured) -> None:
        for report in event.readings:
            new = self._totals.new(report.process, report.counters.latency)
            if new.total:
                self.found.append((report.at_us, new))

    def between(self, begin_us: float, end_us: float = math.inf) -> LatencyHistogram:
        merged = LatencyHistogram()
        for at_us, found in self.found:
            if begin_us <= at_us < end_us:
                merged.merge(found)
        return merged

    def per_second(self, begin_us: int = 0, end_us: float = math.inf) -> list[dict[str, float]]:
        """The percentiles of each second in which markers arrived, with its number since ``begin_us``."""
        by_second: dict[int, LatencyHistogram] = {}
        for at_us, found in self.found:
            if begin_us <= at_us < end_us:
                by_second.setdefault((at_us - begin_us) // _SECOND_US, LatencyHistogram()).merge(found)
        return [
            {"at_s": second, **{name: ms for name, ms in percentiles_ms(found).items() if ms is not None}}
            for second, found in sorted(by_second.items())
        ]


def percentiles_ms(histogram: LatencyHistogram | None) -> dict[str, float | None]:
    """Percentiles in milliseconds; None if no marker arrived."""
    found = {percent: histogram.percentile_us(percent) if histogram else None for percent in PERCENTS}
    return {f"p{percent:g}": None if us is None else us / 1000 for percent, us in found.items()}


# ---- checkpoints and failures


def durations_ms(durations: Sequence[float]) -> dict[str, float | None]:
    """The median and the longest time of checkpoints; None if there are none."""
    return {"median_ms": statistics.median(durations) if durations else None, "max_ms": max(durations, default=None)}


def slowest_ms(failures: Iterable[Mapping[str, Any]], step: str) -> float | None:
    """The longest time to a step of the recovery; None if no failure has it."""
    return max((failure[step] for failure in failures if failure[step] is not None), default=None)
