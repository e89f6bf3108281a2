"""Measures how soon a row can be read from the output, for each delivery of a sink: from the creation of the row in the
source until another process has read it.

    numbers (paced) --rebalance--> stamp (a random number each) --rebalance--> sink

Transactional rows wait for the checkpoint that covers them. Causal rows wait until their determinants are on disk. The
idempotent sink replaces rows by key in a database, as users' own sinks do. That is exactly-once only for values that do
not change when they are computed again.
"""

from __future__ import annotations

import json
import multiprocessing
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import click
import numpy as np
import pyarrow as pa

from clonos_py import Context, Job, Record
from clonos_py.bench.paced import PacedSource
from clonos_py.cli.options import resolved, setting_options
from clonos_py.cli.tables import show
from clonos_py.connectors import FileSink
from clonos_py.model.connectors import Delivery, SinkDefinition, SourceDefinition
from clonos_py.model.operators import OperatorContext, Output, Sink, Source
from clonos_py.runtime.launch import run_job

_PAUSE_S = 0.0005
"""The pause between two reads of the output."""
_PATIENCE_S = 120.0


class SinkRow(Record):
    id: int
    created: int


class Stamped(Record):
    id: int
    created: int
    random: float


class _Numbers(PacedSource):
    def rows(self, partition: int, start: int, stop: int) -> pa.RecordBatch:
        created = [int(self.due_us(row)) for row in range(start, stop)]
        return pa.record_batch({"id": range(start, stop), "created": created}, schema=SinkRow.schema())


class _PacedNumbers(SourceDefinition):
    def __init__(self, total: int, rate: float) -> None:
        self.schemas = (SinkRow.schema(),)
        self._total, self._rate = total, rate

    def create(self, columns: tuple[tuple[str, ...] | None, ...], read_rows: int | None = None) -> Source:
        return _Numbers(self._total, self._rate)


class _DatabaseSink(SinkDefinition):
    """Writes rows to a SQLite table, replacing rows with the same id."""

    delivery = Delivery.IDEMPOTENT

    def __init__(self, folder: str) -> None:
        self._path = f"{folder}/rows.sqlite"

    def create(self, schema: pa.Schema) -> Sink:
        return _DatabaseWriter(self._path)


class _DatabaseWriter(Sink):
    def __init__(self, path: str) -> None:
        self._path = path

    def open(self, ctx: OperatorContext, out: Output) -> None:
        super().open(ctx, out)
        self._database = sqlite3.connect(self._path, check_same_thread=False, timeout=30.0)
        self._database.execute("pragma journal_mode = wal")
        self._database.execute("create table if not exists rows (id integer primary key, created integer, random real)")
        self._database.commit()

    def on_rows(self, rows: pa.RecordBatch, side: int) -> None:
        found = zip(*(rows.column(name).to_pylist() for name in ("id", "created", "random")), strict=True)
        self._database.executemany("insert or replace into rows values (?, ?, ?)", found)
        self._database.commit()

    def close(self) -> None:
        self._database.close()


_SINKS: dict[Delivery, Callable[[str], SinkDefinition]] = {
    Delivery.IDEMPOTENT: _DatabaseSink,
    Delivery.TRANSACTIONAL: partial(FileSink, format="jsonl"),
    Delivery.CAUSAL: partial(FileSink, format="jsonl", delivery="causal"),
}


def stamp(number: SinkRow, ctx: Context) -> Stamped:
    return Stamped(number.id, number.created, ctx.random.random())


def observe(folder: str, delivery: Delivery, total: int) -> list[float]:
    """Reads ``total`` rows as they become visible. Returns the latency of each in milliseconds."""
    new_rows = _database_rows(folder) if delivery is Delivery.IDEMPOTENT else _file_rows(folder)
    latencies_ms: list[float] = []
    deadline = time.monotonic() + _PATIENCE_S
    while len(latencies_ms) < total and time.monotonic() < deadline:
        created = next(new_rows)
        now_us = time.time_ns() // 1_000
        latencies_ms += [(now_us - at_us) / 1_000 for at_us in created]
        time.sleep(_PAUSE_S)
    return latencies_ms


def _file_rows(folder: str) -> Iterator[list[int]]:
    """The creation times of rows that have become visible since the previous read of the files."""
    read: dict[Path, int] = {}
    while True:
        found: list[int] = []
        for path in Path(folder).glob("*.jsonl"):
            with path.open("rb") as file:
                file.seek(read.get(path, 0))
                content = file.read()
            whole = content[: content.rfind(b"\n") + 1]
            read[path] = read.get(path, 0) + len(whole)
            found += [json.loads(line)["created"] for line in whole.splitlines()]
        yield found


def _database_rows(folder: str) -> Iterator[list[int]]:
    """The creation times of rows that have become visible in the database. Each task writes in the order of ids."""
    seen: set[int] = set()
    database: sqlite3.Connection | None = None
    while True:
        if database is None and Path(folder, "rows.sqlite").exists():
            database = sqlite3.connect(f"{folder}/rows.sqlite", timeout=30.0)
        try:
            low = max(seen, default=0) - 1_000
            rows = database.execute("select id, created from rows where id > ?", (low,)).fetchall() if database else []
        except sqlite3.OperationalError:
            rows = []
        fresh = [row for row in rows if row[0] not in seen]
        seen.update(row[0] for row in fresh)
        yield [row[1] for row in fresh]


def measure(delivery: Delivery, seconds: float, rate: int, given: Mapping[str, Any]) -> list[float]:
    """The latencies of one run, in milliseconds."""
    total = int(seconds * rate)
    settings = resolved({"parallelism": 2, "checkpoint_interval": "5s"}, dict(given))
    with tempfile.TemporaryDirectory() as folder:
        job = Job(f"sinks-{delivery}")
        rows = job.source(_PacedNumbers(total, rate)).rebalance().map(stamp).rebalance()
        rows.sink(_SINKS[delivery](folder)).named("out")
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
            pool.submit(observe, folder, delivery, 0).result()  # starts the process, which takes a while
            seen = pool.submit(observe, folder, delivery, total)
            run_job(job, settings, lambda at_us, event: None)
            return seen.result()


def rows(seconds: float, rate: int, deliveries: Sequence[Delivery], given: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    """One line of the table for each delivery."""
    for delivery in deliveries:
        latencies_ms = measure(delivery, seconds, rate, given)
        shares = np.percentile(latencies_ms, [50, 95, 99, 100])
        yield delivery.value, f"{len(latencies_ms):,}", *(f"{share:,.1f}" for share in shares)


def run(seconds: float, rate: int, delivery: Sequence[str], **given: Any) -> None:
    """Measures and prints."""
    deliveries = [Delivery(name) for name in delivery] or list(_SINKS)
    title = f"From a row's creation until it can be read, {rate:,} rows/s, milliseconds"
    show(title, ("delivery", "rows", "median", "95%", "99%", "max"), rows(seconds, rate, deliveries, given))


command = click.Command(
    "sinks",
    callback=run,
    params=[
        click.Option(["--seconds"], type=float, default=20.0, show_default=True, help="How long to measure each."),
        click.Option(["--rate"], type=int, default=2_000, show_default=True, help="Rows a second."),
        click.Option(
            ["--delivery"],
            multiple=True,
            type=click.Choice([delivery.value for delivery in _SINKS]),
            help="Only this one; may be repeated. All without.",
        ),
        *setting_options(
            "parallelism",
            "runtime",
            "protocol",
            "guarantee",
            "sharing_depth",
            "checkpoint_interval",
            "checkpoint_calls",
        ),
    ],
    help="How soon rows can be read from an idempotent, a transactional and a causal sink.",
)
