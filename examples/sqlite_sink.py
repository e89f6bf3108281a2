"""A user-defined sink: writes rows into tables of SQLite, exactly once after any failure.

clonos run examples/sqlite_sink.py --runtime local --database orders.sqlite
clonos run examples/sqlite_sink.py --parallelism 2 --database orders-on-ray.sqlite
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Sequence
from datetime import timedelta
from decimal import Decimal
from pathlib import Path

import pyarrow as pa

from clonos_py import Instant, Job, Money, Record, col, count
from clonos_py.connectors import CommitId, FileSource, RowCommitter, SinkError, TransactionalSink

ORDERS = str(Path(__file__).parent / "data" / "orders-*.jsonl")


class Order(Record):
    id: int
    symbol: str
    side: str
    price: Money
    quantity: int
    at: Instant


class Volume(Record):
    symbol: str
    orders: int
    quantity: int


class SymbolsOfCount(Record):
    orders: int
    symbols: int


class SqliteSink(TransactionalSink):
    """Writes rows into ``table``, which it creates. With a ``key`` it keeps a table of the job: of the rows of a key
    the last one stays, and what leaves the table is deleted."""

    upserts = True
    deletes = True

    def __init__(self, database: str, table: str, key: Sequence[str] = ()) -> None:
        self.upserts = self.deletes = bool(key)
        self._database, self._table, self._key = os.path.abspath(database), table, tuple(key)

    def resolve(self, schema: pa.Schema) -> None:
        if not os.path.isdir(folder := os.path.dirname(self._database)):
            raise SinkError(f"there is no folder {folder} for the database: create it")

    def open(self, schema: pa.Schema) -> RowCommitter:
        return SqliteCommitter(self._database, self._table, schema, self._key)


class SqliteCommitter(RowCommitter):
    """Rows, and the mark that they are there, go into one transaction. Tasks of several processes share the file: each
    waits for the transactions of the others."""

    def __init__(self, database: str, table: str, schema: pa.Schema, key: Sequence[str]) -> None:
        self._names = [name for name in schema.names if name != "_change"]
        self._key = key
        self._insert = f'INSERT INTO "{table}" VALUES ({", ".join("?" * len(self._names))})'
        self._delete = f'DELETE FROM "{table}" WHERE ' + " AND ".join(f'"{name}" IS ?' for name in key)
        self._database = sqlite3.connect(database, timeout=30, isolation_level=None, check_same_thread=False)
        with self._database:
            self._database.execute("BEGIN IMMEDIATE")
            self._create(table, schema)

    def _create(self, table: str, schema: pa.Schema) -> None:
        columns = ", ".join(f'"{name}" {_type(schema.field(name).type)}' for name in self._names)
        self._database.execute(f'CREATE TABLE IF NOT EXISTS "{table}" ({columns})')
        if self._key:
            self._database.execute(f'CREATE INDEX IF NOT EXISTS "{table}_key" ON "{table}" ({_listed(self._key)})')
        self._database.execute("CREATE TABLE IF NOT EXISTS _commits (owner TEXT PRIMARY KEY, checkpoint INTEGER)")

    def commit(self, commit: CommitId, rows: pa.Table) -> None:
        with self._database:  # commits, or rolls back what an error leaves half done
            self._database.execute("BEGIN IMMEDIATE")
            if self._mark(commit):
                self._write(rows)

    def _mark(self, commit: CommitId) -> bool:
        """False if this commit, or a later one of its owner, is marked already."""
        marked = self._database.execute(
            "INSERT INTO _commits VALUES (?, ?) ON CONFLICT (owner) DO UPDATE SET checkpoint = excluded.checkpoint "
            "WHERE excluded.checkpoint > checkpoint",
            commit,
        )
        return marked.rowcount == 1

    def _write(self, rows: pa.Table) -> None:
        for row in rows.to_pylist():
            if self._key:  # not by ON CONFLICT: to SQLite each key that is NULL is another one
                self._database.execute(self._delete, [_value(row[name]) for name in self._key])
            if row.get("_change") != "delete":
                self._database.execute(self._insert, [_value(row[name]) for name in self._names])

    def close(self) -> None:
        self._database.close()


def _value(value: object) -> object:
    return str(value) if isinstance(value, Decimal | timedelta) else value


def _listed(names: Sequence[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)


def _type(column: pa.DataType) -> str:
    if pa.types.is_integer(column) or pa.types.is_boolean(column):
        return "INTEGER"
    return "REAL" if pa.types.is_floating(column) else "BLOB" if pa.types.is_binary(column) else "TEXT"


def job(orders: str = ORDERS, database: str = "orders.sqlite") -> Job:
    job = Job("sqlite")
    placed = job.source(FileSource(orders, Order)).named("orders")
    large = placed.filter(col("quantity") >= 30).select("id", "symbol", "quantity")
    large.sink(SqliteSink(database, "large_orders")).named("large-orders")

    by_symbol = placed.key_by("symbol")
    volumes = by_symbol.aggregate(Volume, orders=count(), quantity=col("quantity").sum()).named("sum")
    volumes.sink(SqliteSink(database, "volumes", key=["symbol"])).named("volumes")

    counted = by_symbol.aggregate(orders=count()).named("count")
    symbols = counted.key_by("orders").aggregate(SymbolsOfCount, symbols=count()).named("symbols-of")
    symbols.sink(SqliteSink(database, "symbols", key=["orders"])).named("symbols")  # rows leave this table
    return job
