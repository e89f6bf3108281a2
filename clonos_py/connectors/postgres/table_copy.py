"""Reads the copy of a table that was made with its slot: rows by their number."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.csv as pa_csv
from psycopg import sql

from clonos_py.connectors.postgres.catalog import TableName
from clonos_py.connectors.postgres.server import Connection, PostgresAddress
from clonos_py.connectors.postgres.slot import NUMBER_COLUMN, listed
from clonos_py.connectors.postgres.text_values import parsed
from clonos_py.model.errors import SourceError
from clonos_py.model.tables import CHANGE_COLUMN, INSERT


class CopyReader:
    """Reads rows as insertions, with these columns of ``schema``. ``name``: what the server shows the connection as."""

    def __init__(
        self, address: PostgresAddress, name: str, copy: TableName, schema: pa.Schema, names: Sequence[str]
    ) -> None:
        self._address, self._name, self._copy = address, name, copy
        self._schema = pa.schema([schema.field(column) for column in names])
        self._columns = [column for column in names if column != CHANGE_COLUMN]
        self._connection: Connection | None = None

    def read(self, start: int, stop: int) -> pa.RecordBatch:
        """The rows ``start`` + 1 to ``stop``. Raises psycopg.Error, and SourceError for a value that does not fit."""
        if self._connection is None:
            self._connection = self._address.connect(f"{self._name} snapshot")
        number = sql.Identifier(NUMBER_COLUMN)
        selected = sql.SQL("COPY (SELECT {} FROM {} WHERE {} > {} AND {} <= {} ORDER BY {}) TO STDOUT (FORMAT csv)")
        statement = selected.format(
            listed(self._columns or [NUMBER_COLUMN]), self._copy.sql, number, start, number, stop, number
        )
        lines = io.BytesIO()
        with self._connection.cursor().copy(statement) as copy:
            for line in copy:
                lines.write(line)
        texts = _texts(lines.getvalue(), self._columns)
        columns = [
            pa.array([INSERT] * (stop - start))
            if field.name == CHANGE_COLUMN
            else _values(texts.column(field.name).combine_chunks(), field)
            for field in self._schema
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def drop(self) -> None:
        """Closes the connection."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


def _values(texts: Any, field: pa.Field[Any]) -> Any:
    found = parsed(texts, field.type, field.name)
    if found.null_count and not field.nullable:
        raise SourceError(f"column {field.name!r} has nulls: declare it '| None'")
    return found


def _texts(lines: bytes, columns: Sequence[str]) -> pa.Table:
    """The columns of lines of CSV, unconverted. A null is an empty field, and an empty text is in quotes."""
    if not lines or not columns:
        return pa.table({name: pa.array([], pa.string()) for name in columns})
    return pa_csv.read_csv(
        io.BytesIO(lines),
        pa_csv.ReadOptions(column_names=list(columns), use_threads=False, block_size=max(1 << 20, len(lines) + 1)),
        pa_csv.ParseOptions(newlines_in_values=True),
        pa_csv.ConvertOptions(
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
            column_types={name: pa.string() for name in columns},
        ),
    )
