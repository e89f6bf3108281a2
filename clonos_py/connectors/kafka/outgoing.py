"""Converts rows to messages: key, value and timestamp."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from clonos_py.columns.times import MOMENT, instants
from clonos_py.connectors.kafka.client import Message
from clonos_py.connectors.kafka.formats import FormatDefinition, format_of
from clonos_py.model.errors import GraphError, SinkError
from clonos_py.model.tables import CHANGE_COLUMN, DELETE, without

_MS_US = 1_000


@dataclass(frozen=True)
class MessageLayout:
    """How rows become messages. ``key``: the columns that make up the key; without columns messages have no key.
    ``timestamp``: a column of datetimes or Instants for the message's timestamp; None for the time of writing."""

    topic: str
    format: str | FormatDefinition
    key: tuple[str, ...] = ()
    timestamp: str | None = None

    def check(self, schema: pa.Schema) -> None:
        """Raises GraphError for rows that cannot be converted."""
        shown = without(schema, CHANGE_COLUMN)
        for name in (*self.key, *((self.timestamp,) if self.timestamp else ())):
            if name not in shown.names:
                raise GraphError(f"KafkaSink: there is no column {name!r} among {', '.join(shown.names)}")
        if self.timestamp and shown.field(self.timestamp).type not in (pa.int64(), MOMENT):
            raise GraphError(f"KafkaSink: column {self.timestamp!r} has no times, which are datetimes or Instants")
        if self.format == "arrow" and (self.key or self.timestamp or len(shown) != len(schema)):
            raise GraphError("KafkaSink: in the format arrow many rows are one message: it has no key and no timestamp")
        format_of(self.format, shown, self.topic)


class MessageMaker:
    """Converts rows to messages. A deletion becomes a tombstone."""

    def __init__(self, layout: MessageLayout, schema: pa.Schema) -> None:
        self._layout = layout
        self._shown = without(schema, CHANGE_COLUMN)
        self._format = format_of(layout.format, self._shown, layout.topic)

    def messages(self, rows: pa.RecordBatch) -> list[Message]:
        topic = self._layout.topic
        shown = rows.select(self._shown.names)
        try:
            values: Sequence[bytes | None] = self._format.encode(shown)
        except ValueError as problem:
            raise SinkError(
                f"Kafka topic {topic!r}: a row does not fit the format {self._layout.format}: {problem}"
            ) from None
        if CHANGE_COLUMN in rows.schema.names:
            deleted = pc.equal(rows.column(CHANGE_COLUMN), pa.scalar(DELETE)).to_pylist()
            values = [None if gone else value for value, gone in zip(values, deleted, strict=True)]
        if not self._layout.key and self._layout.timestamp is None:
            return [Message(topic, value) for value in values]
        keys = _keys(shown.select(self._layout.key)) if self._layout.key else [None] * len(values)
        times = _milliseconds(shown.column(self._layout.timestamp)) if self._layout.timestamp else [None] * len(values)
        return [Message(topic, value, key, None, at_ms) for value, key, at_ms in zip(values, keys, times, strict=True)]


def _keys(rows: pa.RecordBatch) -> list[bytes | None]:
    """One column of text or bytes is used unchanged, another type as JSON, several columns as a JSON object."""
    if rows.num_columns > 1:
        return list(map(msgspec.json.encode, rows.to_pylist()))
    column = rows.column(0)
    if pa.types.is_string(column.type) or pa.types.is_binary(column.type):
        return column.cast(pa.binary()).to_pylist()
    if pa.types.is_integer(column.type):
        return column.cast(pa.string()).cast(pa.binary()).to_pylist()
    return [None if value is None else msgspec.json.encode(value) for value in column.to_pylist()]


def _milliseconds(times_given: pa.Array[Any]) -> list[int | None]:
    column = instants(times_given)
    if column.null_count:
        return [None if at is None else at // _MS_US for at in column.to_pylist()]
    times: list[int | None] = (column.to_numpy() // np.int64(_MS_US)).tolist()
    return times
