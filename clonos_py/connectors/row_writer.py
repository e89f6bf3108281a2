"""Base of user-defined sinks that write rows as they arrive, where writing a row twice does no harm."""

from __future__ import annotations

import pyarrow as pa

from clonos_py.connectors.users_code import failures_of
from clonos_py.model.connectors import Delivery, SinkDefinition
from clonos_py.model.errors import SinkError
from clonos_py.model.operators import Sink


class RowWriter:
    """Writes the rows of one task, in the process and thread of that task, which waits meanwhile."""

    def write(self, rows: pa.RecordBatch) -> None:
        """Writes rows, or keeps them until ``flush``. After a failure the rows since the last checkpoint come again,
        unchanged and in the same order. Writing them twice must have the same effect as writing them once."""
        raise NotImplementedError

    def flush(self) -> None:
        """Makes all written rows durable. Called before a checkpoint and at the end; these rows do not come again."""

    def close(self) -> None:
        """Releases the writer's resources. Not called when the process is killed."""


class IdempotentSink(SinkDefinition):
    """Base of user-defined sinks whose rows are visible at once. Rows written again after a failure replace equal ones,
    by a key that each row has. Implement ``open``.

    Rows must not change when they are computed again. They do not change if single tasks fail, with the full sharing
    depth. They may change, where functions are not deterministic or the order of rows matters, in three cases: the task
    that computes them fails together with the one that writes them, a job that was killed as a whole is resumed, or the
    job rolls back. A process that had hung may write after its replacement; if an old value must never replace a newer
    one, use a ``TransactionalSink``. ``upserts`` and ``deletes`` are the same as there.

    The definition is pickled and sent to the tasks: keep addresses in it, not connections.
    """

    delivery = Delivery.IDEMPOTENT

    def open(self, schema: pa.Schema) -> RowWriter:
        """Returns the writer for rows of ``schema``. Called in the process of a task, before its first row."""
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
