"""Measures the cost of fault tolerance: CPU time per event of all task processes together, in steady state.

The settings of a query are run in turns, many times, so that other load on the machine affects all of them alike. Each
turn gives a ratio, and the result is the median of the ratios. A ratio of 1.00 means no cost. Only steady state counts:
the first touch of memory costs more than the protocol, and retained frames use recycled memory only after the first
checkpoints.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import click

from clonos_py.cli.options import resolved, setting_options
from clonos_py.cli.tables import show
from clonos_py.evaluation.nexmark.running import QueryRun, run_query
from clonos_py.settings.definitions import Settings
from clonos_py.settings.protocols import ALIGNED, INDUCED, PROTOCOL_NAMES, UNCOORDINATED

_RUNS: dict[str, dict[str, Any]] = {
    "sharing depth full": {"sharing_depth": "full"},
    "sharing depth 1": {"sharing_depth": "1"},
    "sharing depth 0": {"sharing_depth": "0"},
    "regenerate": {"sharing_depth": "full", "spill": "regenerate"},
    "at-most-once": {"guarantee": "at-most-once"},
    **{protocol: {"protocol": protocol} for protocol in PROTOCOL_NAMES},
}
_Pair: TypeAlias = tuple[str, str]
"""The run that is measured, and the run that it is compared with."""
_LOG, _SHORT_LOG = ("sharing depth full", "sharing depth 0"), ("sharing depth 1", "sharing depth 0")
_GUARANTEE, _REGENERATING = ("sharing depth full", "at-most-once"), ("regenerate", "at-most-once")
_ALONE = tuple((protocol.name, ALIGNED.name) for protocol in (UNCOORDINATED, INDUCED))
_COMPARISONS: dict[str, tuple[_Pair, ...]] = {
    "q3": _ALONE,
    "q5": (_LOG, _GUARANTEE),
    "q8": (_LOG, _GUARANTEE, *_ALONE),
    "q12": _ALONE,
    "chain": (_LOG, _SHORT_LOG, *_ALONE),
    "wide_chain": (_LOG, _SHORT_LOG, _GUARANTEE),
    "rebalanced": (_REGENERATING, *_ALONE),
    **dict.fromkeys(("rebalanced_q1", "rebalanced_q2"), (_REGENERATING,)),
}
_AGAINST = sorted({other for pairs in _COMPARISONS.values() for _, other in pairs})
Comparisons: TypeAlias = Mapping[str, Sequence[_Pair]]
_PROBE_EVENTS = 20_000_000


def cost(query: str, events: int, settings: Settings) -> float:
    """CPU microseconds per event of one run."""
    found: float | None = run_query(QueryRun(query, events), settings)["cpu_us_per_event"]
    if found is None:
        raise click.ClickException(f"{events:,} events of {query} end before there is a steady state: measure longer")
    return found


def compare(query: str, seconds: float, turns: int, runs: dict[str, Settings]) -> list[dict[str, float]]:
    """The costs of all runs, turn by turn. Each run lasts about ``seconds``. Every other turn reverses the order."""
    names = list(runs)
    probe = run_query(QueryRun(query, _PROBE_EVENTS), runs[names[0]])
    events = int(probe["throughput"]["steady_events_per_s"] * seconds)
    orders = (names[:: -1 if turn % 2 else 1] for turn in range(turns))
    return [{name: cost(query, events, runs[name]) for name in order} for order in orders]


def rows(comparisons: Comparisons, seconds: float, turns: int, given: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    """One line of the table for each comparison."""
    for query, pairs in comparisons.items():
        fixed = {"parallelism": 2, "standbys": 0, "checkpoint_interval": "2s"}
        chosen = {name for pair in pairs for name in pair}
        runs = {name: resolved(fixed, {**given, **changed}) for name, changed in _RUNS.items() if name in chosen}
        costs = compare(query, seconds, turns, runs)
        for pair in pairs:
            ours, other = pair
            low, middle, high = statistics.quantiles((turn[other] / turn[ours] for turn in costs), n=4)
            medians = [f"{statistics.median(turn[name] for turn in costs):.4f}" for name in pair]
            yield query, f"{ours} against {other}", *medians, f"{middle:.3f}", f"{low:.3f} to {high:.3f}"


def chosen(queries: Sequence[str], against: str | None) -> Comparisons:
    """The comparisons to make. ``queries``: only these, or all if empty. ``against``: only comparisons with this run,
    or with any if None. Raises BadParameter for a query that has no such comparison."""
    known = {query: [p for p in pairs if against in (None, p[1])] for query, pairs in _COMPARISONS.items()}
    known = {query: pairs for query, pairs in known.items() if pairs}
    if unknown := [query for query in queries if query not in known]:
        raise click.BadParameter(f"{unknown[0]} is not compared: choose from {', '.join(known)}")
    return {query: known[query] for query in queries or known}


def run(queries: tuple[str, ...], against: str | None, seconds: float, pairs: int, **given: Any) -> None:
    """Measures and prints."""
    from clonos_py.runtime.ray.cluster import connected

    comparisons = chosen(queries, against)
    headings = ("query", "comparison", "us/event", "us/event", "efficiency", "quartiles")
    with connected(None):  # one Ray for all runs
        show(f"CPU time, {pairs} pairs", headings, rows(comparisons, seconds, pairs, given))


command = click.Command(
    "overhead",
    callback=run,
    params=[
        click.Argument(["queries"], nargs=-1),
        click.Option(["--against"], type=click.Choice(_AGAINST), help="Only comparisons with this run."),
        click.Option(["--seconds"], type=float, default=8.0, show_default=True, help="How long each run reads events."),
        click.Option(["--pairs"], type=click.IntRange(2), default=15, show_default=True, help="Runs of each setting."),
        *setting_options("parallelism", "checkpoint_interval"),
    ],
    help="CPU seconds per event with and without causal logging, against at-most-once, and of checkpoints that tasks "
    "take alone against aligned ones; checkpoints every 2 s.",
)
