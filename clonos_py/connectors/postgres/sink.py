"""Tables of PostgreSQL as sinks of jobs, exactly once: the rows of a checkpoint and its number are written in one
transaction (D16)."""

from __future__ import annotations

from collections.abc import Sequence

import psycopg
import pyarrow as pa
from psycopg import sql

from clonos_py.connectors.last_changes import last_changes
from clonos_py.connectors.names import names_of
from clonos_py.connectors.postgres.catalog import FoundTable, TableName
from clonos_py.connectors.postgres.copied_rows import copied
from clonos_py.connectors.postgres.fitting import best_type
from clonos_py.connectors.postgres.server import Connection, Patience, PostgresAddress, told
from clonos_py.connectors.postgres.target import SinkTarget
from clonos_py.connectors.row_committer import CommitId, RowCommitter, TransactionalSink
from clonos_py.connectors.secrets import Secret
from clonos_py.model.errors import GraphError, SinkError
from clonos_py.model.operators import Sink
from clonos_py.model.tables import CHANGE_COLUMN, without
from clonos_py.model.times import Duration, micros

COMMITS_TABLE = "clonos_commits"
_ROWS_AT_ONCE = 65_536


class PostgresSink(TransactionalSink):
    """Writes rows to a table of PostgreSQL, which exists, exactly once.

    The rows of a checkpoint become visible, all at once, when it is complete. The same transaction writes the number of
    the checkpoint to the table ``clonos_commits`` of the same schema, which the sink creates: a commit that is repeated
    after a failure finds it there and does nothing. Until then the rows are kept in the checkpoint, and must fit into
    memory.

    ``dsn`` is ``postgresql://user@host:5432/database``, or ``host=... dbname=...`` with any other parameter of libpq,
    such as ``sslmode``; the password is given apart. ``table`` is its name, with the schema or without, spelled as in
    the catalog. Without a ``key`` all rows are added. With a ``key``, on which the table has a primary key or a unique
    index, a row replaces the one of the same key; the sink then takes a ``Table``, whose deletions delete rows, and a
    stream with the column ``_change`` (``insert``, ``update``, ``delete``).

    The table has a column for each column of the rows, of a type that holds its values, and may have others with a
    default. This is checked when the job is submitted, and again after an error.

    If the server cannot be reached, is shut down, ends the transaction because of a conflict or has a full disk, the
    transaction is repeated until ``away`` has passed; then the job stops. So it does at once if the server refuses the
    user, or rows: SinkError. Raises GraphError for a key that is no column, and for a type that the server has not.
    """

    def __init__(
        self,
        dsn: str,
        table: str,
        *,
        key: str | Sequence[str] = (),
        password: Secret | None = None,
        away: Duration = "5m",
    ) -> None:
        self._address = PostgresAddress("PostgresSink", dsn, password)
        self._table = TableName.of(table)
        self._key = names_of(key)
        self._away_s = micros(away) / 1e6
        self.upserts = self.deletes = bool(self._key)
        self.identifies = tuple(self._key)
        self.place = table

    def create(self, schema: pa.Schema) -> Sink:
        target = self._target(schema)
        if unknown := [name for name in target.key if name not in target.schema.names]:
            raise GraphError(
                f"PostgresSink: key {unknown[0]!r} is not one of the columns {', '.join(target.schema.names)}"
            )
        if CHANGE_COLUMN in schema.names and not self._key:
            raise GraphError(f"PostgresSink: the rows have a column {CHANGE_COLUMN!r}, so the sink needs a key=")
        for field in target.schema:
            if best_type(field.type) is None:
                raise GraphError(f"PostgresSink: no column of a table holds {field.name!r}, which is {field.type}")
        return super().create(schema)

    def resolve(self, schema: pa.Schema) -> None:
        where = str(self._address)
        try:
            with self._address.connect("clonos check") as connection:
                _, problem = self._target(schema).checked(connection)
                _create_commits(connection, self._table.beside(COMMITS_TABLE))
        except psycopg.Error as failure:
            raise SinkError(f"{where}: {told(failure)}") from None
        if problem is not None:
            raise SinkError(f"{where}: {problem}")

    def open(self, schema: pa.Schema) -> RowCommitter:
        return PostgresCommitter(self._address, self._target(schema), self._away_s)

    def _target(self, schema: pa.Schema) -> SinkTarget:
        return SinkTarget(self._table, without(schema, CHANGE_COLUMN), self._key)


class PostgresCommitter(RowCommitter):
    """The committer of one task. Its connection is replaced after a failure."""

    def __init__(self, address: PostgresAddress, target: SinkTarget, away_s: float) -> None:
        self._address, self._target = address, target
        self._where = f"{address}"
        self._patience = Patience(self._where, away_s, SinkError)
        self._connection: Connection | None = None
        self._writer: _Writer | None = None

    def commit(self, commit: CommitId, rows: pa.Table) -> None:
        self._patience.run(lambda: self._commit(commit, rows), self.close, self._refused)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = self._writer = None

    def _commit(self, commit: CommitId, rows: pa.Table) -> None:
        if self._connection is None:
            self._connection = self._address.connect(f"clonos {commit.owner}")
        if self._writer is None:
            self._writer = self._checked(self._connection)
        with self._connection.transaction():
            if _mark(self._connection, self._target.table.beside(COMMITS_TABLE), commit):
                self._writer.write(self._connection, rows)

    def _checked(self, connection: Connection) -> _Writer:
        found, problem = self._target.checked(connection)
        if found is None or problem is not None:
            raise SinkError(f"{self._where}: {problem}")
        _create_commits(connection, found.name.beside(COMMITS_TABLE))
        return _Writer(self._target, found)

    def _refused(self, problem: psycopg.Error) -> str:
        """What is wrong: with the table, if that has changed, else with the rows."""
        change: str | None = None
        if self._connection is not None and not self._connection.broken:
            try:
                _, change = self._target.checked(self._connection)
            except psycopg.Error:
                change = None
        return (
            f"table {self._target.table}: {told(problem)}" if change is None else f"{change} (it has changed meanwhile)"
        )


class _Writer:
    """Writes rows to a table within a transaction."""

    def __init__(self, target: SinkTarget, found: FoundTable) -> None:
        self._target, self._table = target, found.name.sql
        self._arrays = frozenset(column.name for column in found.columns if column.array)

    def write(self, connection: Connection, rows: pa.Table) -> None:
        names = self._target.schema.names
        if not self._target.key:
            self._copy(connection, self._table, rows.select(names))
            return
        present, deleted = last_changes(rows, self._target.key)
        if deleted.num_rows:
            self._delete(connection, deleted.select(list(self._target.key)))
        if present.num_rows:
            self._upsert(connection, present.select(names))

    def _copy(self, connection: Connection, table: sql.Composable, rows: pa.Table) -> None:
        statement = sql.SQL("COPY {} ({}) FROM STDIN (FORMAT csv)").format(table, _columns(rows.schema.names))
        with connection.cursor().copy(statement) as copy:
            for start in range(0, rows.num_rows, _ROWS_AT_ONCE):
                copy.write(bytes(copied(rows.slice(start, _ROWS_AT_ONCE), self._arrays)))

    def _delete(self, connection: Connection, keys: pa.Table) -> None:
        same = sql.SQL(" AND ").join(sql.SQL("t.{0} = s.{0}").format(sql.Identifier(name)) for name in self._target.key)
        staged = self._staged(connection, "clonos_deleted", keys)
        connection.execute(sql.SQL("DELETE FROM {} t USING {} s WHERE {}").format(self._table, staged, same))

    def _upsert(self, connection: Connection, rows: pa.Table) -> None:
        others = [name for name in rows.schema.names if name not in self._target.key]
        replaced = sql.SQL(", ").join(sql.SQL("{0} = excluded.{0}").format(sql.Identifier(name)) for name in others)
        statement = sql.SQL(
            "INSERT INTO {table} ({columns}) OVERRIDING SYSTEM VALUE SELECT {columns} FROM {staged} "
            "ON CONFLICT ({key}) DO {action}"
        ).format(
            table=self._table,
            columns=_columns(rows.schema.names),
            staged=self._staged(connection, "clonos_changed", rows),
            key=_columns(self._target.key),
            action=sql.SQL("UPDATE SET {}").format(replaced) if others else sql.SQL("NOTHING"),
        )
        connection.execute(statement)

    def _staged(self, connection: Connection, name: str, rows: pa.Table) -> sql.Composable:
        """A table with these rows, which lasts as long as the transaction."""
        table = sql.Identifier("pg_temp", name)
        connection.execute(
            sql.SQL("CREATE TEMPORARY TABLE {} ON COMMIT DROP AS SELECT {} FROM {} WITH NO DATA").format(
                sql.Identifier(name), _columns(rows.schema.names), self._table
            )
        )
        self._copy(connection, table, rows)
        return table


def _columns(names: Sequence[str]) -> sql.Composable:
    return sql.SQL(", ").join(map(sql.Identifier, names))


def _mark(connection: Connection, commits: TableName, commit: CommitId) -> bool:
    """False if this commit, or a later one of its owner, is marked already. Waits for a transaction that is about to
    mark it."""
    marked = connection.execute(
        sql.SQL(
            "INSERT INTO {0} AS c (owner, checkpoint) VALUES (%s, %s) ON CONFLICT (owner) DO UPDATE SET "
            "checkpoint = excluded.checkpoint, at = excluded.at WHERE excluded.checkpoint > c.checkpoint"
        ).format(commits.sql),
        commit,
    )
    return marked.rowcount == 1


def _create_commits(connection: Connection, table: TableName) -> None:
    """Several tasks may do so at once, of which some then fail."""
    name = table.sql.as_string(connection)
    while connection.execute("SELECT to_regclass(%s)", [name]).fetchone() == (None,):
        try:
            connection.execute(
                sql.SQL(
                    "CREATE TABLE IF NOT EXISTS {} (owner text PRIMARY KEY, checkpoint bigint NOT NULL, "
                    "at timestamptz NOT NULL DEFAULT now())"
                ).format(table.sql)
            )
        except psycopg.errors.UniqueViolation:
            continue
