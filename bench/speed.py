"""Measures the throughput of every query: events have all columns, results go into a blackhole (or a digest)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from clonos_py.cli.options import resolved, setting_options
from clonos_py.cli.tables import show
from clonos_py.evaluation.nexmark.jobs import QUERIES
from clonos_py.evaluation.nexmark.running import SinkKind
from clonos_py.evaluation.nexmark.steady import measure
from clonos_py.observe.units import bytes_text
from clonos_py.settings.definitions import Settings

_ALL = (*QUERIES, "row_function", "q0/digest", "rebalanced/digest")
"""Queries with a blackhole sink, or with the sink after the slash. A digest sink reads every byte of the rows."""


def rows(queries: tuple[str, ...], seconds: float, settings: Settings) -> Iterator[tuple[str, ...]]:
    """One line of the table for each query."""
    for query in queries:
        name, _, into = query.partition("/")
        sink = SinkKind(into) if into else SinkKind.BLACKHOLE
        made = measure(name, seconds, settings, sink)
        found, checkpoints = made["throughput"], made["checkpoints"]
        yield (
            f"{name} into a {sink.value}",
            f"{found['steady_events_per_s'] / 1e6:.2f}",
            f"{found['steady_seconds']:.0f} s",
            f"{checkpoints['completed']}",
            "" if checkpoints["median_ms"] is None else f"{checkpoints['median_ms']:.0f} ms",
            bytes_text(made["bytes"]["data"]),
            bytes_text(made["bytes"]["determinants"]),
        )


def run(queries: tuple[str, ...], seconds: float, **given: Any) -> None:
    """Measures and prints."""
    settings = resolved({"parallelism": 2}, given)
    headings = ("query", "M events/s", "over", "checkpoints", "median", "data", "determinants")
    show(f"Throughput, parallelism {settings.parallelism}", headings, rows(queries or _ALL, seconds, settings))


command = click.Command(
    "speed",
    callback=run,
    params=[
        click.Argument(["queries"], nargs=-1),
        click.Option(["--seconds"], type=float, default=35.0, show_default=True, help="How long to measure each."),
        *setting_options("parallelism", "runtime", "sharing_depth", "guarantee", "checkpoint_interval"),
    ],
    help=f"Throughput of QUERIES in steady state; without any: {', '.join(_ALL)}.",
)
