"""A sink of one's own that writes rows as they come, where writing a row again does no harm."""

from __future__ import annotations

import pyarrow as pa

from clonos_py.connectors.users_code import failures_of
from clonos_py.model.connectors import Delivery, SinkDefinition
from clonos_py.model.errors import SinkError
from clonos_py.model.operators import Sink


class RowWriter:
    """Writes the rows of one task, in the process and the thread of that task, which waits meanwhile."""

    def write(self, rows: pa.RecordBatch) -> None:
        """Writes rows, or keeps them until ``flush``. After a failure rows since the last checkpoint come again, equal
        to those before and in the same order: written twice they must look as if written once."""
        raise NotImplementedError

    def flush(self) -> None:
        """Before a checkpoint, and at the end: makes durable what was written. None of it comes again."""

    def close(self) -> None:
        """Releases what the writer holds. Not called when the process is killed."""


class IdempotentSink(SinkDefinition):
    """Base of sinks of one's own whose rows are visible at once, and replace equal ones that were written before a
    failure: by a key that each row has. Write ``open``.

    Rows must not change when they are computed again. They do not while single tasks fail, with the full sharing
    depth. Others may be computed, where functions are not deterministic or the order of rows decides, if the task that
    computes them dies at once with the one that writes them, if a job that was killed as a whole is resumed, and if it
    rolls back. A process that had hung may write after its replacement: where an old value must never replace a
    newer one, take a ``TransactionalSink``. ``upserts`` and ``deletes`` are as there.

    The definition travels to the tasks as a pickle: keep addresses in it, not connections.
    """

    delivery = Delivery.IDEMPOTENT

    def open(self, schema: pa.Schema) -> RowWriter:
        """What writes rows of ``schema``. Called in the process of a task, before its first row."""
        raise NotImplementedError

    def create(self, schema: pa.Schema) -> Sink:
        return _WritingAtOnce(self, schema)


class _WritingAtOnce(Sink):
    """The sink of one task."""

    def __init__(self, definition: IdempotentSink, schema: pa.Schema) -> None:
        self._definition, self._schema = definition, schema
        self._writer: RowWriter | None = None

    def on_rows(self, rows: pa.RecordBatch, side: int) -> None:
        if rows.num_rows:
            with failures_of(f"operator {self.ctx.operator!r}", SinkError):
                if self._writer is None:
                    self._writer = self._definition.open(self._schema)
                self._writer.write(rows)
            self.ctx.count("rows_out", rows.num_rows)

    def prepare(self, checkpoint: int) -> None:
        self._flush()

    def on_end(self) -> None:
        self._flush()

    def _flush(self) -> None:
        if self._writer is not None:
            with failures_of(f"operator {self.ctx.operator!r}", SinkError):
                self._writer.flush()

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
