"""Sources and sinks for tests of the language: they are never opened."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from clonos_py import Instant, Job, Money, Record, Stream
from clonos_py.model.connectors import Delivery, MultiSourceDefinition, SinkDefinition, SourceDefinition
from clonos_py.model.operators import Sink


class Bid(Record):
    auction: int
    bidder: int
    price: Money
    at: Instant
    note: str | None = None


class Rows(SourceDefinition):
    def __init__(self, *shapes: type[Record] | pa.Schema) -> None:
        self.schemas = tuple(shape if isinstance(shape, pa.Schema) else shape.schema() for shape in shapes)


class Ports(MultiSourceDefinition, Rows):
    """A source of several ports."""


class Nowhere(SinkDefinition):
    def __init__(
        self, name: str = "", upserts: bool = False, delivery: str = "transactional", deletes: bool = False
    ) -> None:
        self.name, self.upserts, self.delivery, self.deletes = name, upserts, Delivery(delivery), deletes

    def create(self, schema: pa.Schema) -> Sink:
        return Sink()


def bids(job: Job | None = None, **settings: Any) -> Stream[Any]:
    """Bids with an event time, in a job of their own unless one is given."""
    return (job or Job("test", **settings)).source(Rows(Bid), event_time="at", out_of_order="4s")
