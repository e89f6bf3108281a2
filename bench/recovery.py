"""Measures recovery times: query 3 at half of its maximum rate, kills spread evenly over the checkpoint interval."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from typing import Any

import click

from clonos_py.cli.options import resolved, setting_options
from clonos_py.cli.tables import show
from clonos_py.evaluation.nexmark.running import QueryRun, run_query
from clonos_py.evaluation.nexmark.steady import measure

_QUERY = "q3"
_OPERATORS = ("join[0]", "source-nexmark[0]")
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


def kill_times_s(kills: int, interval_s: float) -> list[float]:
    """The time of the kill in each run. Kills are spread evenly over the third checkpoint interval."""
    return [interval_s * (2 + (kill + 0.5) / kills) for kill in range(kills)]


def rows(kills: int, pace: int, given: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    """One line of the table for each operator that is killed."""
    for operator in _OPERATORS:
        failures, rollbacks = [], 0
        interval_s = resolved({}, given).checkpoint_interval_us / 1e6
        for at_s in kill_times_s(kills, interval_s):
            settings = resolved({"parallelism": 2, "kills": [f"{operator}@{at_s:g}s"]}, given)
            made = run_query(QueryRun(_QUERY, int(pace * interval_s * 4), rate=pace), settings)
            failures += made["failures"]
            rollbacks += made["rollbacks"]
        yield operator, *(_median(failures, key) for key in _STEPS.values()), str(rollbacks)


def run(kills: int, rate: int | None, **given: Any) -> None:
    """Measures and prints."""
    calm = resolved({"parallelism": 2}, given)
    pace = rate or int(measure(_QUERY, 15, calm)["throughput"]["steady_events_per_s"] / 2)
    title = f"Recovery, {_QUERY} at {pace:,} events/s, milliseconds after the kill, median of {kills}"
    show(title, ("killed", *_STEPS, "rollbacks"), rows(kills, pace, given))


def _median(failures: list[dict[str, Any]], key: str) -> str:
    found = [failure[key] for failure in failures if failure[key] is not None]
    return f"{statistics.median(found):,.0f}" if found else "-"


command = click.Command(
    "recovery",
    callback=run,
    params=[
        click.Option(["--kills"], type=click.IntRange(1), default=10, show_default=True, help="Runs per operator."),
        click.Option(["--rate"], type=int, help="Events per second; half of the measured maximum without."),
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
