"""Throughput of every query: all events with all columns are made, the results go into a blackhole (or a digest)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from clonos_py.bench.nexmark.jobs import QUERIES
from clonos_py.bench.nexmark.report import WARM_UP_US
from clonos_py.bench.nexmark.running import QueryRun, SinkKind, run_query
from clonos_py.bench.tables import show
from clonos_py.cli.options import resolved, setting_options
from clonos_py.observe.console import bytes_text
from clonos_py.settings.definitions import Settings

_PROBE_EVENTS = 10_000_000
_LONGER = 3
_ENOUGH = 0.9
_ALL = (*QUERIES, "row_function", "q0/digest", "rebalanced/digest")
"""A query into a blackhole, or into the sink after the slash: a digest has to touch every byte of the rows."""


def measure(query: str, seconds: float, settings: Settings, sink: SinkKind = SinkKind.BLACKHOLE) -> dict[str, Any]:
    """The report of a run with a steady state of about so many seconds. Shorter runs before it tell how many events
    that takes: a very short one is seldom as fast."""
    made = run_query(QueryRun(query, _PROBE_EVENTS, sink=sink), settings)
    for _ in range(_LONGER):
        found = made["throughput"]
        if found["steady_seconds"] >= seconds * _ENOUGH:
            break
        events = max(int(found["steady_events_per_s"] * (seconds + WARM_UP_US / 1e6)), _PROBE_EVENTS)
        made = run_query(QueryRun(query, events, sink=sink), settings)
    return made


def rows(queries: tuple[str, ...], seconds: float, settings: Settings) -> Iterator[tuple[str, ...]]:
    """A line of the table for each query."""
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
