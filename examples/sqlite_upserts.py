"""Keeps the volume of each symbol in a table of SQLite, always up to date.

A row replaces the previous row of its symbol. So rows can be visible at once, and rows that are written again after a
failure change nothing. ``sqlite_sink.py`` has a sink for rows without a key.

    clonos run examples/sqlite_upserts.py --runtime local --database volumes.sqlite
"""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

import pyarrow as pa

from clonos_py import Job, Record, col, count
from clonos_py.connectors import FileSource, IdempotentSink, RowWriter

ORDERS = str(Path(__file__).parent / "data" / "orders-1.jsonl")


class Order(Record):
    symbol: str
    quantity: int


class VolumeSink(IdempotentSink):
    upserts = True

    def __init__(self, database: str) -> None:
        self._database = os.path.abspath(database)

    def open(self, schema: pa.Schema) -> RowWriter:
        return VolumeWriter(self._database)


class VolumeWriter(RowWriter):
    def __init__(self, database: str) -> None:
        self._database = sqlite3.connect(database, timeout=30)
        self._database.execute("CREATE TABLE IF NOT EXISTS volume (symbol TEXT PRIMARY KEY, orders, quantity)")

    def write(self, rows: pa.RecordBatch) -> None:
        with self._database:
            upsert = "INSERT OR REPLACE INTO volume VALUES (:symbol, :orders, :quantity)"
            self._database.executemany(upsert, rows.to_pylist())


def job(orders: str = ORDERS, database: str = "volumes.sqlite") -> Job:
    job = Job("sqlite-upserts")
    placed = job.source(FileSource(orders, Order)).named("orders")
    volumes = placed.key_by("symbol").aggregate(orders=count(), quantity=col("quantity").sum()).named("sum")
    volumes.sink(VolumeSink(database)).named("volumes")
    return job
