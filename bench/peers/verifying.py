"""Compares the results of Flink and Bytewax with the oracle's, over a small stream: an independent check of both sides.

The event rate of the stream is low, so Flink's milliseconds lose no precision, and equal bids are rare. Query 12 is
left out, since its windows are of processing time.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.parquet as pq

from clonos_py.bench.oracle import expected
from clonos_py.bench.peers.dataflows import Bytewax
from clonos_py.bench.peers.datasets import Dataset
from clonos_py.bench.peers.engines import Engine, Terms
from clonos_py.bench.peers.flink import Flink
from clonos_py.evaluation.nexmark.jobs import QUERIES
from clonos_py.evaluation.nexmark.new_users import Row, difference
from clonos_py.evaluation.nexmark.source import NexmarkSource

EVENT_RATE = 1_000
LATE = "'30' MINUTE"
"""Longer than a small stream, so that no event is late even if a task reads its files one after the other."""
_EPOCH, _MICROSECOND = datetime(1970, 1, 1, tzinfo=UTC), timedelta(microseconds=1)
ANSWERED = tuple(query for query in QUERIES if query != "q12")


def small(root: Path, events: int, parallelism: int, seed: int) -> Dataset:
    """A small dataset, whose results are quick to compare."""
    return Dataset(
        root / "small-events", NexmarkSource(events, event_rate=EVENT_RATE, seed=seed, partitions=parallelism)
    )


class AnswerComparison(NamedTuple):
    """The result of comparing one query with the oracle. ``line``: the result in words."""

    line: str
    same: bool


def verdicts(
    engine: Engine, queries: tuple[str, ...], dataset: Dataset, terms: Terms, out: Path
) -> Iterator[AnswerComparison]:
    """Runs ``queries``, which the engine must support, and compares each with the oracle."""
    match engine:
        case Flink():
            engine.collect(queries, dataset, LATE, terms.parallelism, out)
            for query in queries:
                yield verdict(query, flink_rows(out / f"{query}.parquet"), dataset)
        case Bytewax():
            for query in queries:
                folder = out / query
                folder.mkdir()
                engine.flow(query, dataset, terms, folder, results=True)
                yield verdict(query, bytewax_rows(folder), dataset)


def bytewax_rows(folder: Path) -> list[Row]:
    """The result rows of all processes."""
    rows = (json.loads(line) for path in sorted(folder.glob("results-*.jsonl")) for line in path.open())
    return [tuple(_value(value) for value in row) for row in rows]


def flink_rows(path: Path) -> list[Row]:
    """The result rows in the form of the oracle's: times in microseconds."""
    return [tuple(_value(value) for value in row.values()) for row in pq.read_table(path).to_pylist()]


def verdict(query: str, rows: list[Row], dataset: Dataset) -> AnswerComparison:
    """Compares the rows of a query with the oracle's."""
    wrong = difference(expected(query, dataset.source), rows)
    result = "as the oracle has them" if wrong is None else f"but not the oracle's: {wrong}"
    return AnswerComparison(f"{query}: {len(rows)} rows, {result}", wrong is None)


def _value(value: Any) -> Any:
    match value:
        case {"decimal": digits}:
            return Decimal(digits)
        case datetime():
            return (value.replace(tzinfo=UTC) - _EPOCH) // _MICROSECOND
        case _:
            return value
