"""A user-defined source: reads the rows of a table of SQLite, in the order in which they were added.

clonos run examples/sqlite_source.py --runtime local --database orders.sqlite --out counted
"""

from __future__ import annotations

import os
import sqlite3

from clonos_py import Job, Record, count
from clonos_py.connectors import FileSink, PartitionedSource, RowReader


class LargeOrder(Record):
    id: int
    symbol: str
    quantity: int


class Orders(Record):
    symbol: str
    orders: int


class SqliteSource(PartitionedSource[LargeOrder]):
    """``tables`` are read side by side: each is a partition. With ``follow`` rows may be added while the job runs, and
    it never ends."""

    def __init__(self, database: str, *tables: str, follow: bool = False) -> None:
        super().__init__(LargeOrder)
        self._database, self._tables, self._follow = os.path.abspath(database), tables, follow

    def partitions(self) -> list[str]:
        return list(self._tables)

    def open(self, partition: str) -> RowReader:
        return TableReader(self._database, partition, self._follow)


class TableReader(RowReader):
    """A position is the rowid of the last row that was read: SQLite gives higher ones to rows that are added later."""

    def __init__(self, database: str, table: str, follow: bool) -> None:
        self._database = sqlite3.connect(f"file:{database}?mode=ro", uri=True, timeout=30)
        self._query = f'SELECT rowid, id, symbol, quantity FROM "{table}" WHERE rowid > ? ORDER BY rowid LIMIT ?'
        self._follow = follow

    def read(self, position: int, rows_max: int) -> tuple[list[LargeOrder], int] | None:
        found = self._database.execute(self._query, (position, rows_max)).fetchall()
        if not found:
            return ([], position) if self._follow else None
        return [LargeOrder(*values) for _, *values in found], found[-1][0]

    def close(self) -> None:
        self._database.close()


def job(database: str = "orders.sqlite", out: str = "counted") -> Job:
    job = Job("sqlite-source")
    orders = job.source(SqliteSource(database, "large_orders")).named("orders")
    counted = orders.key_by("symbol").aggregate(Orders, orders=count())
    counted.at_end().sink(FileSink(out)).named("counted")
    return job
