"""Computes rates in steady state from samples of the events read, in the same way for all engines, and their ratios.

The clock of a run starts when the first event is seen to be read. So starting processes, planning and deploying do not
count. Neither does the warm-up that follows, in which the JVM compiles and memory is touched for the first time. It
lasts a given number of seconds, but at most half of the run. The time from its end to the last sample with new events
counts.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from clonos_py.evaluation.metrics import RateSample


@dataclass(frozen=True)
class Rate:
    """The rate of a run in steady state. ``seconds``: the time that counts. ``checkpoints``: how many completed."""

    events_per_s: float
    seconds: float
    checkpoints: int = 0


def steady(samples: Sequence[RateSample], warm_up_s: float, checkpoints: int = 0) -> Rate:
    """The rate of a run. Raises ValueError if no two samples show that events were read."""
    reading = [a for a, b in itertools.pairwise(samples) if b.events > a.events]
    ends = [b for a, b in itertools.pairwise(samples) if b.events > a.events]
    if not reading:
        raise ValueError("no events were seen read")
    began, last = reading[0].at_us, ends[-1]
    warm_us = began + min(warm_up_s * 1e6, (last.at_us - began) / 2)
    first = next((sample for sample in samples if sample.at_us >= warm_us), reading[-1])
    if first.at_us >= last.at_us:
        first = reading[-1]
    seconds = (last.at_us - first.at_us) / 1e6
    return Rate((last.events - first.events) / seconds, seconds, checkpoints)


def median(rates: Iterable[Rate]) -> Rate:
    """The run with the median rate (the lower of the two middle ones)."""
    ordered = sorted(rates, key=lambda rate: rate.events_per_s)
    return ordered[(len(ordered) - 1) // 2]


def geometric_mean(ratios: Iterable[float]) -> float:
    """The geometric mean, in which twice and half cancel out. NaN if there are no ratios."""
    logarithms = [math.log(ratio) for ratio in ratios]
    return math.exp(statistics.fmean(logarithms)) if logarithms else math.nan


@dataclass(frozen=True)
class RateComparison:
    """All runs of all engines (``runs[query][engine]``), to compare the first engine with each of the others."""

    engines: tuple[str, ...]
    runs: dict[str, dict[str, list[Rate]]]
    failures: list[str] = field(default_factory=list)

    def middle(self, query: str, engine: str) -> Rate | None:
        """The median of an engine's runs of a query, or None if there is no run."""
        rates = self.runs[query].get(engine)
        return median(rates) if rates else None

    def ratio(self, query: str, other: str) -> float | None:
        """The rate of the first engine divided by that of another. None if one of them has no run."""
        ours, theirs = self.middle(query, self.engines[0]), self.middle(query, other)
        return ours.events_per_s / theirs.events_per_s if ours and theirs else None

    def ratios(self, other: str) -> dict[str, float]:
        """The ratios by query, for queries that both engines have run."""
        found = {query: self.ratio(query, other) for query in self.runs}
        return {query: ratio for query, ratio in found.items() if ratio is not None}

    def headings(self) -> tuple[str, ...]:
        others = (heading for other in self.engines[1:] for heading in (other, "ratio"))
        return "query", f"{self.engines[0]}, M events/s", *others

    def line(self, query: str) -> tuple[str, ...]:
        """The line of a query in the table."""
        cells = [_millions(self.middle(query, self.engines[0]))]
        for other in self.engines[1:]:
            ratio = self.ratio(query, other)
            cells += [_millions(self.middle(query, other)), "" if ratio is None else f"{ratio:.1f}"]
        return query, *cells

    def mean_line(self) -> tuple[str, ...]:
        """The last line: the geometric means of the ratios."""
        means = (geometric_mean(self.ratios(other).values()) for other in self.engines[1:])
        return (
            "geometric mean",
            "",
            *(cell for mean in means for cell in ("", "" if math.isnan(mean) else f"{mean:.1f}")),
        )

    def plain(self) -> dict[str, Any]:
        """All rates, failures and ratios as plain data for JSON."""
        return {
            "queries": {
                query: {engine: [asdict(rate) for rate in rates] for engine, rates in engines.items()}
                for query, engines in self.runs.items()
            },
            "failures": self.failures,
            "ratios": {other: self.ratios(other) for other in self.engines[1:]},
            "geometric_means": {
                other: geometric_mean(ratios.values()) for other in self.engines[1:] if (ratios := self.ratios(other))
            },
        }


def _millions(rate: Rate | None) -> str:
    return "" if rate is None else f"{rate.events_per_s / 1e6:.2f}"
