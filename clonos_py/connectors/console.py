"""A sink that prints rows on the terminal."""

from __future__ import annotations

import pyarrow as pa

from clonos_py.connectors.ndjson import encoded
from clonos_py.connectors.row_files import check_columns
from clonos_py.connectors.terminal import terminal
from clonos_py.model.connectors import SinkDefinition
from clonos_py.model.operators import Sink


class PrintSink(SinkDefinition):
    """Prints each row as one line of JSON on the standard output of the run, as soon as it arrives. NaN and infinities,
    which JSON cannot express, are printed as null.

    Lines of one task keep their order, on any node. The failure of a task loses no lines; those since the last
    checkpoint may be printed again, since printed lines cannot be taken back. If the coordinator fails, lines of the
    last fraction of a second that it had not yet passed on are not printed.
    """

    def create(self, schema: pa.Schema) -> Sink:
        check_columns("PrintSink", "jsonl", schema)
        return _Printer()

    def on_trial(self, folder: str) -> PrintSink:
        return self


class _Printer(Sink):
    def on_rows(self, rows: pa.RecordBatch, side: int) -> None:
        terminal().write(bytes(encoded(rows)).decode())
        self.ctx.count("rows_out", rows.num_rows)

    def prepare(self, checkpoint: int) -> None:
        """Flushes: a completed checkpoint is not replayed, so its lines must have reached the terminal."""
        terminal().flush()

    def on_end(self) -> None:
        terminal().flush()
