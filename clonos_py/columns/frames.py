"""Converts tables and frames of other libraries to record batches and back: pyarrow tables, pandas and Polars frames,
and anything else with Arrow's C stream interface. Each library is imported only when its frames are requested."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any, Protocol, runtime_checkable

import pyarrow as pa

from clonos_py.columns.casting import cast
from clonos_py.columns.views import plain
from clonos_py.model.errors import UserCodeError

Kind = Callable[[pa.DataType], bool]


@runtime_checkable
class ArrowFrame(Protocol):
    """pyarrow.RecordBatch, pyarrow.Table, pandas.DataFrame (2.2 and later), polars.DataFrame, and others."""

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any: ...


class TabularKind(Enum):
    """The type of argument that a function of batches takes."""

    BATCH = "pyarrow.RecordBatch"
    TABLE = "pyarrow.Table"
    PANDAS = "pandas.DataFrame"
    POLARS = "polars.DataFrame"


class ColumnError(UserCodeError):
    """A column of a frame does not match the schema."""


def frame_of(rows: pa.RecordBatch, kind: TabularKind) -> Any:
    """The rows as a table or frame of this kind."""
    match kind:
        case TabularKind.BATCH:
            return rows
        case TabularKind.TABLE:
            return pa.Table.from_batches([rows])
        case TabularKind.PANDAS:
            return rows.to_pandas()
        case TabularKind.POLARS:
            import polars as pl

            return pl.DataFrame(pl.from_arrow(rows))


def batch_of(frame: ArrowFrame) -> pa.RecordBatch:
    """All rows of a frame, with the types that the engine uses: text as string, no dictionaries, no pandas index.
    Raises ColumnError for anything that cannot be a column."""
    if isinstance(frame, pa.RecordBatch):
        return frame
    table = _table(frame)
    if isinstance(frame, pa.Table):
        whole = table.combine_chunks().to_batches()
        return whole[0] if whole else pa.RecordBatch.from_pylist([], table.schema)
    names = [name for name in table.schema.names if not name.startswith("__index_level_")]
    return pa.RecordBatch.from_arrays([_usual(_whole(table.column(name))) for name in names], names=names)


def batch_with(frame: ArrowFrame, schema: pa.Schema) -> pa.RecordBatch:
    """The columns of a schema, found by name and converted to its types where no value is lost: whole numbers may be
    wider or narrower, or floats, if they fit; a timestamp may become an Instant. Raises ColumnError naming a column."""
    table = _table(frame)
    of_pandas = type(frame).__module__.partition(".")[0] == "pandas"
    columns = [_fitted(table, field, of_pandas) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _table(frame: Any) -> pa.Table:
    if isinstance(frame, pa.Table):
        return frame
    if isinstance(frame, pa.RecordBatch):
        return pa.Table.from_batches([frame])
    try:
        return pa.table(frame)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise ColumnError(f"the frame cannot be read: {'; '.join(map(str, error.args))}") from error


def _whole(column: Any) -> Any:
    """The column as one array, without dictionaries."""
    found = column.combine_chunks()
    found = found if isinstance(found, pa.Array) else pa.concat_arrays(found.chunks)
    if isinstance(found, pa.DictionaryArray) and pa.types.is_string_view(found.dictionary.type):
        texts = found.dictionary.cast(pa.string())  # Arrow cannot take values from string views
        found = pa.DictionaryArray.from_arrays(found.indices, texts)
    return plain(found)


def _usual(column: Any) -> Any:
    target = _usual_type(column.type)
    return column if target == column.type else column.cast(target)


def _usual_type(kind: Any) -> pa.DataType:
    if pa.types.is_large_list(kind) or pa.types.is_list(kind):
        return pa.list_(pa.field("item", _usual_type(kind.value_type), nullable=kind.value_field.nullable))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(f.name, _usual_type(f.type), nullable=f.nullable) for f in kind])
    if any(is_text(kind) for is_text in _TEXT):
        return pa.string()
    if any(is_binary(kind) for is_binary in _BINARY):
        return pa.binary()
    found: pa.DataType = kind
    return found


_TEXT: tuple[Kind, ...] = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
_BINARY: tuple[Kind, ...] = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view)
_NUMBERS: tuple[Kind, ...] = (pa.types.is_integer, pa.types.is_floating)
_ALIKE: tuple[tuple[Kind, ...], ...] = (
    _TEXT,
    _BINARY,
    _NUMBERS,
    (pa.types.is_integer, pa.types.is_decimal),
    (pa.types.is_timestamp,),
    (pa.types.is_date,),
    (pa.types.is_duration,),
    (pa.types.is_time,),
    (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list),
    (pa.types.is_struct,),
)
"""Types in one row of this table convert into each other where the values allow it."""


def _fitted(table: pa.Table, field: pa.Field[Any], of_pandas: bool) -> Any:
    if (count := table.schema.names.count(field.name)) > 1:
        raise ColumnError(f"there are {count} columns {field.name!r}: rename them, or leave them out")
    if not count:
        raise ColumnError(f"column {field.name!r} is absent; there are {', '.join(table.schema.names) or 'none'}")
    column = _whole(table.column(field.name))
    found = str(column.type)
    if of_pandas and pa.types.is_floating(field.type) and pa.types.is_floating(column.type) and not field.nullable:
        column = column.fill_null(float("nan"))  # pandas represents null and NaN by the same value
    try:
        column = _cast(column, field.type)
    except (pa.ArrowException, TypeError) as error:
        raise ColumnError(f"column {field.name!r} is {found}, declared is {field.type}: {error}") from error
    if column.null_count and not field.nullable:
        raise ColumnError(f"column {field.name!r} is partly null, declared is {field.type} without nulls")
    return column


def _cast(column: Any, target: Any) -> Any:
    """Raises TypeError or ArrowException for values that do not fit the type."""
    kind = column.type
    if kind == target:
        return column
    if pa.types.is_timestamp(kind) and target == pa.int64():
        return column.cast(pa.timestamp("us", kind.tz)).cast(target)
    alike = any(any(of(kind) for of in kinds) and any(of(target) for of in kinds) for kinds in _ALIKE)
    if not alike and not pa.types.is_null(kind):
        raise TypeError(f"no value of {kind} is one of {target}")
    return cast(column, target)
