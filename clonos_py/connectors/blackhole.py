"""A sink that only counts rows, to measure the operators upstream of it."""

from __future__ import annotations

import pyarrow as pa

from clonos_py.model.connectors import SinkDefinition
from clonos_py.model.operators import Sink


class BlackholeSink(SinkDefinition):
    """Drops every row and counts it as ``rows_out``."""

    def create(self, schema: pa.Schema) -> Sink:
        return _Blackhole()

    def on_trial(self, folder: str) -> BlackholeSink:
        return self


class _Blackhole(Sink):
    def on_rows(self, rows: pa.RecordBatch, side: int) -> None:
        self.ctx.count("rows_out", rows.num_rows)
