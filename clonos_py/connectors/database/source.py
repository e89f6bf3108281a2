"""Rows of any database as a bounded source, in ranges of a key."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from typing_extensions import TypeVar

from clonos_py.connectors.database.client import Attempts, Connect, DatabaseClient
from clonos_py.connectors.partitions import POSITIONS
from clonos_py.connectors.row_reader import PartitionedSource, RowReader
from clonos_py.model.errors import GraphError, SourceError, type_and_text
from clonos_py.model.record import ArrowSchema, Record, schema_of
from clonos_py.model.record_codec import encode
from clonos_py.model.times import Duration, micros

R = TypeVar("R", bound=Record, default=Any)


class DatabaseSource(PartitionedSource[R]):
    """Reads the rows of a table or a query once, by any client with the DB-API of Python, and ends.

    ``connect`` returns a new connection, such as ``partial(sqlite3.connect, "shop.db")``. ``table`` is the name of a
    table or, in parentheses, a query: ``"(SELECT ... FROM ...)"``. ``key`` is a column of integers of which no two rows
    have the same; ``rows`` declares the columns that are read. The tasks share ``partitions`` ranges of the key between
    its least and greatest value, which are looked up when the job is submitted. Rows must stay as they are while the
    job reads them.

    An ``OperationalError`` or ``InterfaceError`` of the client is waited for until ``away`` has passed. Raises
    SourceError then, after another error, and for two rows with the same key.
    """

    def __init__(
        self,
        connect: Connect,
        table: str,
        rows: type[R] | ArrowSchema,
        *,
        key: str,
        partitions: int = 4,
        quote: str = '"',
        away: Duration = "1m",
    ) -> None:
        super().__init__(rows)
        self._client = DatabaseClient("DatabaseSource", connect, quote)
        names = schema_of(rows).names
        if key not in names or not pa.types.is_integer(schema_of(rows).field(key).type):
            raise GraphError(f"DatabaseSource: key {key!r} is not one of the columns of integers: {', '.join(names)}")
        if partitions < 1:
            raise GraphError("DatabaseSource: partitions is at least 1")
        origin = f"{table} AS clonos_rows" if table.startswith("(") else self._client.name(table)
        self._what = f"{self._client.names(names)} FROM {origin}"
        self._bounds = f"SELECT MIN({self._client.name(key)}), MAX({self._client.name(key)}) FROM {origin}"
        self._table, self._key, self._count = table, key, partitions
        self._away_s = micros(away) / 1e6

    def partitions(self) -> list[str]:
        try:
            connection = self._client.connect()
            try:
                cursor = connection.cursor()
                cursor.execute(self._bounds)
                least, greatest = cursor.fetchone()
            finally:
                connection.close()
        except Exception as problem:  # noqa: BLE001 - each client has errors of its own
            raise SourceError(f"{self._table}: {type_and_text(problem)}") from None
        if least is None:
            return ["0:0"]
        size = -(-(greatest + 1 - least) // self._count)
        if size >= POSITIONS:
            raise SourceError(
                f"{self._table}: the values of key {self._key!r} are too far apart for {self._count} ranges"
            )
        starts = range(least, greatest + 1, size)
        return [f"{start}:{min(start + size, greatest + 1)}" for start in starts]

    def open(self, partition: str) -> RowReader:
        start, _, stop = partition.rpartition(":")
        key = self._client.name(self._key)
        query = f"SELECT {self._what} WHERE {key} >= ? AND {key} < ? ORDER BY {key}"
        attempts = Attempts(self._client, self._table, self._away_s, SourceError)
        number = self.schemas[0].names.index(self._key)
        return RangeReader(self._client, attempts, query, self.schemas[0], number, int(start), int(stop))


class RangeReader(RowReader):
    """Reads a range of keys. A position is the distance of the key behind the last row from the start of the range. The
    rows of one query are taken piece by piece, as long as they are asked for in order."""

    def __init__(
        self,
        client: DatabaseClient,
        attempts: Attempts,
        query: str,
        schema: pa.Schema,
        key: int,
        start: int,
        stop: int,
    ) -> None:
        self._client, self._attempts, self._query, self._schema = client, attempts, query, schema
        self._key, self._start, self._stop = key, start, stop
        self._cursor: Any = None
        self._position = 0

    def read(self, position: int, rows_max: int) -> tuple[pa.RecordBatch, int] | None:
        found = self._attempts.run(lambda connection: self._fetched(connection, position, rows_max))
        if not found:
            return None
        keys = [row[self._key] for row in found]
        if len(set(keys)) < len(keys) or keys[0] - self._start < position:
            self._cursor = None
            raise SourceError("two rows have the same key: name a column that is different in all rows")
        self._position = keys[-1] + 1 - self._start
        rows = [dict(zip(self._schema.names, row, strict=True)) for row in found]
        return encode(rows, self._schema), self._position

    def close(self) -> None:
        self._cursor = None
        self._attempts.close()

    def _fetched(self, connection: Any, position: int, rows_max: int) -> list[Any]:
        try:
            if self._cursor is None or position != self._position:
                self._cursor = connection.cursor()
                bounds = (self._start + position, self._stop)
                self._cursor.execute(self._client.parameters(connection, self._query), bounds)
            return list(self._cursor.fetchmany(rows_max))
        except BaseException:
            self._cursor = None
            raise
