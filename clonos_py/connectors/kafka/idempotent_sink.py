"""The idempotent sink: rows are written to Kafka under a key as they arrive. After a failure some are written again,
with the same values."""

from __future__ import annotations

import pyarrow as pa

from clonos_py.connectors.kafka.client import Message, MessageWriter
from clonos_py.connectors.kafka.clients import ClusterAddress
from clonos_py.connectors.kafka.outgoing import MessageLayout, MessageMaker
from clonos_py.connectors.kafka.patience import Retries
from clonos_py.model.operators import Sink

_UNACKNOWLEDGED = 50_000
"""The limit of unacknowledged messages, which are kept and written again if a writer fails."""


class KafkaIdempotentWriter(Sink):
    """The sink of one task. All messages are acknowledged before the checkpoint that covers them."""

    def __init__(self, address: ClusterAddress, layout: MessageLayout, schema: pa.Schema, away_s: float) -> None:
        self._address = address
        self._retries = Retries(f"Kafka at {address.bootstrap}, topic {layout.topic!r}", away_s)
        self._maker = MessageMaker(layout, schema)
        self._writer: MessageWriter | None = None
        self._unacknowledged: list[Message] = []

    def close(self) -> None:
        self._drop()

    def on_rows(self, rows: pa.RecordBatch, side: int) -> None:
        messages = self._retries.run(lambda: self._maker.messages(rows), self._drop)
        self._unacknowledged += messages
        self._retries.run(lambda: self._write(messages), self._drop)
        if len(self._unacknowledged) >= _UNACKNOWLEDGED:
            self._retries.run(self._flush, self._drop)
        self.ctx.count("rows_out", rows.num_rows)

    def _write(self, messages: list[Message]) -> None:
        if self._writer is None:
            self._writer = self._address.connect().writer()
            messages = self._unacknowledged
        self._writer.write(messages)

    def _drop(self) -> None:
        """Closes the writer; the next one writes unacknowledged messages again."""
        if self._writer is not None:
            self._writer.close()
        self._writer = None

    def _flush(self) -> None:
        if self._writer is None:
            self._write([])
        assert self._writer is not None
        self._writer.flush()
        self._unacknowledged = []

    def prepare(self, checkpoint: int) -> bytes | None:
        if self._unacknowledged:
            self._retries.run(self._flush, self._drop)
        return None

    def on_end(self) -> None:
        if self._unacknowledged:
            self._retries.run(self._flush, self._drop)
