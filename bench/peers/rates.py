"""From samples of what an engine has read to its rate in steady state, alike for all engines; and ratios of rates.

The clock of a run starts when the first event was seen read: starting processes, planning and deploying are left out.
Then a warm-up is left out, in which the JVM compiles and memory is touched for the first time: so many seconds, but at
most half of a run that reads everything before. The rest, up to the last sample that still saw events read, counts.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from clonos_py.nexmark.report import RateSample


@dataclass(frozen=True)
class Rate:
    """What a run came to in steady state, over how many seconds; ``checkpoints``: how many were complete."""

    events_per_s: float
    seconds: float
    checkpoints: int = 0


def steady(samples: Sequence[RateSample], warm_up_s: float, checkpoints: int = 0) -> Rate:
    """The rate of a run. Raises ValueError for one that read nothing between two samples."""
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
    """The run in the middle by its rate (the lower one of two)."""
    ordered = sorted(rates, key=lambda rate: rate.events_per_s)
    return ordered[(len(ordered) - 1) // 2]


def geometric_mean(ratios: Iterable[float]) -> float:
    """Of ratios, in which twice and half cancel each other; NaN of none."""
    logarithms = [math.log(ratio) for ratio in ratios]
    return math.exp(statistics.fmean(logarithms)) if logarithms else math.nan


@dataclass(frozen=True)
class RateComparison:
    """All runs of all engines: ``runs[query][engine]``, the first engine against each of the others."""

    engines: tuple[str, ...]
    runs: dict[str, dict[str, list[Rate]]]
    failures: list[str] = field(default_factory=list)

    def middle(self, query: str, engine: str) -> Rate | None:
        """The median of an engine's runs of a query; None where it has none."""
        rates = self.runs[query].get(engine)
        return median(rates) if rates else None

    def ratio(self, query: str, other: str) -> float | None:
        """How many times as many events the first engine reads in a second."""
        ours, theirs = self.middle(query, self.engines[0]), self.middle(query, other)
        return ours.events_per_s / theirs.events_per_s if ours and theirs else None

    def ratios(self, other: str) -> dict[str, float]:
        """By query, where both have run."""
        found = {query: self.ratio(query, other) for query in self.runs}
        return {query: ratio for query, ratio in found.items() if ratio is not None}

    def headings(self) -> tuple[str, ...]:
        others = (heading for other in self.engines[1:] for heading in (other, "ratio"))
        return "query", f"{self.engines[0]}, M events/s", *others

    def line(self, query: str) -> tuple[str, ...]:
        """A line of the table."""
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
        """Everything, as plain data for JSON."""
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
