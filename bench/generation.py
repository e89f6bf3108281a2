"""Measures how fast events are generated: all columns of all kinds, by one thread on one core.

Programs on the other cores use memory bandwidth and lower the clock rate, so the median of several turns is printed.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from typing import NamedTuple

import click
import pyarrow as pa

from clonos_py.cli.counts import Count
from clonos_py.cli.tables import show
from clonos_py.evaluation.nexmark.generator import Generator
from clonos_py.evaluation.nexmark.model import Model

_MODELS = {
    "official": Model(),
    "out of order, in groups of 100": Model(out_of_order_group=100),
    "skew 0.5": Model(skew=0.5),
    "rate as a sine": Model(next_event_rate=250_000, rate_shape="sine"),
}


class Made(NamedTuple):
    """What one turn generated. ``seconds``: CPU time of the thread."""

    events: int
    seconds: float
    column_bytes: int


def made(generator: Generator, start: int, events: int) -> Made:
    """Generates ``events`` events, from number ``start`` on. The result counts the rows that were really made."""
    column_bytes = count = 0
    began = time.thread_time()
    for block in generator.events(start, start + events):
        for batch in block:
            count += batch.num_rows
            column_bytes += batch.get_total_buffer_size()
    return Made(count, time.thread_time() - began, column_bytes)


def rows(events: int, turns: int) -> Iterator[tuple[str, ...]]:
    """One line of the table for each model. The first turn is a warm-up. Each turn continues where the last ended."""
    for name, model in _MODELS.items():
        generator = Generator(model=model)
        found = [made(generator, turn * events, events) for turn in range(turns + 1)][1:]
        speeds = sorted(turn.events / turn.seconds / 1e6 for turn in found)
        yield (
            name,
            f"{statistics.median(speeds):.1f}",
            f"{speeds[0]:.1f}",
            f"{speeds[-1]:.1f}",
            f"{statistics.median(turn.column_bytes / turn.events for turn in found):.0f}",
        )


def run(events: int, turns: int) -> None:
    """Measures and prints."""
    before = pa.cpu_count()
    pa.set_cpu_count(1)
    try:
        headings = ("model", "M events/s", "slowest turn", "fastest turn", "bytes per event")
        show(f"Nexmark events made by one thread, {turns} turns of {events:,}", headings, rows(events, turns))
    finally:
        pa.set_cpu_count(before)


command = click.Command(
    "generation",
    callback=run,
    params=[
        click.Option(["--events"], type=Count(), default="3M", show_default=True, help="Events of a turn."),
        click.Option(["--turns"], type=click.IntRange(min=1), default=7, show_default=True, help="Turns measured."),
    ],
    help="How fast Nexmark events are made by one thread, with all their columns.",
)
