"""The replication slot of a source, and a copy of the table as it was when the slot was created.

A slot keeps all changes from its creation on until they are confirmed. Its creation exports a snapshot of the database
at exactly that point, but only for the connection that created it: a task that replaced another one could not read it
again. So the rows of the snapshot are copied, numbered, into a table of the connector, in the transaction that also
records the slot. Any process can read them, as often as needed, until a checkpoint covers the last one; then they are
dropped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import psycopg
from psycopg import sql

from clonos_py.connectors.postgres.catalog import FoundTable, TableName
from clonos_py.connectors.postgres.server import Connection, PostgresAddress
from clonos_py.model.errors import SourceError

SLOTS_TABLE = "clonos_slots"
NUMBER_COLUMN = "~number"


@dataclass(frozen=True)
class Slot:
    """``start``: the position in the log at which its changes begin. ``rows``: the number of rows that the table had
    there; 0 if they are not read."""

    name: str
    start: int
    rows: int


def of_text(lsn: str) -> int:
    """The position in the log, in bytes, of the form ``16/B374D848``."""
    high, _, low = lsn.partition("/")
    return (int(high, 16) << 32) + int(low, 16)


def as_text(lsn: int) -> str:
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


def drop_statement(slot: str) -> str:
    return f"SELECT pg_drop_replication_slot('{slot}')"


class SlotKeeper:
    """Creates the slot of a source, finds it again, and ends the copy of the table. ``where`` is named in errors."""

    def __init__(self, address: PostgresAddress, table: TableName, slot: str, publication: str) -> None:
        self._address, self._table, self._slot, self._publication = address, table, slot, publication
        self.where = f"{address}, slot {slot!r}"

    @property
    def copy(self) -> TableName:
        """The table with the rows of the snapshot."""
        return self._table.beside(f"clonos_copy_{self._slot}"[:63])

    @property
    def _slots(self) -> TableName:
        return self._table.beside(SLOTS_TABLE)

    def find(self, connection: Connection) -> Slot | None:
        """The slot, if this connector has created it; None if there is none. Raises SourceError for another one."""
        found = connection.execute(
            "SELECT plugin, database, wal_status, database = current_database() FROM pg_replication_slots "
            "WHERE slot_name = %s",
            [self._slot],
        ).fetchone()
        if found is None:
            return None
        plugin, database, status, here = found
        if plugin != "pgoutput" or not here:
            raise SourceError(
                f"{self.where}: it is of plugin {plugin!r} and database {database!r}: choose another slot="
            )
        if status == "lost":
            raise SourceError(f"{self.where}: {lost(self._slot)}")
        record = self._recorded(connection)
        if record is None:
            raise SourceError(
                f"{self.where}: it exists, and was not created by this source, or not completely: choose another "
                "slot=, "
                f"or {drop_statement(self._slot)}"
            )
        table, start, rows = record
        if table != self._table.table:
            raise SourceError(f"{self.where}: it is that of table {table!r}: choose another slot=")
        return Slot(self._slot, of_text(start), rows)

    def _recorded(self, connection: Connection) -> tuple[str, str, int] | None:
        if not _exists(connection, self._slots):
            return None
        found = connection.execute(
            sql.SQL('SELECT "table", start::text, rows FROM {} WHERE slot = %s').format(self._slots.sql), [self._slot]
        ).fetchone()
        return None if found is None else (found[0], found[1], found[2])

    def create(self, connection: Connection, found: FoundTable, columns: Sequence[str], snapshot: bool) -> Slot:
        """Creates the slot and, with ``snapshot``, the copy of these columns. Raises psycopg.Error."""
        with self._address.connect("clonos snapshot", replication="database") as creating:
            created = creating.execute(
                sql.SQL("CREATE_REPLICATION_SLOT {} LOGICAL pgoutput EXPORT_SNAPSHOT").format(
                    sql.Identifier(self._slot)
                )
            ).fetchone()
            assert created is not None
            try:
                rows = self._record(connection, created[1], created[2] if snapshot else None, found, columns)
            except BaseException:
                creating.close()
                connection.execute("SELECT pg_drop_replication_slot(%s)", [self._slot])
                raise
        return Slot(self._slot, of_text(created[1]), rows)

    def _record(
        self, connection: Connection, start: str, snapshot: str | None, found: FoundTable, columns: Sequence[str]
    ) -> int:
        with connection.transaction():
            connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            if snapshot is not None:
                connection.execute(sql.SQL("SET TRANSACTION SNAPSHOT {}").format(snapshot))
            rows = 0 if snapshot is None else self._copied(connection, found, columns)
            connection.execute(
                sql.SQL(
                    'CREATE TABLE IF NOT EXISTS {} (slot text PRIMARY KEY, "table" text NOT NULL, start pg_lsn '
                    "NOT NULL, "
                    "rows bigint NOT NULL)"
                ).format(self._slots.sql)
            )
            connection.execute(
                sql.SQL(
                    "INSERT INTO {} VALUES (%s, %s, %s, %s) ON CONFLICT (slot) DO UPDATE SET "
                    '"table" = excluded."table", start = excluded.start, rows = excluded.rows'
                ).format(self._slots.sql),
                [self._slot, self._table.table, start, rows],
            )
        return rows

    def _copied(self, connection: Connection, found: FoundTable, columns: Sequence[str]) -> int:
        connection.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(self.copy.sql))
        made = connection.execute(
            sql.SQL("CREATE TABLE {} AS SELECT row_number() OVER () AS {}, {} FROM {}").format(
                self.copy.sql, sql.Identifier(NUMBER_COLUMN), listed(columns), found.name.sql
            )
        )
        connection.execute(
            sql.SQL("ALTER TABLE {} ADD PRIMARY KEY ({})").format(self.copy.sql, sql.Identifier(NUMBER_COLUMN))
        )
        return made.rowcount

    def drop_copy(self, connection: Connection) -> None:
        """Drops the copy, as a checkpoint covers its rows."""
        connection.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(self.copy.sql))

    def publish(self, connection: Connection, found: FoundTable) -> None:
        """Makes sure that the publication has all changes of the table. Raises SourceError and psycopg.Error."""
        published = connection.execute(
            "SELECT puballtables OR EXISTS (SELECT FROM pg_publication_tables t WHERE t.pubname = p.pubname AND "
            "t.schemaname = %s AND t.tablename = %s), pubinsert AND pubupdate AND pubdelete AND pubtruncate, "
            "pubviaroot FROM pg_publication p WHERE pubname = %s",
            [found.name.schema, found.name.table, self._publication],
        ).fetchone()
        name = sql.Identifier(self._publication)
        if published is None:
            root = sql.SQL(" WITH (publish_via_partition_root = true)" if found.partitioned else "")
            creation = sql.SQL("CREATE PUBLICATION {} FOR TABLE {}{}").format(name, found.name.sql, root)
            try:
                connection.execute(creation)
            except psycopg.errors.InsufficientPrivilege as problem:
                raise SourceError(
                    f"{self.where}: {problem.diag.message_primary}: let the owner of the table "
                    f"{creation.as_string(connection)}, and name it with publication="
                ) from None
            return
        has_table, has_all, via_root = published
        change = f"{self.where}: ALTER PUBLICATION {self._publication}"
        if not has_table:
            raise SourceError(f"{change} ADD TABLE {found.name}: it does not have the table")
        if not has_all or (found.partitioned and not via_root):
            via = ", publish_via_partition_root = true" if found.partitioned else ""
            options = f"SET (publish = 'insert, update, delete, truncate'{via})"
            raise SourceError(f"{change} {options}: it leaves out changes of the table")


def lost(slot: str) -> str:
    return (
        "the server has removed changes that were not read, since they took more than its max_slot_wal_keep_size: "
        "raise "
        f"that, {drop_statement(slot)}, and start over with --fresh"
    )


def listed(names: Sequence[str]) -> sql.Composable:
    return sql.SQL(", ").join(map(sql.Identifier, names))


def _exists(connection: Connection, table: TableName) -> bool:
    return connection.execute("SELECT to_regclass(%s)", [table.sql.as_string(connection)]).fetchone() != (None,)
