"""The changes of a table of PostgreSQL as a source of jobs (change data capture)."""

from __future__ import annotations

import os
import re
from functools import cached_property, partial
from typing import Any, Literal

import psycopg
import pyarrow as pa

from clonos_py.connectors.postgres.catalog import FoundTable, TableName, look_up
from clonos_py.connectors.postgres.change_reader import ChangeReader, FoundSource, OpenedSource
from clonos_py.connectors.postgres.change_stream import StreamTarget
from clonos_py.connectors.postgres.pgoutput import RowChanges
from clonos_py.connectors.postgres.server import Connection, PostgresAddress, told
from clonos_py.connectors.postgres.slot import SlotKeeper, of_text
from clonos_py.connectors.postgres.table_copy import CopyReader
from clonos_py.connectors.postgres.text_values import readable
from clonos_py.connectors.secrets import Secret
from clonos_py.model.connectors import SourceDefinition
from clonos_py.model.errors import GraphError, SourceError
from clonos_py.model.operators import Source
from clonos_py.model.record import ArrowSchema, Record, schema_of
from clonos_py.model.tables import CHANGE_COLUMN, kind_schema
from clonos_py.model.times import Duration, micros

_SLOT = re.compile(r"[a-z0-9_]{1,48}")
_READ_ROWS = 16_384


class PostgresSource(SourceDefinition[Any]):
    """Follows a table of PostgreSQL by a replication slot: first its rows, then each change of them, in the order of
    the commits. Nothing is missing between the two, and nothing comes twice.

    ``rows`` declares columns of the table, with those of its primary key; others are left out. The stream has one more,
    ``_change``: ``insert``, ``update`` or ``delete``. Of a deleted row only the columns of the table's replica identity
    are known, by default the primary key; the others are null or, if they take none, 0 or empty; with ``REPLICA
    IDENTITY FULL`` all are. An update of the key comes as a deletion and an insertion. ``.to_table("id")`` makes a
    table of the stream. Its keys, and those of a sink that gets the changes, are columns of the replica identity.

    ``dsn`` and ``password`` as for ``PostgresSink``. The server needs ``wal_level = logical``, and the user the
    attribute REPLICATION and the right to create tables in the schema of the table.

    ``slot`` is created when the job is submitted for the first time, with a copy of the table's rows, which is dropped
    when a checkpoint covers them; with ``snapshot=False`` the source begins with the changes from then on. The server
    keeps all changes that no completed checkpoint covers, also while the job does not run. Each source has a slot of
    its own; when it is not needed any more, ``SELECT pg_drop_replication_slot('SLOT')``.

    ``publication`` says what the server sends; by default one is created that is called ``clonos_SLOT``. With
    ``stop="latest"`` the source ends with the transactions that were committed when the job was submitted.

    If the server cannot be reached for longer than ``away``, the job stops. So it does, with a SourceError, if the
    table is truncated, if a declared column is dropped, if a value does not fit the declared type, and if the server
    has dropped changes that were not read.
    """

    commits = True

    def __init__(
        self,
        dsn: str,
        table: str,
        rows: type[Record] | ArrowSchema,
        *,
        slot: str,
        publication: str | None = None,
        snapshot: bool = True,
        stop: Literal["latest"] | None = None,
        password: Secret | None = None,
        away: Duration = "5m",
    ) -> None:
        self._address = PostgresAddress("PostgresSource", dsn, password)
        self._table = TableName.of(table)
        if not _SLOT.fullmatch(slot):
            raise GraphError(f"PostgresSource: slot {slot!r}: up to 48 small letters, digits and underscores")
        if stop not in (None, "latest"):
            raise GraphError(f"PostgresSource: unknown stop={stop!r}: give 'latest', or leave it out")
        self._declared = schema_of(rows)
        if CHANGE_COLUMN in self._declared.names:
            raise GraphError(f"PostgresSource: column {CHANGE_COLUMN!r} is that for the kind of change: leave it out")
        self._slot, self._publication = slot, publication or f"clonos_{slot}"
        self._snapshot, self._stop = snapshot, stop
        self._away_s = micros(away) / 1e6
        self._keys = frozenset[str]()
        self.schemas = (kind_schema(self._declared, CHANGE_COLUMN),)
        self.records = (None,)

    @cached_property
    def found(self) -> FoundSource:
        """What the server says about table and slot, which is created if it does not exist. Raises SourceError."""
        keeper = self._keeper
        try:
            with self._address.connect("clonos check") as connection:
                table = self._checked(connection, keeper.where)
                keeper.publish(connection, table)
                slot = keeper.find(connection)
                if slot is None:
                    slot = keeper.create(connection, table, self._declared.names, self._snapshot)
                stop = None if self._stop is None else _end_of_log(connection)
        except psycopg.Error as problem:
            raise SourceError(f"{keeper.where}: {_remedied(problem)}") from None
        return FoundSource(slot, table.id, _identity(table, self._keys), os.urandom(8).hex(), stop)

    @property
    def _keeper(self) -> SlotKeeper:
        return SlotKeeper(self._address, self._table, self._slot, self._publication)

    def identified_by(self, columns: frozenset[str]) -> None:
        self._keys = columns

    def resolve(self) -> None:
        """Each run looks up where the log ends, and has a token of its own."""
        self.__dict__.pop("found", None)
        _ = self.found

    def create(self, columns: tuple[tuple[str, ...] | None, ...], read_rows: int | None = None) -> Source:
        (requested,) = columns
        names = tuple(self.schemas[0].names) if requested is None else requested
        return ChangeReader(partial(self._opened, names), min(_READ_ROWS, read_rows or _READ_ROWS))

    def _opened(self, names: tuple[str, ...]) -> OpenedSource:
        found, keeper, schema = self.found, self._keeper, self.schemas[0]
        target = StreamTarget(
            self._address, keeper.where, found.table, self._slot, self._publication, found.token, found.stop,
            self._away_s,
        )  # fmt: skip
        copy = CopyReader(self._address, target.name, keeper.copy, schema, names)
        return OpenedSource(target, found, keeper, copy, RowChanges(schema, found.identity, names))

    def _checked(self, connection: Connection, where: str) -> FoundTable:
        """The table, if its changes can be followed. Raises SourceError and psycopg.Error."""
        level = connection.execute("SHOW wal_level").fetchone()
        if level != ("logical",):
            raise SourceError(
                f"{where}: wal_level is {level and level[0]!r}: ALTER SYSTEM SET wal_level = 'logical', and restart "
                "the "
                "server"
            )
        found = look_up(connection, self._table)
        if found is None or not found.ordinary:
            raise SourceError(f"{where}: there is no table {self._table} whose changes could be followed")
        if problem := _misfit(self._declared, self._keys, found, self._table):
            raise SourceError(f"{where}: {problem}")
        return found


def _end_of_log(connection: Connection) -> int:
    found = connection.execute("SELECT pg_current_wal_flush_lsn()::text").fetchone()
    assert found is not None
    return of_text(found[0])


def _remedied(problem: psycopg.Error) -> str:
    remedy = ""
    if isinstance(problem, psycopg.errors.InsufficientPrivilege) or "replication role" in str(problem):
        remedy = "; the user needs ALTER ROLE ... REPLICATION, SELECT on the table, and CREATE on its schema"
    elif isinstance(problem, psycopg.errors.ConfigurationLimitExceeded):
        remedy = "; drop slots that are not needed (SELECT * FROM pg_replication_slots), or raise max_replication_slots"
    return told(problem) + remedy


def _identity(found: FoundTable, keys: frozenset[str]) -> frozenset[str]:
    """The columns that identify a row: a change of one of these deletes the row and inserts another one. If old rows
    are sent as a whole, ``keys``, by which the job finds a row, are among them."""
    if not found.full:
        return found.replica
    return found.primary | keys if found.primary else frozenset()


def _misfit(declared: pa.Schema, keys: frozenset[str], found: FoundTable, table: TableName) -> str | None:
    """Why the changes of a table are not those of the declared rows, with the remedy."""
    for field in declared:
        column = found.column(field.name)
        if column is None:
            return f"table {table} has no column {field.name!r}: leave it out of the rows"
        if not readable(field.type, column):
            return (
                f"column {field.name!r} of table {table} has the type {column.type}, and is declared as {field.type}: "
                "declare it as str, or as the type that it has"
            )
        if column.nullable and not field.nullable and field.name not in found.primary:
            return (
                f"column {field.name!r} of table {table} takes nulls: declare it '| None', or ALTER TABLE {table} "
                "ALTER "
                f"COLUMN {field.name} SET NOT NULL"
            )
    if not found.replica and not found.full:
        return (
            f"table {table} has nothing that identifies an old row: ALTER TABLE {table} ADD PRIMARY KEY (...), or "
            "ALTER "
            f"TABLE {table} REPLICA IDENTITY FULL"
        )
    if not found.full and (unknown := sorted(keys - found.replica)):
        return (
            f"the job finds rows of table {table} by {unknown[0]!r} (to_table, or the key of a sink), and of a deleted "
            f"or changed row the server sends the old {', '.join(sorted(found.replica))} only: ALTER TABLE {table} "
            "REPLICA IDENTITY FULL"
        )
    missing = sorted(_identity(found, keys) - set(declared.names))
    return f"column {missing[0]!r} identifies a row of table {table}: declare it, too" if missing else None
