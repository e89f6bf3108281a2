"""Measures the table: every engine runs every query that it supports, in turns, and the median of its runs counts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from clonos_py.bench.peers.datasets import Dataset
from clonos_py.bench.peers.engines import Engine, Terms
from clonos_py.bench.peers.queries import kinds_read
from clonos_py.bench.peers.rates import RateComparison
from clonos_py.evaluation.nexmark.source import NexmarkSource

_LONGER = 4
"""How much longer the stream is for queries that read no bids, since they read only a 12th of the rows."""


@dataclass(frozen=True)
class Run:
    """A planned run: the ``turn``-th run of its engine and query."""

    query: str
    engine: Engine
    turn: int


def schedule(queries: Sequence[str], engines: Sequence[Engine], turns: int) -> Iterator[Run]:
    """The order of runs: query by query, turn by turn, all engines in each turn. Every other turn reverses them."""
    for query in queries:
        able = [engine for engine in engines if query in engine.queries]
        for turn in range(turns):
            yield from (Run(query, engine, turn) for engine in able[:: -1 if turn % 2 else 1])


def datasets(root: Path, events: int, parallelism: int, seed: int) -> tuple[Dataset, Dataset]:
    """The whole stream, and a longer one without its bids."""
    whole = NexmarkSource(events, seed=seed, partitions=parallelism)
    longer = NexmarkSource(events * _LONGER, seed=seed, partitions=parallelism)
    return Dataset(root / "events", whole), Dataset(root / "people-and-auctions", longer, ("person", "auction"))


def dataset_of(query: str, whole: Dataset, longer: Dataset) -> Dataset:
    """The dataset that a query reads."""
    return whole if "bid" in kinds_read(query) else longer


def measured(
    runs: Sequence[Run],
    engines: Sequence[Engine],
    sets: tuple[Dataset, Dataset],
    terms: Terms,
    on_progress: Callable[[str], None],
) -> Iterator[RateComparison]:
    """Makes all runs and yields the comparison so far after each. A failed run is left out, and reported to
    ``on_progress``."""
    made = RateComparison(tuple(engine.name for engine in engines), {run.query: {} for run in runs})
    for number, run in enumerate(runs, 1):
        about = f"{number}/{len(runs)} {run.query} {run.engine.name}"
        on_progress(about)
        dataset = dataset_of(run.query, *sets)
        try:
            dataset.read()
            rate = run.engine.run(run.query, dataset, terms)
        except Exception as error:  # noqa: BLE001 - one failed run must not lose the hours of other runs
            made.failures.append(f"{run.query} {run.engine.name}: {type(error).__name__}: {error}")
            on_progress(made.failures[-1])
        else:
            made.runs[run.query].setdefault(run.engine.name, []).append(rate)
            on_progress(f"{about}: {rate.events_per_s / 1e6:.2f} M events/s")
        yield made
