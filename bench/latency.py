"""Measures latency at half load: each query runs at half of its unpaced throughput, which is measured right before; or
at a rate that is given.

Making events takes processors from the query, in steps of a hundredth of a second. Events that ``clonos nexmark
generate`` wrote cost less.

Latency counts from the time at which an event was due, so a source that falls behind makes it worse.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from clonos_py.cli.counts import Count
from clonos_py.cli.nexmark_options import events_from_option
from clonos_py.cli.options import resolved, setting_options
from clonos_py.cli.tables import show
from clonos_py.evaluation.nexmark.running import QueryRun, run_query
from clonos_py.evaluation.nexmark.steady import measure
from clonos_py.settings.definitions import Settings

_ALL = ("q1", "q3", "q8")
_UNPACED_S = 8.0


def rows(
    queries: tuple[str, ...], seconds: float, rate: float | None, events_from: Path | None, settings: Settings
) -> Iterator[tuple[str, ...]]:
    """One line of the table for each query. ``rate``: events per second; None for half of the throughput."""
    for query in queries:
        paced, most = (rate, "") if rate else _half(query, settings)
        made = run_query(QueryRun(query, int(paced * seconds), rate=paced, events_from=events_from), settings)
        steady, whole = made["latency_steady_ms"], made["latency_ms"]
        yield (
            query,
            most,
            f"{paced / 1e6:.2f}",
            *(_ms(steady[name]) for name in ("p50", "p95", "p99", "p99.9")),
            _ms(whole["p99"]),
            _ms(made["checkpoints"]["median_ms"]),
        )


def _half(query: str, settings: Settings) -> tuple[float, str]:
    """Half of the throughput in events per second, and all of it in millions."""
    most = measure(query, _UNPACED_S, settings)["throughput"]["steady_events_per_s"]
    return most / 2, f"{most / 1e6:.2f}"


def _ms(value: float | None) -> str:
    return "" if value is None else f"{value:.0f} ms"


def run(queries: tuple[str, ...], seconds: float, rate: float | None, events_from: Path | None, **given: Any) -> None:
    """Measures and prints. Raises UsageError for recorded events without a rate."""
    if events_from and rate is None:
        raise click.UsageError("--events-from needs --rate: the throughput is measured with generated events")
    settings = resolved({"parallelism": 2}, given)
    headings = ("query", "most, M/s", "rate, M/s", "p50", "p95", "p99", "p99.9", "p99 with warm-up", "checkpoint")
    found = rows(queries or _ALL, seconds, rate, events_from, settings)
    show(f"Latency, parallelism {settings.parallelism}", headings, found)


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
            help="How long to measure each. Recorded events last as long as they do.",
        ),
        click.Option(["--rate"], type=Count(), help="Events per second, instead of half of the throughput."),
        events_from_option(),
        *setting_options("parallelism", "runtime", "sharing_depth", "guarantee", "checkpoint_interval", "linger"),
    ],
    help=f"Latency of QUERIES at half of what they process unpaced, or at a rate; without any: {', '.join(_ALL)}.",
)
