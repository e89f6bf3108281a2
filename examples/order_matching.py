"""Matches buy and sell orders by price, then by arrival, as an exchange does.

Orders arrive through two gateways. The order of arrival decides which orders trade with each other, and it depends on
chance alone. So it must not change when the matching task fails and a standby takes over. Published trades stay valid.

    clonos run examples/order_matching.py --runtime local --kill 'matching[0]@500ms' --out /tmp/trades
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from clonos_py import Context, Instant, Job, MapState, Money, Process, Record, map_state, state
from clonos_py.connectors import FileSink, FileSource

ORDERS = str(Path(__file__).parent / "data" / "orders-*.jsonl")


class Order(Record):
    id: int
    symbol: str
    side: str
    price: Money
    quantity: int
    at: Instant


class Resting(Record):
    """An order in the book: its remaining quantity, and its place in the queue."""

    id: int
    price: Money
    quantity: int
    arrival: int


class Trade(Record):
    symbol: str
    buyer: int
    seller: int
    price: Money
    quantity: int
    traded: Instant


class Match(Process[Order, Trade]):
    """The order book of one symbol. A new order trades at the prices of the waiting orders."""

    arrivals: int = state(0)
    buys: MapState[int, Resting] = map_state()
    sells: MapState[int, Resting] = map_state()

    def on_row(self, order: Order, ctx: Context) -> Iterator[Trade]:
        self.arrivals += 1
        left = order.quantity
        while left and (best := self._best_for(order)):
            traded = min(left, best.quantity)
            left -= traded
            self._reduce(order.side, best, traded)
            buyer, seller = (order.id, best.id) if order.side == "buy" else (best.id, order.id)
            yield Trade(order.symbol, buyer, seller, best.price, traded, ctx.time.now())
        if left:
            self._book(order.side)[order.id] = Resting(order.id, order.price, left, self.arrivals)

    def _best_for(self, order: Order) -> Resting | None:
        """The waiting order that the new one trades with, if its price allows any."""
        if order.side == "buy":
            cheapest = min(self.sells.values(), key=lambda sell: (sell.price, sell.arrival), default=None)
            return cheapest if cheapest and cheapest.price <= order.price else None
        dearest = min(self.buys.values(), key=lambda buy: (-buy.price, buy.arrival), default=None)
        return dearest if dearest and dearest.price >= order.price else None

    def _reduce(self, side: str, waiting: Resting, traded: int) -> None:
        book = self._book("sell" if side == "buy" else "buy")
        left = waiting.quantity - traded
        if left:
            book[waiting.id] = Resting(waiting.id, waiting.price, left, waiting.arrival)
        else:
            del book[waiting.id]

    def _book(self, side: str) -> MapState[int, Resting]:
        return self.buys if side == "buy" else self.sells


def job(orders: str = ORDERS, out: str = "trades") -> Job:
    job = Job("order-matching")
    read = job.source(FileSource(orders, Order), event_time="at").named("orders")
    read.key_by("symbol").process(Match).named("matching").sink(FileSink(out, format="jsonl")).named("trades")
    return job
