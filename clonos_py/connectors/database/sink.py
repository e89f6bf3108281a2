"""Tables of any database as sinks of jobs, exactly once: rows and the number of their checkpoint are written in one
transaction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from clonos_py.connectors.database.client import Attempts, Connect, DatabaseClient
from clonos_py.connectors.last_changes import last_changes
from clonos_py.connectors.names import names_of
from clonos_py.connectors.row_committer import CommitId, RowCommitter, TransactionalSink
from clonos_py.model.errors import GraphError, SinkError, type_and_text
from clonos_py.model.operators import Sink
from clonos_py.model.tables import CHANGE_COLUMN, without
from clonos_py.model.times import Duration, micros

COMMITS_TABLE = "clonos_commits"


class DatabaseSink(TransactionalSink):
    """Writes rows to an existing table of a database, exactly once, by any client with the DB-API of Python.

    ``connect`` returns a new connection, such as ``partial(sqlite3.connect, "shop.db", check_same_thread=False)``: one
    thread opens it, and another one may close it. Rows become visible when their checkpoint is complete; the same
    transaction notes its number in the table ``clonos_commits``, which the sink creates. Without a ``key`` all rows are
    added. With one a row replaces those of the same key, and the sink takes a ``Table``, whose deletions delete rows.

    Values are passed to the client as they are; a type that it does not know ends the job. ``quote`` encloses names;
    MySQL needs a backtick. Rows are passed one by one: for PostgreSQL there is ``PostgresSink``.

    An ``OperationalError`` or ``InterfaceError`` of the client, such as a lost connection or a lock, is waited for
    until ``away`` has passed; then, and after any other error, the job stops with a SinkError. So it does for a key
    that is null, of which databases have different ideas.
    """

    def __init__(
        self, connect: Connect, table: str, *, key: str | Sequence[str] = (), quote: str = '"', away: Duration = "1m"
    ) -> None:
        self._client = DatabaseClient("DatabaseSink", connect, quote)
        self._key = names_of(key)
        self._away_s = micros(away) / 1e6
        self.upserts = self.deletes = bool(self._key)
        self.identifies = tuple(self._key)
        self.place = table

    def create(self, schema: pa.Schema) -> Sink:
        names = without(schema, CHANGE_COLUMN).names
        if unknown := [name for name in self._key if name not in names]:
            raise GraphError(f"DatabaseSink: key {unknown[0]!r} is not one of the columns {', '.join(names)}")
        return super().create(schema)

    def resolve(self, schema: pa.Schema) -> None:
        names = without(schema, CHANGE_COLUMN).names
        try:
            connection = self._client.connect()
            try:
                columns, table = self._client.names(names), self._client.name(self.place)
                connection.cursor().execute(f"SELECT {columns} FROM {table} WHERE 1 = 0")
            finally:
                connection.close()
        except Exception as problem:  # noqa: BLE001 - each client has errors of its own
            raise SinkError(
                f"table {self.place}: {type_and_text(problem)}; it needs the columns {', '.join(names)}"
            ) from None

    def open(self, schema: pa.Schema) -> RowCommitter:
        names = without(schema, CHANGE_COLUMN).names
        return DatabaseCommitter(self._client, self.place, names, self._key, self._away_s)


class DatabaseCommitter(RowCommitter):
    """The committer of one task."""

    def __init__(
        self, client: DatabaseClient, table: str, names: Sequence[str], key: Sequence[str], away_s: float
    ) -> None:
        self._client, self._names, self._key = client, list(names), list(key)
        self._attempts = Attempts(client, f"table {table}", away_s, SinkError)
        schema, dot, _ = table.rpartition(".")
        self._commits = client.name(f"{schema}{dot}{COMMITS_TABLE}")
        conditions = " AND ".join(f"{client.name(name)} = ?" for name in key)
        self._insert = (
            f"INSERT INTO {client.name(table)} ({client.names(names)}) VALUES ({', '.join('?' * len(self._names))})"
        )
        self._delete = f"DELETE FROM {client.name(table)} WHERE {conditions}"
        self._created = False

    def commit(self, commit: CommitId, rows: pa.Table) -> None:
        self._attempts.run(lambda connection: self._commit(connection, commit, rows))

    def close(self) -> None:
        self._attempts.close()

    def _commit(self, connection: Any, commit: CommitId, rows: pa.Table) -> None:
        if not self._created:
            self._create(connection)
        try:
            if self._mark(connection, commit):
                self._write(connection, rows)
            connection.commit()
        except BaseException:
            connection.rollback()
            raise

    def _create(self, connection: Any) -> None:
        """The table of commits, unless it exists. Several tasks may do so at once, of which some then fail."""
        cursor, errors = connection.cursor(), self._client.module(connection)
        try:
            cursor.execute(f"SELECT checkpoint_number FROM {self._commits} WHERE 1 = 0")
            cursor.fetchall()
        except errors.Error:
            connection.rollback()
            try:
                cursor.execute(
                    f"CREATE TABLE {self._commits} (owner VARCHAR(255) PRIMARY KEY, checkpoint_number BIGINT NOT NULL)"
                )
            except errors.Error:
                connection.rollback()
                cursor.execute(f"SELECT checkpoint_number FROM {self._commits} WHERE 1 = 0")
                cursor.fetchall()
        connection.commit()
        self._created = True

    def _mark(self, connection: Any, commit: CommitId) -> bool:
        """False if this commit, or a later one of its owner, is marked already. The first statement locks the mark."""
        owner, number = commit
        update = f"UPDATE {self._commits} SET checkpoint_number = ? WHERE owner = ? AND checkpoint_number < ?"
        if self._execute(connection, update, (number, owner, number)).rowcount == 1:
            return True
        found = self._execute(connection, f"SELECT checkpoint_number FROM {self._commits} WHERE owner = ?", (owner,))
        if found.fetchone() is not None:
            return False
        try:
            self._execute(connection, f"INSERT INTO {self._commits} VALUES (?, ?)", (owner, number))
        except self._client.module(connection).IntegrityError:  # another process did so between the two
            connection.rollback()
            return self._mark(connection, commit)
        return True

    def _execute(self, connection: Any, statement: str, values: Sequence[Any]) -> Any:
        cursor = connection.cursor()
        cursor.execute(self._client.parameters(connection, statement), values)
        return cursor

    def _write(self, connection: Any, rows: pa.Table) -> None:
        present = rows
        if self._key:
            if unknown := [name for name in self._key if rows.column(name).null_count]:
                raise SinkError(f"key {unknown[0]!r} is null in a row: fill it in the job, by coalesce(...)")
            present, deleted = last_changes(rows, self._key)
            gone = _tuples(deleted.select(self._key)) + _tuples(present.select(self._key))
            connection.cursor().executemany(self._client.parameters(connection, self._delete), gone)
        if present.num_rows:
            values = _tuples(present.select(self._names))
            connection.cursor().executemany(self._client.parameters(connection, self._insert), values)


def _tuples(rows: pa.Table) -> list[tuple[Any, ...]]:
    return list(zip(*(column.to_pylist() for column in rows.columns), strict=True))
