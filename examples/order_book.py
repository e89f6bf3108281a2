"""Keeps the order books of an exchange, and gives their best prices whenever the spread is above 0.01 %.

The exchange sends a snapshot of each book by WebSocket, and then its changes; a size of 0 removes a price.

    clonos run examples/order_book.py --runtime local --feed wss://ws-feed.exchange.coinbase.com --out spreads
"""

from __future__ import annotations

from collections.abc import Iterator

from clonos_py import Context, Job, MapState, Process, Record, col, map_state
from clonos_py.connectors import FileSink, WebSocketSource


class Message(Record):
    product_id: str
    bids: list[list[str]] | None
    asks: list[list[str]] | None
    changes: list[list[str]] | None


class Best(Record):
    product: str
    bid: float
    bid_size: float
    ask: float
    ask_size: float
    spread: float


class Book(Process[Message, Best]):
    bids: MapState[float, float] = map_state()
    asks: MapState[float, float] = map_state()

    def on_row(self, message: Message, ctx: Context) -> Iterator[Best]:
        sides = {"buy": self.bids, "sell": self.asks}
        changes = [["buy", *level] for level in message.bids or []] + [["sell", *level] for level in message.asks or []]
        for side, price, size in changes + (message.changes or []):
            sides[side][float(price)] = float(size)
            if not float(size):
                del sides[side][float(price)]
        if self.bids and self.asks:
            bid, ask = max(self.bids), min(self.asks)
            yield Best(ctx.key, bid, self.bids[bid], ask, self.asks[ask], ask - bid)


def job(feed: str = "wss://ws-feed.exchange.coinbase.com", out: str = "spreads") -> Job:
    job = Job("order-book")
    wanted = {"product_ids": ["BTC-USD", "ETH-USD", "BTC-EUR", "ETH-EUR"], "channels": ["level2_batch"]}
    source = WebSocketSource(
        feed,
        Message,
        subscribe=[{"type": "subscribe", **wanted}],
        select=lambda message: [message] if "product_id" in message else [],
    )
    best = job.source(source).named("feed").key_by("product_id").process(Book).named("books")
    best.filter(col("spread") / col("ask") > 0.0001).sink(FileSink(out)).named("spreads")
    return job
