"""Measures recovery times: a query at a share of its maximum rate, kills spread evenly over the checkpoint interval.

A task of the source has one partition: the generator makes 50,000 events anew for each partition before a replacement
has its first event, which takes as long as the rest of the recovery.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from typing import Any

import click

from clonos_py.cli.options import resolved, setting_options
from clonos_py.cli.tables import show
from clonos_py.evaluation.nexmark.running import QueryRun, run_query
from clonos_py.evaluation.nexmark.steady import measure

_STEPS = {
    "detected": "detected_ms",
    "activated": "standby_activated_ms",
    "replayed": "replayed_ms",
    "new effect": "first_new_effect_ms",
    "restarted": "restarted_ms",
    "tasks": "tasks_restarted",
    "latency normal": "latency_normal_ms",
    "rows replayed": "rows_replayed",
}
_WORST = ("first_new_effect_ms", "latency_normal_ms", "rows_replayed")
_BETWEEN_S = 4.0
"""The shortest time between two kills of a run: the job has recovered, and a new standby has its state."""


def kill_times_s(kills: int, interval_s: float) -> list[float]:
    """When to kill in one run, from its third checkpoint interval on. The times are spread evenly over the interval:
    within one interval if it is long enough, else over as many as there are kills."""
    apart = 0 if interval_s / kills >= _BETWEEN_S else math.ceil(_BETWEEN_S / interval_s)
    return [interval_s * (2 + kill * apart + (kill + 0.5) / kills) for kill in range(kills)]


def rows(
    query: str, operators: Sequence[str], kills: int, pace: int, given: dict[str, Any]
) -> Iterator[tuple[str, ...]]:
    """One line of the table for each operator that is killed."""
    interval_s = resolved({}, given).checkpoint_interval_us / 1e6
    times_s = kill_times_s(kills, interval_s)
    for operator in operators:
        settings = resolved({"parallelism": 2, "kills": [f"{operator}@{at_s:g}s" for at_s in times_s]}, given)
        events = int(pace * (times_s[-1] + max(interval_s, 2 * _BETWEEN_S)))
        made = run_query(QueryRun(query, events, rate=pace, partitions=1), settings)
        failures = made["failures"]
        medians = (_shown(statistics.median, failures, key) for key in _STEPS.values())
        worst = (_shown(max, failures, key) for key in _WORST)
        yield operator, str(len(failures)), *medians, *worst, str(made["rollbacks"])


def run(query: str, operators: tuple[str, ...], kills: int, rate: int | None, load: float, **given: Any) -> None:
    """Measures and prints."""
    calm = resolved({"parallelism": 2}, given)
    pace = rate or int(measure(query, 15, calm)["throughput"]["steady_events_per_s"] * load)
    title = f"Recovery, {query} at {pace:,} events/s, milliseconds after the kill, medians, and the worst of {kills}"
    heads = ("killed", "failures", *_STEPS, "worst new effect", "worst latency normal", "most rows", "rollbacks")
    show(title, heads, rows(query, operators, kills, pace, given))


def _shown(of: Any, failures: list[dict[str, Any]], key: str) -> str:
    found = [failure[key] for failure in failures if failure[key] is not None]
    return f"{of(found):,.0f}" if found else "-"


command = click.Command(
    "recovery",
    callback=run,
    params=[
        click.Option(["--query"], default="q3", show_default=True, help="The query."),
        click.Option(
            ["operators", "--operator"],
            multiple=True,
            default=("join[0]", "source-nexmark[0]"),
            show_default=True,
            help="An instance to kill; may be given several times, with a run for each.",
        ),
        click.Option(["--kills"], type=click.IntRange(1), default=10, show_default=True, help="Kills per operator."),
        click.Option(["--rate"], type=int, help="Events per second; a share of the measured maximum without."),
        click.Option(
            ["--load"],
            type=click.FloatRange(0, 1, min_open=True),
            default=0.5,
            show_default=True,
            help="The share of the measured maximum, without --rate.",
        ),
        *setting_options(
            "parallelism",
            "runtime",
            "protocol",
            "guarantee",
            "sharing_depth",
            "checkpoint_interval",
            "spill",
            "standby_feed",
        ),
    ],
    help="Milliseconds from the kill to each step of the recovery.",
)
