"""SQL over the tables of an operator's state, and the rows of one key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from clonos_py.model.errors import SettingError, one_line


def queried(tables: Mapping[str, pa.Table], query: str) -> pa.Table:
    """The answer to a query in Polars' SQL. Raises SettingError for a query that cannot be answered."""
    import polars as pl

    frames: dict[str, Any] = {name: pl.from_arrow(_without_maps(table)) for name, table in tables.items()}
    try:
        found: Any = pl.SQLContext(frames, eager=True).execute(query)
        return found.to_arrow()  # type: ignore[no-any-return]
    except (pl.exceptions.PolarsError, ValueError, TypeError) as error:
        named = "; ".join(f"{name}({', '.join(table.column_names)})" for name, table in tables.items())
        raise SettingError(f"--sql: {one_line(str(error).splitlines()[0])}; the tables are {named}") from error


def _without_maps(table: pa.Table) -> pa.Table:
    """Polars has no maps: a list of entries, with the fields ``key`` and ``value``."""
    fields = [pa.field(field.name, _listed(field.type)) for field in table.schema]
    return table.cast(pa.schema(fields)) if fields else table


def _listed(kind: Any) -> pa.DataType:
    if pa.types.is_map(kind):
        return pa.list_(pa.struct([("key", _listed(kind.key_type)), ("value", _listed(kind.item_type))]))
    if pa.types.is_list(kind):
        return pa.list_(_listed(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([(field.name, _listed(field.type)) for field in kind])
    return kind  # type: ignore[no-any-return]


def of_keys(
    tables: Mapping[str, pa.Table], keys: Mapping[str, Sequence[str]], given: Sequence[str]
) -> dict[str, pa.Table]:
    """The rows of one key. ``keys``: by table, its key columns. ``given``: ``NAME=VALUE`` for each, or ``VALUE`` if
    there is only one. Tables without such a key are left out. Raises SettingError."""
    found = dict(tables)
    for text in given:
        name, equals, value = text.partition("=")
        named = bool(equals) and any(name in columns for columns in keys.values())
        found = {
            table: _equal(rows, column, value if named else text)
            for table, rows in found.items()
            if (column := _column(keys.get(table, ()), name if named else None, text)) is not None
        }
    if not found:
        every = sorted({name for columns in keys.values() for name in columns})
        raise SettingError(f"--key {' '.join(given)}: the keys are {', '.join(every) or 'none'}")
    return found


def _column(keys: Sequence[str], name: str | None, text: str) -> str | None:
    if name is not None:
        return name if name in keys else None
    if len(keys) > 1:
        raise SettingError(f"--key {text}: give NAME=VALUE, with one of the key columns {', '.join(keys)}")
    return keys[0] if keys else None


def _equal(rows: pa.Table, column: str, text: str) -> pa.Table:
    kind: Any = rows.schema.field(column).type
    try:
        value = pa.array([text]).cast(kind)[0]
    except (pa.ArrowException, NotImplementedError) as error:
        raise SettingError(f"--key: {text!r} is no value of the key {column!r}, which is {kind}") from error
    return rows.filter(pc.equal(rows.column(column), value))
