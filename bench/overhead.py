"""What fault tolerance costs, in CPU seconds per event of all processes together.

Two settings are run in turn, many times, so that whatever else the machine does hits both alike; of each pair the
ratio counts, and of the ratios the median. 1.00 would be for free.
"""

from __future__ import annotations

import resource
import statistics
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import click

from clonos_py.bench.nexmark.running import Order, run_query
from clonos_py.bench.tables import show
from clonos_py.cli.options import resolved, setting_options
from clonos_py.dsl.settings import Runtime, Settings

_LOGGING = ({"sharing_depth": "full"}, {"sharing_depth": "0"})
_GUARANTEE = ({"guarantee": "exactly-once"}, {"guarantee": "at-most-once"})
Comparisons = tuple[tuple[str, str, tuple[dict[str, Any], dict[str, Any]]], ...]
_COMPARISONS: Comparisons = (
    *((query, "sharing depth full against 0", _LOGGING) for query in ("q5", "q8", "chain", "wide_chain")),
    *((query, "exactly-once against at-most-once", _GUARANTEE) for query in ("q5", "q8", "wide_chain")),
)


def cost(query: str, events: int, settings: Settings) -> float:
    """CPU microseconds per event of one run: of the task processes on Ray, of this process on other runtimes."""
    before = _own_cpu_us()
    made = run_query(Order(query, events), settings)
    found: float | None = made["cpu_us_per_event"]
    return (_own_cpu_us() - before) / events if found is None else found


def _own_cpu_us() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return (used.ru_utime + used.ru_stime) * 1e6


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


def rows(comparisons: Comparisons, events: int, pairs: int, given: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    """A line of the table for each comparison."""
    for query, name, changes in comparisons:
        settings = [resolved({"parallelism": 2, "standbys": 0}, {**given, **changed}) for changed in changes]
        costs = compare(query, events, pairs, *settings)
        low, middle, high = statistics.quantiles((without / cost for cost, without in costs), n=4)
        medians = [f"{statistics.median(side):.3f}" for side in zip(*costs, strict=True)]
        yield query, name, *medians, f"{middle:.3f}", f"{low:.3f} to {high:.3f}"


def run(queries: tuple[str, ...], events: int, pairs: int, **given: Any) -> None:
    """Measures and prints."""
    headings = ("query", "comparison", "us/event", "us/event", "efficiency", "quartiles")
    wanted = tuple(c for c in _COMPARISONS if not queries or c[0] in queries)
    with ExitStack() as stack:
        if resolved({}, given).runtime is Runtime.RAY:
            from clonos_py.runtime.ray.cluster import connected

            stack.enter_context(connected(None))  # one Ray for all runs
        show(f"CPU time, {pairs} pairs of {events:,} events", headings, rows(wanted, events, pairs, given))


command = click.Command(
    "overhead",
    callback=run,
    params=[
        click.Argument(["queries"], nargs=-1),
        click.Option(["--events"], type=int, default=20_000_000, show_default=True, help="Events of each run."),
        click.Option(["--pairs"], type=click.IntRange(2), default=15, show_default=True, help="Runs of each setting."),
        *setting_options("parallelism", "runtime", "checkpoint_interval"),
    ],
    help="CPU seconds per event with and without causal logging, and against at-most-once.",
)
