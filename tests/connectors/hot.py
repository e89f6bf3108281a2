"""Rows for tests of sinks, and the steps of a sink's life."""

from __future__ import annotations

import pickle
from decimal import Decimal
from typing import Any

import pyarrow as pa

from clonos_py.model.connectors import SinkDefinition
from clonos_py.model.operators import Sink
from clonos_py.model.record import Money, Record
from clonos_py.model.record_codec import encode
from tests.connectors.contexts import opened


class Hot(Record):
    auction: int
    price: Money
    note: str | None = None


def hot(*auctions: int, price: int = 1) -> pa.RecordBatch:
    return encode([Hot(a, Decimal(price), f"n{a}" if a % 2 else None) for a in auctions], Hot.schema())


def start(definition: SinkDefinition, schema: pa.Schema | None = None, **place: Any) -> Sink:
    return opened(pickle.loads(pickle.dumps(definition)).create(schema or Hot.schema()), **place)


def prepared(sink: Sink, checkpoint: int) -> bytes:
    committable = sink.prepare(checkpoint)
    assert committable is not None
    sink.snapshot()
    return committable
