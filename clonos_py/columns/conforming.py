"""Gives stored rows the columns that an operator has for them today."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from clonos_py.columns.views import plain_type
from clonos_py.model.errors import CheckpointError
from clonos_py.model.state import Chunk, OperatorState


def conformed(parts: Sequence[OperatorState], tables: Mapping[str, pa.Schema]) -> Sequence[OperatorState]:
    """The snapshots with the chunks of each table of ``tables`` in these columns. Columns that are not there are left
    out, numbers get their type, and a column that was not stored is null. Chunks that fit or are of other tasks' rows,
    and tables that are not in ``tables``, stay the same objects. Raises CheckpointError for columns that cannot be
    taken over."""
    return [_conformed(part, tables) for part in parts]


def _conformed(part: OperatorState, tables: Mapping[str, pa.Schema]) -> OperatorState:
    changed = {
        table: [_chunk(chunk, tables[table], table) for chunk in chunks]
        for table, chunks in part.tables.items()
        if table in tables and any(not _stays(chunk, tables[table]) for chunk in chunks)
    }
    return OperatorState({**part.tables, **changed}, part.values) if changed else part


def _chunk(chunk: Chunk, schema: pa.Schema, table: str) -> Chunk:
    if _stays(chunk, schema):
        return chunk
    columns: list[Any] = [_column(chunk.rows, field, table) for field in schema]
    return Chunk(pa.RecordBatch.from_arrays(columns, schema=schema))


def _stays(chunk: Chunk, schema: pa.Schema) -> bool:
    return chunk.of_others or _fits(chunk.rows.schema, schema)


def _column(rows: pa.RecordBatch, field: pa.Field[Any], table: str) -> Any:
    if field.name in rows.schema.names:
        column = rows.column(field.name)
        try:
            return column if column.type == field.type else column.cast(field.type)
        except pa.ArrowInvalid as error:
            raise CheckpointError(f"column {field.name!r} of the stored table {table!r}: {error}") from error
    if not field.nullable:
        raise CheckpointError(f"the stored table {table!r} has no column {field.name!r}, which is not nullable")
    return pa.nulls(rows.num_rows, field.type)


def _fits(stored: pa.Schema, schema: pa.Schema) -> bool:
    """Whether columns are the same, apart from a dictionary in which values are encoded. Rows of one table are
    concatenated, so a column that may be null now does not fit one that may not."""
    if stored.equals(schema):
        return True
    return stored.names == schema.names and all(
        was.nullable == is_.nullable and plain_type(was.type) == plain_type(is_.type)
        for was, is_ in zip(stored, schema, strict=True)
    )
