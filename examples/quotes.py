"""Asks an HTTP server for the price of every order, many at once, and a slower second opinion for large ones.

Each answer takes a round trip. A plain function that waits for it handles one row at a time. This one is an
`async def`, so up to 50 orders wait for answers at once. When its task fails, answered
requests are not sent again. Pending requests are sent again, with the same idempotency key.

    python examples/rates_server.py --port 8765 &
    clonos run examples/quotes.py --runtime local --rates http://127.0.0.1:8765 --out /tmp/quotes
"""

from __future__ import annotations

from pathlib import Path

from clonos_py import AsyncContext, Instant, Job, Money, Record
from clonos_py.connectors import FileSink, FileSource

BIDS = str(Path(__file__).parent / "data" / "bids.jsonl")


class Bid(Record):
    auction: int
    currency: str
    price: Money
    at: Instant


class Quoted(Record):
    auction: int
    price: Money
    usd: Money
    opinions: int


def job(rates: str = "http://127.0.0.1:8765", bids: str = BIDS, out: str = "quotes") -> Job:
    async def quote(bid: Bid, ctx: AsyncContext) -> Quoted:
        answers = [await ctx.http.get(f"{rates}/{bid.currency}", timeout="2s", retries=2, backoff="50ms")]
        if bid.price > 100:
            await ctx.sleep("5ms")
            answers.append(await ctx.http.get(f"{rates}/{bid.currency}", timeout="2s", retries=2))
        worst: Money = min(answer.json()["rate"] for answer in answers)
        return Quoted.extend(bid, usd=bid.price * worst, opinions=len(answers))

    job = Job("quotes")
    read = job.source(FileSource(bids, Bid), event_time="at").named("bids")
    quoted, failed = read.map(quote, concurrency=50, ordered=True, timeout="10s").catch()
    quoted.sink(FileSink(out, format="jsonl")).named("quoted")
    failed.sink(FileSink(f"{out}-failed", format="jsonl")).named("failed")
    return job
