"""What fault tolerance costs, in CPU seconds per event of all task processes together, in steady state.

The settings of a query are run in turn, many times, so that whatever else the machine does hits all alike; of each turn
the ratio counts, and of the ratios the median. 1.00 would be for free. Steady state matters: memory that a process
touches for the first time costs more than the protocol, and retained frames live in recycled memory only after the
first checkpoints.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from typing import Any, TypeAlias

import click

from clonos_py.cli.options import resolved, setting_options
from clonos_py.cli.tables import show
from clonos_py.nexmark.running import QueryRun, run_query
from clonos_py.settings.definitions import Settings

_RUNS: dict[str, dict[str, Any]] = {
    "sharing depth full": {"sharing_depth": "full"},
    "sharing depth 1": {"sharing_depth": "1"},
    "sharing depth 0": {"sharing_depth": "0"},
    "regenerate": {"sharing_depth": "full", "spill": "regenerate"},
    "at-most-once": {"guarantee": "at-most-once"},
}
_Pair: TypeAlias = tuple[str, str]
"""What is measured, and against what."""
_LOG, _SHORT_LOG = ("sharing depth full", "sharing depth 0"), ("sharing depth 1", "sharing depth 0")
_GUARANTEE, _REGENERATING = ("sharing depth full", "at-most-once"), ("regenerate", "at-most-once")
_COMPARISONS: dict[str, tuple[_Pair, ...]] = {
    "q5": (_LOG, _GUARANTEE),
    "q8": (_LOG, _GUARANTEE),
    "chain": (_LOG, _SHORT_LOG),
    "wide_chain": (_LOG, _SHORT_LOG, _GUARANTEE),
    **dict.fromkeys(("rebalanced", "rebalanced_q1", "rebalanced_q2"), (_REGENERATING,)),
}
_PROBE_EVENTS = 20_000_000


def cost(query: str, events: int, settings: Settings) -> float:
    """CPU microseconds per event of one run."""
    found: float | None = run_query(QueryRun(query, events), settings)["cpu_us_per_event"]
    if found is None:
        raise click.ClickException(f"{events:,} events of {query} end before there is a steady state: measure longer")
    return found


def compare(query: str, seconds: float, turns: int, runs: dict[str, Settings]) -> list[dict[str, float]]:
    """The costs of all runs, turn by turn, each of about so many seconds. Who begins alternates."""
    names = list(runs)
    probe = run_query(QueryRun(query, _PROBE_EVENTS), runs[names[0]])
    events = int(probe["throughput"]["steady_events_per_s"] * seconds)
    orders = (names[:: -1 if turn % 2 else 1] for turn in range(turns))
    return [{name: cost(query, events, runs[name]) for name in order} for order in orders]


def rows(queries: tuple[str, ...], seconds: float, turns: int, given: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    """A line of the table for each comparison."""
    for query in queries:
        pairs = _COMPARISONS[query]
        fixed = {"parallelism": 2, "standbys": 0, "checkpoint_interval": "2s"}
        wanted = {name for pair in pairs for name in pair}
        runs = {name: resolved(fixed, {**given, **changed}) for name, changed in _RUNS.items() if name in wanted}
        costs = compare(query, seconds, turns, runs)
        for pair in pairs:
            ours, other = pair
            low, middle, high = statistics.quantiles((turn[other] / turn[ours] for turn in costs), n=4)
            medians = [f"{statistics.median(turn[name] for turn in costs):.4f}" for name in pair]
            yield query, f"{ours} against {other}", *medians, f"{middle:.3f}", f"{low:.3f} to {high:.3f}"


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
