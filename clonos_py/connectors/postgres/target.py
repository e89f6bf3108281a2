"""Whether a table can take the rows of a sink."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from clonos_py.connectors.postgres.catalog import FoundTable, TableName, look_up
from clonos_py.connectors.postgres.fitting import best_type, fits
from clonos_py.connectors.postgres.server import Connection


@dataclass(frozen=True)
class SinkTarget:
    """A table, and the rows that a sink writes to it. ``key``: the columns by which later rows replace earlier ones;
    empty if all rows are added."""

    table: TableName
    schema: pa.Schema
    key: tuple[str, ...]

    @property
    def rights(self) -> str:
        return "SELECT, INSERT, UPDATE, DELETE" if self.key else "INSERT"

    def checked(self, connection: Connection) -> tuple[FoundTable | None, str | None]:
        """The table as it is now, and why it cannot take the rows, with the remedy. Raises psycopg.Error."""
        found = look_up(connection, self.table)
        if found is None:
            columns = ", ".join(self._declared(field) for field in self.schema)
            key = f", PRIMARY KEY ({_listed(self.key)})" if self.key else ""
            return None, f"there is no table {self.table}: CREATE TABLE {self.table} ({columns}{key})"
        return found, self._misfit(found) or self._missing_rights(connection, found)

    def _misfit(self, found: FoundTable) -> str | None:
        change = f"ALTER TABLE {self.table}"
        if not found.ordinary:
            return f"{self.table} is no ordinary table: name one, from which the database may derive others"
        for field in self.schema:
            column = found.column(field.name)
            if column is None:
                declared = self._declared(field).removesuffix(" NOT NULL")
                return (
                    f"table {self.table} has no column {field.name!r}: {change} ADD COLUMN {declared}, or leave it out "
                    "of the rows with .select(...)"
                )
            if column.generated:
                return (
                    f"table {self.table} computes column {field.name!r} itself: leave it out of the rows with "
                    ".select(...)"
                )
            if not fits(field.type, column):
                return (
                    f"column {field.name!r} of table {self.table} has the type {column.type}, and the rows have "
                    f"{field.type}: {change} ALTER COLUMN {_quoted(field.name)} TYPE {best_type(field.type)}, or "
                    "convert it with .with_columns(...)"
                )
        for column in found.columns:
            if column.required and column.name not in self.schema.names:
                return (
                    f"column {column.name!r} of table {self.table} needs a value, and the rows have no such column: "
                    f"add it with .with_columns(...), or {change} ALTER COLUMN {_quoted(column.name)} DROP NOT NULL"
                )
        return self._key_misfit(found, change) if self.key else None

    def _key_misfit(self, found: FoundTable, change: str) -> str | None:
        if frozenset(self.key) not in found.keys:
            return (
                f"table {self.table} has no unique index on exactly the key {', '.join(self.key)}: {change} ADD "
                f"PRIMARY KEY ({_listed(self.key)})"
            )
        for column in found.columns:
            if column.name in self.key and column.nullable:
                return (
                    f"column {column.name!r} of table {self.table} takes nulls, of which each counts as another key: "
                    f"{change} ALTER COLUMN {_quoted(column.name)} SET NOT NULL"
                )
        return None

    def _missing_rights(self, connection: Connection, found: FoundTable) -> str | None:
        wanted = self.rights.split(", ")
        granted = connection.execute(
            "SELECT current_user::text, (SELECT bool_and(has_table_privilege(%s::oid, r)) FROM unnest(%s::text[]) r)",
            [found.id, wanted],
        ).fetchone()
        assert granted is not None
        user, holds = granted
        if holds:
            return None
        return (
            f"user {user!r} may not write to table {self.table}: GRANT {self.rights} ON {self.table} TO {_quoted(user)}"
        )

    @staticmethod
    def _declared(field: pa.Field[pa.DataType]) -> str:
        return f"{_quoted(field.name)} {best_type(field.type)}{'' if field.nullable else ' NOT NULL'}"


def _quoted(name: str) -> str:
    """A name as statements spell it."""
    plain = name.isidentifier() and name.isascii() and name == name.lower()
    return name if plain else '"' + name.replace('"', '""') + '"'


def _listed(names: Sequence[str]) -> str:
    return ", ".join(map(_quoted, names))
