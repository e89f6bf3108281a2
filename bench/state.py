"""How much memory a stored row takes, and whether that stays so while state grows: by default the join of all people
and auctions that there have ever been (q3), and the winning bids of all auctions (q9).

At each checkpoint the rows in all snapshots are counted, and the memory of all task processes is read. What a job takes
before it has any state, and for frames that it retains, is there at an early checkpoint as at a late one: the memory of
a row is what grows from one checkpoint to another, by row that came. It is flat if the second half of the run needs as
much for each as the first.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import click

from clonos_py.bench.resident import resident_bytes
from clonos_py.checkpoint.storage import CheckpointStore
from clonos_py.cli.counts import Count
from clonos_py.cli.options import resolved, setting_options
from clonos_py.cli.tables import show
from clonos_py.connectors import BlackholeSink
from clonos_py.model.coordinator_events import CheckpointCompleted
from clonos_py.model.errors import SettingError
from clonos_py.model.snapshots import Manifest
from clonos_py.nexmark.jobs import QUERIES, build
from clonos_py.nexmark.source import NexmarkSource
from clonos_py.observe.console import bytes_text
from clonos_py.observe.events import Event
from clonos_py.settings.definitions import Settings

_DEFAULT = ("q3", "q9")
_FIRST_SHARE = 0.2
"""Of the checkpoints, in which memory is touched for the first time: they are left out."""


class StateSample(NamedTuple):
    """At a checkpoint: rows in snapshots, their bytes there, and the bytes of all task processes."""

    rows: int
    stored_bytes: int
    resident_bytes: int


class Growth(NamedTuple):
    """Between two samples, for each row that came."""

    stored_bytes: float
    resident_bytes: float


def growth(first: StateSample, last: StateSample) -> Growth:
    """Raises SettingError if no rows came between."""
    rows = last.rows - first.rows
    if rows <= 0:
        raise SettingError("state did not grow: run longer, with --events")
    return Growth((last.stored_bytes - first.stored_bytes) / rows, (last.resident_bytes - first.resident_bytes) / rows)


def halves(samples: Sequence[StateSample]) -> tuple[Growth, Growth]:
    """Of a run without its beginning. Raises SettingError if there are too few checkpoints to tell."""
    steady = samples[int(len(samples) * _FIRST_SHARE) :]
    if len(steady) < 3:
        raise SettingError(f"{len(samples)} checkpoints tell nothing: run longer, with --events")
    middle = steady[len(steady) // 2]
    return growth(steady[0], middle), growth(middle, steady[-1])


def stored(manifest: Manifest) -> tuple[int, int]:
    """Rows and bytes of all tables of all operators."""
    tables = [t for task in manifest.tasks for handle in task.operators.values() for t in handle.tables.values()]
    chunks = [chunk for table in tables for chunk in table]
    return sum(chunk.rows for chunk in chunks), sum(chunk.size_bytes for chunk in chunks)


@dataclass
class Sampler:
    """Listens to a run whose checkpoints are in ``store``."""

    store: CheckpointStore
    samples: list[StateSample]

    def __call__(self, at_us: int, event: Event) -> None:
        if isinstance(event, CheckpointCompleted) and (manifest := self.store.latest()) is not None:
            self.samples.append(StateSample(*stored(manifest), sum(size for _, size in resident_bytes())))


def rows(queries: Sequence[str], events: int, rate: int, settings: Settings) -> Iterator[tuple[str, ...]]:
    """A line for each query."""
    from clonos_py.runtime.launch import run_job

    for query in queries:
        with tempfile.TemporaryDirectory(prefix="clonos-state-") as folder:
            job = build(query, NexmarkSource(events, rate, partitions=settings.parallelism), BlackholeSink())
            sampler = Sampler(CheckpointStore(folder, job.name), [])
            run_job(job, replace(settings, checkpoints=folder), sampler)
        first, second = halves(sampler.samples)
        last = sampler.samples[-1]
        yield (
            query,
            f"{last.rows:,}",
            bytes_text(last.stored_bytes),
            f"{second.stored_bytes:.0f}",
            f"{first.resident_bytes:.0f}",
            f"{second.resident_bytes:.0f}",
            f"{second.resident_bytes / first.resident_bytes:.2f}",
        )


def run(queries: tuple[str, ...], events: int, rate: int, **given: Any) -> None:
    """Measures and prints."""
    from clonos_py.runtime.ray.cluster import connected

    settings = resolved({"parallelism": 2, "standbys": 0, "checkpoint_interval": "3s", "runtime": "ray"}, given)
    headings = ("query", "rows", "stored", "bytes/row stored", "bytes/row, first half", "second half", "ratio")
    with connected(None):  # one Ray for all runs
        show("Memory of a stored row", headings, rows(queries or _DEFAULT, events, rate, settings))


command = click.Command(
    "state",
    callback=run,
    params=[
        click.Argument(["queries"], nargs=-1, type=click.Choice(QUERIES)),
        click.Option(["--events"], type=Count(), default="60M", show_default=True, help="Of each run."),
        click.Option(["--rate"], type=Count(), default="1M", show_default=True, help="Events per second."),
        *setting_options("parallelism", "checkpoint_interval"),
    ],
    help="Bytes of memory for each row of state, and whether they stay the same while it grows.",
)
