"""What fault tolerance costs, in CPU seconds per event of all processes together.

Two settings are run in turn, many times, so that whatever else the machine does hits both alike; of each pair the
ratio counts, and of the ratios the median. 1.00 would be for free.
"""

from __future__ import annotations

import os
import resource
import statistics
from collections.abc import Iterator
from typing import Any

import click

from clonos_py.bench.nexmark.running import Order, run_query
from clonos_py.bench.tables import show
from clonos_py.cli.options import resolved, setting_options
from clonos_py.dsl.settings import Runtime, Settings

_LOGGING = ({"sharing_depth": "full"}, {"sharing_depth": "0"})
_GUARANTEE = ({"guarantee": "exactly-once"}, {"guarantee": "at-most-once"})
_COMPARISONS: tuple[tuple[str, str, tuple[dict[str, Any], dict[str, Any]]], ...] = (
    *((query, "sharing depth full against 0", _LOGGING) for query in ("q5", "q8", "chain", "wide_chain")),
    *((query, "exactly-once against at-most-once", _GUARANTEE) for query in ("q5", "q8", "wide_chain")),
)


def cpu_seconds(settings: Settings) -> float:
    """CPU seconds spent until now: of this process, or of the whole machine where tasks run in processes of Ray."""
    if settings.runtime is not Runtime.RAY:
        used = resource.getrusage(resource.RUSAGE_SELF)
        return used.ru_utime + used.ru_stime
    with open("/proc/stat", encoding="ascii") as stat:
        user, nice, system, *_ = map(int, stat.readline().split()[1:])
    return (user + nice + system) / os.sysconf("SC_CLK_TCK")


def cost(query: str, events: int, settings: Settings) -> float:
    """CPU microseconds per event of one run."""
    before = cpu_seconds(settings)
    run_query(Order(query, events), settings)
    return (cpu_seconds(settings) - before) / events * 1e6


def compare(query: str, events: int, pairs: int, first: Settings, second: Settings) -> list[tuple[float, float]]:
    """The costs of both settings, pair by pair; who begins alternates."""
    found = []
    for pair in range(pairs):
        if pair % 2:
            late, early = cost(query, events, second), cost(query, events, first)
            found.append((early, late))
        else:
            found.append((cost(query, events, first), cost(query, events, second)))
    return found


def rows(events: int, pairs: int, given: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    """A line of the table for each comparison."""
    for query, name, changes in _COMPARISONS:
        settings = [resolved({"parallelism": 2}, {**given, **changed}) for changed in changes]
        costs = compare(query, events, pairs, *settings)
        low, middle, high = statistics.quantiles((without / cost for cost, without in costs), n=4)
        medians = [f"{statistics.median(side):.3f}" for side in zip(*costs, strict=True)]
        yield query, name, *medians, f"{middle:.3f}", f"{low:.3f} to {high:.3f}"


def run(events: int, pairs: int, **given: Any) -> None:
    """Measures and prints."""
    headings = ("query", "comparison", "us/event", "us/event", "efficiency", "quartiles")
    show(f"CPU time, {pairs} pairs of {events:,} events", headings, rows(events, pairs, given))


command = click.Command(
    "overhead",
    callback=run,
    params=[
        click.Option(["--events"], type=int, default=20_000_000, show_default=True, help="Events of each run."),
        click.Option(["--pairs"], type=click.IntRange(2), default=15, show_default=True, help="Runs of each setting."),
        *setting_options("parallelism", "runtime", "checkpoint_interval"),
    ],
    help="CPU seconds per event with and without causal logging, and against at-most-once.",
)
