"""Looks up the exchange rate of every bid, and asks a server for each currency only once in ten minutes.

Rows whose currency was asked for before get the rate from the cache, thousands at a time, without a call of Python for
each. That the server has no rate is kept, too. The answers are logged and the cache belongs to the state, so a
replacement uses the same rates and does not ask for them again.

    python examples/rates_server.py --port 8765 &
    clonos run examples/cached_rates.py --runtime local --rates http://127.0.0.1:8765 --out /tmp/rates
"""

from __future__ import annotations

from pathlib import Path

from clonos_py import AsyncContext, Job, Money, Record, col
from clonos_py.connectors import FileSink, FileSource

BIDS = str(Path(__file__).parent / "data" / "bids.jsonl")


class Bid(Record):
    auction: int
    currency: str
    price: Money


class Rate(Record):
    rate: float


class Converted(Record):
    auction: int
    price: Money
    usd: float | None


def job(rates: str = "http://127.0.0.1:8765", bids: str = BIDS, out: str = "rates") -> Job:
    async def rate(currency: str, ctx: AsyncContext) -> Rate | None:
        answer = await ctx.http.get(f"{rates}/{currency}", timeout="2s", retries=2)
        return Rate(answer.json(float)["rate"]) if answer.ok else None

    job = Job("cached-rates")
    read = job.source(FileSource(bids, Bid)).named("bids")
    known = read.lookup(rate, on="currency", cache="10m", how="left", rate=50).named("rate")
    converted = known.select(Converted, usd=col("price").cast(float) * col("rate"))
    converted.sink(FileSink(out, format="jsonl")).named("converted")
    return job
