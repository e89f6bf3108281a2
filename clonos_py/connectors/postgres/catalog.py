"""What a server says about a table: its columns, and the keys that are unique in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from psycopg import sql

from clonos_py.connectors.postgres.server import Connection


@dataclass(frozen=True)
class TableName:
    """``schema`` is None for a table that is found by the search path of the connection."""

    table: str
    schema: str | None = None

    @classmethod
    def of(cls, written: str) -> TableName:
        """Of ``table`` or ``schema.table``, each as it is spelled in the catalog."""
        schema, dot, table = written.rpartition(".")
        return cls(table, schema if dot else None)

    def __str__(self) -> str:
        return self.table if self.schema is None else f"{self.schema}.{self.table}"

    @property
    def sql(self) -> sql.Identifier:
        return sql.Identifier(self.table) if self.schema is None else sql.Identifier(self.schema, self.table)

    def beside(self, table: str) -> TableName:
        """Another table of the same schema."""
        return TableName(table, self.schema)


@dataclass(frozen=True)
class TableColumn:
    """``type``: as SQL spells it, such as ``numeric(10,2)``. ``base``: its name in the catalog, such as ``numeric``;
    for an array that of its elements, for a domain that of the type behind it. ``category``: see
    ``pg_type.typcategory``."""

    name: str
    type: str
    base: str
    category: str
    array: bool
    required: bool
    """Whether a row without it is refused: it takes no null and has no default."""
    nullable: bool
    generated: bool


@dataclass(frozen=True)
class FoundTable:
    """A table of the catalog. ``keys``: the columns of each unique index without a condition; ``primary``: those of the
    primary key; ``replica``: those that identify the old row of a change; ``full``: whether changes have the whole old
    row; ``ordinary``: whether it has rows of its own, or in partitions, which is then ``partitioned``."""

    id: int
    name: TableName
    columns: Sequence[TableColumn]
    keys: Sequence[frozenset[str]]
    primary: frozenset[str]
    replica: frozenset[str]
    full: bool
    ordinary: bool
    partitioned: bool

    def column(self, name: str) -> TableColumn | None:
        return next((column for column in self.columns if column.name == name), None)


_TABLE = """
    SELECT c.oid::int8, n.nspname, c.relkind IN ('r', 'p'), c.relkind = 'p', c.relreplident::text
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE c.oid = to_regclass(%s) AND c.relkind IN ('r', 'p', 'f', 'v')
"""
_COLUMNS = """
    WITH RECURSIVE resolved AS (
        SELECT a.attnum, a.attname, a.atttypid AS type, a.atttypid, a.atttypmod, a.attnotnull, a.atthasdef,
               a.attgenerated, a.attidentity
        FROM pg_attribute a WHERE a.attrelid = %s AND a.attnum > 0 AND NOT a.attisdropped
        UNION ALL
        SELECT r.attnum, r.attname, t.typbasetype, r.atttypid, r.atttypmod, r.attnotnull OR t.typnotnull, r.atthasdef,
               r.attgenerated, r.attidentity
        FROM resolved r JOIN pg_type t ON t.oid = r.type AND t.typtype = 'd'
    )
    SELECT r.attname, format_type(r.atttypid, r.atttypmod), coalesce(e.typname, t.typname), t.typcategory::text,
           e.oid IS NOT NULL, r.attnotnull, r.atthasdef OR r.attidentity <> '', r.attgenerated <> ''
    FROM resolved r JOIN pg_type t ON t.oid = r.type AND t.typtype <> 'd'
    LEFT JOIN pg_type e ON e.oid = t.typelem AND t.typcategory = 'A'
    ORDER BY r.attnum
"""
_KEYS = """
    SELECT array_agg(a.attname::text), i.indisprimary, i.indisreplident
    FROM pg_index i JOIN pg_attribute a
        ON a.attrelid = i.indrelid AND a.attnum = ANY ((i.indkey::int2[])[0:i.indnkeyatts - 1])
    WHERE i.indrelid = %s AND i.indisunique AND i.indisvalid AND i.indpred IS NULL AND i.indexprs IS NULL
    GROUP BY i.indexrelid, i.indisprimary, i.indisreplident
"""


def look_up(connection: Connection, name: TableName) -> FoundTable | None:
    """The table as it is now; None if there is none. Raises psycopg.Error."""
    found = connection.execute(_TABLE, [name.sql.as_string(connection)]).fetchone()
    if found is None:
        return None
    table, schema, ordinary, partitioned, identity = found
    columns = [
        TableColumn(column, type_, base, category, array, notnull and not default, not notnull, generated)
        for column, type_, base, category, array, notnull, default, generated in connection.execute(_COLUMNS, [table])
    ]
    indexes = connection.execute(_KEYS, [table]).fetchall()
    primary: frozenset[str] = frozenset(*(names for names, is_primary, _ in indexes if is_primary))
    chosen: frozenset[str] = frozenset(*(names for names, _, is_chosen in indexes if is_chosen))
    replica = {"d": primary, "i": chosen}.get(identity, frozenset[str]())
    keys = [frozenset(names) for names, _, _ in indexes]
    full_name = TableName(name.table, schema)
    full_row = identity == "f"
    return FoundTable(table, full_name, columns, keys, primary, replica, full_row, ordinary, partitioned)
