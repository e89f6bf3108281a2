"""Measures the memory of a row of state, and whether it stays the same while state grows.

By default the queries are the join of all people and auctions so far (q3), and the winning bids of all auctions (q9).

At each checkpoint the rows in all snapshots are counted, and the memory of all task processes is read. The memory of a
row is the growth of memory between two checkpoints divided by the growth of rows. So memory that a job needs without
state, and for retained frames, does not count: it is there at early and late checkpoints alike. Memory per row is flat
if it is the same in the second half of the run as in the first.
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
from clonos_py.evaluation.nexmark.jobs import QUERIES, build
from clonos_py.evaluation.nexmark.source import NexmarkSource
from clonos_py.model.coordinator_events import CheckpointCompleted
from clonos_py.model.errors import SettingError
from clonos_py.model.snapshots import Manifest
from clonos_py.observe.events import Event
from clonos_py.observe.units import bytes_text
from clonos_py.settings.definitions import Settings

_DEFAULT = ("q3", "q9")
_FIRST_SHARE = 0.2
"""The share of checkpoints at the start that is left out: there, memory is touched for the first time."""


class StateSample(NamedTuple):
    """Figures at a checkpoint: rows in snapshots, their bytes there, and the memory of all task processes in bytes."""

    rows: int
    stored_bytes: int
    resident_bytes: int


class Growth(NamedTuple):
    """The growth between two samples, in bytes per new row."""

    stored_bytes: float
    resident_bytes: float


def growth(first: StateSample, last: StateSample) -> Growth:
    """The growth from one sample to another. Raises SettingError if there are no new rows between them."""
    rows = last.rows - first.rows
    if rows <= 0:
        raise SettingError("state did not grow: run longer, with more --events")
    return Growth((last.stored_bytes - first.stored_bytes) / rows, (last.resident_bytes - first.resident_bytes) / rows)


def halves(samples: Sequence[StateSample]) -> tuple[Growth, Growth]:
    """The growth in both halves of a run without its start. Raises SettingError if there are too few checkpoints."""
    steady = samples[int(len(samples) * _FIRST_SHARE) :]
    if len(steady) < 3:
        raise SettingError(f"{len(samples)} checkpoints are too few: run longer, with more --events")
    middle = steady[len(steady) // 2]
    return growth(steady[0], middle), growth(middle, steady[-1])


def stored(manifest: Manifest) -> tuple[int, int]:
    """Rows and bytes of all tables of all operators in a checkpoint."""
    tables = [t for task in manifest.tasks for handle in task.operators.values() for t in handle.tables.values()]
    chunks = [chunk for table in tables for chunk in table]
    return sum(chunk.rows for chunk in chunks), sum(chunk.size_bytes for chunk in chunks)


@dataclass
class Sampler:
    """Listens to a run whose checkpoints are in ``store``, and takes a sample at each."""

    store: CheckpointStore
    samples: list[StateSample]

    def __call__(self, at_us: int, event: Event) -> None:
        if isinstance(event, CheckpointCompleted) and (manifest := self.store.latest()) is not None:
            self.samples.append(StateSample(*stored(manifest), sum(size for _, size in resident_bytes())))


def rows(queries: Sequence[str], events: int, rate: int, settings: Settings) -> Iterator[tuple[str, ...]]:
    """One line of the table for each query."""
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
        click.Option(["--events"], type=Count(), default="60M", show_default=True, help="Events of each run."),
        click.Option(["--rate"], type=Count(), default="1M", show_default=True, help="Events per second."),
        *setting_options("parallelism", "checkpoint_interval"),
    ],
    help="Bytes of memory for each row of state, and whether they stay the same while it grows.",
)
