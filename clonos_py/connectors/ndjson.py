"""Encodes rows as lines of JSON."""

from __future__ import annotations

import io

import pyarrow as pa

from clonos_py.connectors.written_times import written_times


def encoded(rows: pa.Table | pa.RecordBatch) -> memoryview:
    """One line for each row; NaN and infinities become null. Raises pa.ArrowInvalid for rows that JSON cannot express.

    Polars is imported on first use: most processes write no JSON.
    """
    import polars as pl

    lines = io.BytesIO()  # through Polars a disk error would lose its errno
    try:
        pl.DataFrame(pl.from_arrow(written_times(rows))).write_ndjson(lines)
    except pl.exceptions.PolarsError as error:
        raise pa.ArrowInvalid(str(error)) from error
    return lines.getbuffer()
