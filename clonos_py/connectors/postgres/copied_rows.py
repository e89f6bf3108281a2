"""Rows in the text format of COPY, made in columns.

CSV, since Arrow writes it and the server reads it into columns of any type: numbers of any width, enums, UUIDs, JSON. A
null is an empty field, and an empty text is in quotes.
"""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv

from clonos_py.connectors.postgres.fitting import is_list

_PLAIN = pa_csv.WriteOptions(include_header=False, quoting_style="needed")


def copied(rows: pa.Table, arrays: frozenset[str]) -> memoryview:
    """The lines. ``arrays``: the columns whose lists become arrays; others become JSON. Raises pa.ArrowInvalid for
    values that have no text."""
    columns = [_written(rows.column(name), name in arrays) for name in rows.schema.names]
    lines = io.BytesIO()
    pa_csv.write_csv(pa.table(columns, names=rows.schema.names), lines, _PLAIN)
    return lines.getbuffer()


def _written(column: Any, array: bool) -> Any:
    """The column as one that CSV can have."""
    kind = column.type
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return _in_hexadecimal(column)
    if pa.types.is_duration(kind):
        return _joined(column.cast(pa.duration("us")).cast(pa.int64()).cast(pa.string()), " microseconds")
    if is_list(kind) and array:
        return pa.chunked_array([_as_array(chunk) for chunk in column.chunks], pa.string())
    if pa.types.is_nested(kind):
        return _as_json(column)
    return column


def _joined(text: Any, end: str) -> Any:
    return pc.binary_join_element_wise(text, pa.scalar(end), pa.scalar(""))


def _in_hexadecimal(column: Any) -> Any:
    import polars as pl

    found = pl.Series(pl.from_arrow(column))
    return ("\\x" + found.bin.encode("hex")).to_arrow()


def _as_json(column: Any) -> Any:
    """The values as JSON. A list is written as the field of an object, which is then left out."""
    import polars as pl

    if pa.types.is_struct(column.type):
        return pl.Series(pl.from_arrow(column)).struct.json_encode().to_arrow()
    whole = pl.DataFrame({"v": pl.from_arrow(column)}).select(text=pl.struct("v").struct.json_encode())["text"]
    values = whole.str.slice(len('{"v":')).str.strip_suffix("}").to_arrow()
    return pc.if_else(pc.is_valid(column.combine_chunks()), values, pa.scalar(None, values.type))


def _as_array(lists: Any) -> Any:
    """Lists in the server's notation: ``{"a",NULL}``. Within the quotes of a text a backslash is before each quote and
    each backslash."""
    column = pa.chunked_array([lists.flatten()])
    elements: Any = pa.table({"v": _written(column, False)}).column("v").combine_chunks().cast(pa.string())
    if not pa.types.is_boolean(column.type) and not pa.types.is_integer(column.type):
        elements = pc.replace_substring_regex(elements, r'(["\\])', r"\\\1")
        elements = pc.binary_join_element_wise(pa.scalar('"'), elements, pa.scalar('"'), pa.scalar(""))
    elements = pc.fill_null(elements, "NULL")
    lengths = np.asarray(pc.list_value_length(lists).fill_null(0))
    offsets = pa.array(np.concatenate([[0], np.cumsum(lengths)]), pa.int32())
    texts: Any = pc.binary_join(pa.ListArray.from_arrays(offsets, elements), ",")
    whole: Any = pc.binary_join_element_wise(pa.scalar("{"), texts, pa.scalar("}"), pa.scalar(""))
    return pc.if_else(pc.is_valid(lists), whole, pa.scalar(None, pa.string()))
