"""Rows on the terminal."""

from __future__ import annotations

import io
import sys

import polars as pl
import pyarrow as pa

from clonos_py.connectors.row_files import check_columns
from clonos_py.model.connectors import SinkDefinition
from clonos_py.model.operators import Sink


class PrintSink(SinkDefinition):
    """Prints each row as one line of JSON, as soon as it comes: after a failure some may be printed again."""

    def create(self, schema: pa.Schema) -> Sink:
        check_columns("PrintSink", "jsonl", schema)
        return _Printer()


class _Printer(Sink):
    def on_rows(self, rows: pa.RecordBatch, side: int) -> None:
        text = io.BytesIO()
        pl.DataFrame(pl.from_arrow(rows)).write_ndjson(text)
        sys.stdout.write(text.getvalue().decode())
        sys.stdout.flush()
        self.ctx.count("rows_out", rows.num_rows)
