"""Lets each event through once an hour. Bytewax keeps the state of a key for good."""

from __future__ import annotations

from pathlib import Path

import bytewax.operators as op  # pyright: ignore[reportMissingImports]
from bytewax.connectors.files import FileSink, FileSource  # pyright: ignore[reportMissingImports]
from bytewax.dataflow import Dataflow  # pyright: ignore[reportMissingImports]
from msgspec import Struct, json

EVENTS = str(Path(__file__).parents[3] / "examples" / "data" / "repeated.jsonl")
TTL_US = 3_600 * 1_000_000


class Event(Struct):
    id: str
    attempt: int
    at: int


def first(passed: int | None, event: Event) -> tuple[int, list[Event]]:
    if passed is not None and event.at < passed + TTL_US:
        return passed, []
    return event.at, [event]


def flow(events: str = EVENTS, out: str = "distinct.jsonl") -> Dataflow:
    flow = Dataflow("deduplication")
    sent = op.map("parsed", op.input("events", flow, FileSource(Path(events))), json.Decoder(Event).decode)
    by_id = op.key_on("by-id", sent, lambda event: event.id)
    distinct = op.stateful_flat_map("first", by_id, first)
    op.output("distinct", op.map_value("lines", distinct, lambda row: json.encode(row).decode()), FileSink(Path(out)))
    return flow
