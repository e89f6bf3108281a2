"""What fault tolerance costs, in CPU seconds per event of all task processes together, in steady state.

The settings of a query are run in turn, many times, so that whatever else the machine does hits all alike; of each turn
the ratio counts, and of the ratios the median. 1.00 would be for free. Steady state matters: memory that a process
touches for the first time costs more than the protocol, and retained frames live in recycled memory only after the
first checkpoints.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from typing import Any

import click

from clonos_py.bench.nexmark.running import Order, run_query
from clonos_py.bench.tables import show
from clonos_py.cli.options import resolved, setting_options
from clonos_py.dsl.settings import Settings

_FULL: dict[str, Any] = {"sharing_depth": "full"}
_WITHOUT_LOG: dict[str, Any] = {"sharing_depth": "0"}
_WITHOUT_RETENTION: dict[str, Any] = {"guarantee": "at-most-once"}
_AGAINST = {
    "sharing depth full against 0": _WITHOUT_LOG,
    "exactly-once against at-most-once": _WITHOUT_RETENTION,
}
_REGENERATING: dict[str, Any] = {"sharing_depth": "full", "spill": "regenerate"}
_COMPARISONS = {
    "q5": tuple(_AGAINST),
    "q8": tuple(_AGAINST),
    "chain": tuple(_AGAINST)[:1],
    "wide_chain": tuple(_AGAINST),
    **dict.fromkeys(("rebalanced", "rebalanced_q1", "rebalanced_q2"), tuple(_AGAINST)[1:]),
}
_REGENERATED = ("rebalanced", "rebalanced_q1", "rebalanced_q2")
"""Measured with sources that make their frames again instead of keeping them."""
_PROBE_EVENTS = 20_000_000


def cost(query: str, events: int, settings: Settings) -> float:
    """CPU microseconds per event of one run."""
    found: float | None = run_query(Order(query, events), settings)["cpu_us_per_event"]
    if found is None:
        raise click.ClickException(f"{events:,} events of {query} end before there is a steady state: measure longer")
    return found


def compare(query: str, seconds: float, turns: int, settings: list[Settings]) -> list[list[float]]:
    """The costs of all settings, turn by turn, in runs of about so many seconds. Who begins alternates."""
    probe = run_query(Order(query, _PROBE_EVENTS), settings[0])
    events = int(probe["throughput"]["steady_events_per_s"] * seconds)
    found = []
    for turn in range(turns):
        order = list(range(len(settings)))[:: -1 if turn % 2 else 1]
        costs = {number: cost(query, events, settings[number]) for number in order}
        found.append([costs[number] for number in range(len(settings))])
    return found


def rows(queries: tuple[str, ...], seconds: float, turns: int, given: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    """A line of the table for each comparison."""
    for query in queries:
        names = _COMPARISONS[query]
        changes = [_REGENERATING if query in _REGENERATED else _FULL, *(_AGAINST[name] for name in names)]
        settings = [
            resolved({"parallelism": 2, "standbys": 0, "checkpoint_interval": "2s"}, {**given, **changed})
            for changed in changes
        ]
        costs = compare(query, seconds, turns, settings)
        for number, name in enumerate(names, 1):
            low, middle, high = statistics.quantiles((turn[number] / turn[0] for turn in costs), n=4)
            medians = [f"{statistics.median(turn[side] for turn in costs):.4f}" for side in (0, number)]
            yield query, name, *medians, f"{middle:.3f}", f"{low:.3f} to {high:.3f}"


def run(queries: tuple[str, ...], seconds: float, pairs: int, **given: Any) -> None:
    """Measures and prints."""
    from clonos_py.runtime.ray.cluster import connected

    unknown = [query for query in queries if query not in _COMPARISONS]
    if unknown:
        raise click.BadParameter(f"{unknown[0]} is not compared: choose of {', '.join(_COMPARISONS)}")
    headings = ("query", "comparison", "us/event", "us/event", "efficiency", "quartiles")
    with connected(None):  # one Ray for all runs
        show(f"CPU time, {pairs} pairs", headings, rows(queries or tuple(_COMPARISONS), seconds, pairs, given))


command = click.Command(
    "overhead",
    callback=run,
    params=[
        click.Argument(["queries"], nargs=-1),
        click.Option(["--seconds"], type=float, default=8.0, show_default=True, help="How long each run reads events."),
        click.Option(["--pairs"], type=click.IntRange(2), default=15, show_default=True, help="Runs of each setting."),
        *setting_options("parallelism", "checkpoint_interval"),
    ],
    help="CPU seconds per event with and without causal logging, and against at-most-once; checkpoints every 2 s.",
)
