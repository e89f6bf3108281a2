"""Measures latency at half load: each query runs at half of its unpaced throughput, which is measured right before.

Latency counts from the time at which an event was due, so a source that falls behind makes it worse.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from clonos_py.cli.options import resolved, setting_options
from clonos_py.cli.tables import show
from clonos_py.evaluation.nexmark.running import QueryRun, run_query
from clonos_py.evaluation.nexmark.steady import measure
from clonos_py.settings.definitions import Settings

_ALL = ("q1", "q3", "q8")
_UNPACED_S = 8.0


def rows(queries: tuple[str, ...], seconds: float, settings: Settings) -> Iterator[tuple[str, ...]]:
    """One line of the table for each query."""
    for query in queries:
        most = measure(query, _UNPACED_S, settings)["throughput"]["steady_events_per_s"]
        made = run_query(QueryRun(query, int(most / 2 * seconds), rate=most / 2), settings)
        steady, whole = made["latency_steady_ms"], made["latency_ms"]
        yield (
            query,
            f"{most / 1e6:.2f}",
            f"{most / 2e6:.2f}",
            *(_ms(steady[name]) for name in ("p50", "p95", "p99", "p99.9")),
            _ms(whole["p99"]),
            _ms(made["checkpoints"]["median_ms"]),
        )


def _ms(value: float | None) -> str:
    return "" if value is None else f"{value:.0f} ms"


def run(queries: tuple[str, ...], seconds: float, **given: Any) -> None:
    """Measures and prints."""
    settings = resolved({"parallelism": 2}, given)
    headings = ("query", "M events/s", "half", "p50", "p95", "p99", "p99.9", "p99 with warm-up", "checkpoint")
    show(
        f"Latency at half load, parallelism {settings.parallelism}", headings, rows(queries or _ALL, seconds, settings)
    )


command = click.Command(
    "latency",
    callback=run,
    params=[
        click.Argument(["queries"], nargs=-1),
        click.Option(
            ["--seconds"],
            type=click.FloatRange(min=5.0),
            default=40.0,
            show_default=True,
            help="How long to measure each.",
        ),
        *setting_options("parallelism", "runtime", "sharing_depth", "guarantee", "checkpoint_interval", "linger"),
    ],
    help=f"Latency of QUERIES at half of what they process unpaced; without any: {', '.join(_ALL)}.",
)
