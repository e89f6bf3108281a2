"""Adds to each bid the rate of its currency from an HTTP server, its owner from a database, and the time.

The answers are not logged: after a failure the same bids may be written with other answers.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import bytewax.operators as op  # pyright: ignore[reportMissingImports]
import httpx
from bytewax.connectors.files import FileSink, FileSource  # pyright: ignore[reportMissingImports]
from bytewax.dataflow import Dataflow  # pyright: ignore[reportMissingImports]
from msgspec import Struct, json

BIDS = str(Path(__file__).parents[3] / "examples" / "data" / "bids.jsonl")


class Bid(Struct):
    auction: int
    currency: str
    price: Decimal
    at: int


class Enriched(Struct):
    auction: int
    price: Decimal
    usd: Decimal
    owner: str
    seen: int


class Failed(Struct):
    record: Bid
    error: str


def owners() -> Callable[[int], str]:
    database = sqlite3.connect(":memory:", check_same_thread=False)
    database.execute("create table owner (auction integer primary key, name text)")
    database.executemany("insert into owner values (?, ?)", [(1_000 + i, f"owner {i}") for i in range(8)])
    return lambda auction: str(database.execute("select name from owner where auction = ?", (auction,)).fetchone()[0])


def flow(rates: str = "http://127.0.0.1:8765", bids: str = BIDS, out: str = "enriched") -> Dataflow:
    client, owner = httpx.Client(timeout=2), owners()

    def enrich(bid: Bid) -> Enriched | Failed:
        try:
            quote = client.get(f"{rates}/{bid.currency}").json()
            usd = round(bid.price * Decimal(str(quote["rate"])), 2)
            return Enriched(bid.auction, bid.price, usd, owner(bid.auction), time.time_ns() // 1_000)
        except (httpx.HTTPError, KeyError) as error:
            return Failed(bid, repr(error))

    flow = Dataflow("enrichment")
    read = op.map("parsed", op.input("bids", flow, FileSource(Path(bids))), json.Decoder(Bid).decode)
    tried = op.map("enrich", read, enrich)
    branches = op.branch("answered", tried, lambda row: isinstance(row, Enriched))
    for name, rows, path in (("enriched", branches.trues, out), ("failed", branches.falses, f"{out}-failed")):
        lines = op.map(f"{name}-lines", rows, lambda row: ("", json.encode(row).decode()))
        op.output(name, lines, FileSink(Path(f"{path}.jsonl")))
    return flow
