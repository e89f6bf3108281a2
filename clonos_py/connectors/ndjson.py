"""Encodes rows as lines of JSON.

Polars encodes. A few rows of plain types are encoded by msgspec, to the same bytes: ten rows of four columns take 40 us
instead of 550 us, and a process that only writes a few at once does not import Polars, which takes 0.1 s.
"""

from __future__ import annotations

import io
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from clonos_py.connectors.written_times import written_times

_FEW = 256
"""Up to as many rows msgspec takes less time than Polars."""
_PLAIN = frozenset([pa.int64(), pa.int32(), pa.float64(), pa.string(), pa.bool_(), pa.null()])
_FLOAT_MIN, _FLOAT_MAX = 1e-4, 1e15
"""Between these the two write the same text for a float; beyond, exponents differ (``1e17`` and ``1e+17``)."""
_ENCODER = msgspec.json.Encoder()
_MARK = "\ue0f5"
"""A character that Unicode leaves to private use."""


def encoded(rows: pa.Table | pa.RecordBatch) -> memoryview:
    """One line for each row; NaN and infinities become null. Raises pa.ArrowInvalid for rows that JSON cannot
    express."""
    written = written_times(rows)
    if 0 < written.num_rows <= _FEW and _has_plain_columns(written.schema):
        plain = written.to_pylist()
        floats = [field.name for field in written.schema if field.type == pa.float64()]
        if all(_has_plain_text(row[name]) for row in plain for name in floats):
            return memoryview(_ENCODER.encode_lines(plain))
    exact = [
        number
        for number, field in enumerate(written.schema)
        if pa.types.is_decimal(field.type) and pa.types.is_timestamp(rows.schema.field(number).type)
    ]
    return _with_exact_numbers(written, exact) if exact else _lines(written)


def _lines(table: pa.Table) -> memoryview:
    import polars as pl

    lines = io.BytesIO()  # through Polars a disk error would lose its errno
    try:
        frame = pl.DataFrame(pl.from_arrow(table))
        frame.columns = table.schema.names  # Polars gives a column without a name one
        frame.write_ndjson(lines)
    except pl.exceptions.PolarsError as error:
        raise pa.ArrowInvalid(str(error)) from error
    return lines.getbuffer()


def _with_exact_numbers(table: pa.Table, columns: list[int]) -> memoryview:
    """The lines with decimals as numbers, as no float has their digits. Polars writes decimals as text, so a mark that
    occurs nowhere else encloses them, and is removed with the quotes."""
    numbers: list[Any] = [pc.replace_substring_regex(table.column(n).cast(pa.string()), r"\.?0*$", "") for n in columns]
    mark = _MARK
    while True:
        marked = table
        for number, text in zip(columns, numbers, strict=True):
            enclosed: Any = pc.binary_join_element_wise(pa.scalar(mark), text, pa.scalar(mark), pa.scalar(""))
            marked = marked.set_column(number, table.schema.names[number], enclosed)
        lines = bytes(_lines(marked))
        if lines.count(mark.encode()) == 2 * sum(len(text) - text.null_count for text in numbers):
            break
        mark += _MARK
    return memoryview(lines.replace(f'"{mark}'.encode(), b"").replace(f'{mark}"'.encode(), b""))


def _has_plain_columns(schema: pa.Schema) -> bool:
    """Whether msgspec writes the same bytes for rows of these columns, apart from some floats."""
    names = schema.names
    return len(set(names)) == len(names) > 0 and _PLAIN.issuperset(schema.types)


def _has_plain_text(number: float | None) -> bool:
    """Whether msgspec writes the same bytes for a float."""
    return not number or _FLOAT_MIN <= abs(number) < _FLOAT_MAX
