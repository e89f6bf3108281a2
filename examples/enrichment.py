"""Adds to each bid the rate of its currency from an HTTP server, its owner from a database, and the time.

None of the three is deterministic. When a task fails, its replacement gets the answers of its predecessor from the log.
So rows that are written after the failure fit those that were written before.

    python examples/rates_server.py --port 8765 &
    clonos run examples/enrichment.py --runtime local --rates http://127.0.0.1:8765 --out /tmp/enriched
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

from clonos_py import Context, Instant, Job, Money, Record, service
from clonos_py.connectors import FileSink, FileSource

BIDS = str(Path(__file__).parent / "data" / "bids.jsonl")


class Bid(Record):
    auction: int
    currency: str
    price: Money
    at: Instant


class Enriched(Record):
    auction: int
    price: Money
    usd: Money
    owner: str
    seen: Instant


@service
def owners() -> Iterator[Callable[[int], str]]:
    """A small database; opened inside the task that asks it."""
    database = sqlite3.connect(":memory:")
    database.execute("create table owner (auction integer primary key, name text)")
    database.executemany("insert into owner values (?, ?)", [(1_000 + i, f"owner {i}") for i in range(8)])
    yield lambda auction: str(database.execute("select name from owner where auction = ?", (auction,)).fetchone()[0])
    database.close()


def job(rates: str = "http://127.0.0.1:8765", bids: str = BIDS, out: str = "enriched") -> Job:
    def enrich(bid: Bid, ctx: Context) -> Enriched:
        quote = ctx.http.get(f"{rates}/{bid.currency}", timeout="2s").json()
        owner = ctx.call(owners, bid.auction)
        return Enriched.extend(bid, usd=bid.price * quote["rate"], owner=owner, seen=ctx.time.now())

    job = Job("enrichment")
    read = job.source(FileSource(bids, Bid), event_time="at").named("bids")
    enriched, failed = read.map(enrich).catch()
    enriched.sink(FileSink(out, format="jsonl")).named("enriched")
    failed.sink(FileSink(f"{out}-failed", format="jsonl")).named("failed")
    return job
