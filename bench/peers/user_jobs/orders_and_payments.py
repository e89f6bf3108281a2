"""Matches payments with orders, and raises an alert for an order that is not paid within 15 minutes.

Bytewax's timers use the system clock. Only windows have timeouts in event time, so each order is a session window,
whose rows arrive in order of time.
"""

from __future__ import annotations

from collections.abc import Iterable
from copy import copy
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import bytewax.operators as op  # pyright: ignore[reportMissingImports]
import bytewax.operators.windowing as windowing  # pyright: ignore[reportMissingImports]
from bytewax.connectors.files import FileSource  # pyright: ignore[reportMissingImports]
from bytewax.connectors.stdio import StdOutSink  # pyright: ignore[reportMissingImports]
from bytewax.dataflow import Dataflow  # pyright: ignore[reportMissingImports]
from msgspec import Struct, json

DATA = Path(__file__).parents[3] / "examples" / "data"
LIMIT_US = 15 * 60 * 1_000_000


class Order(Struct):
    id: int
    customer: str
    price: Decimal
    at: int


class Payment(Struct):
    order: int
    amount: Decimal
    at: int


class Paid(Struct):
    order: int
    customer: str
    waited: int


class Unpaid(Struct):
    order: int
    customer: str
    missing: Decimal


def moment(row: Order | Payment) -> datetime:
    return datetime.fromtimestamp(row.at / 1e6, UTC)


class Settlement(windowing.WindowLogic):  # type: ignore[misc]
    """Collects an order and its payments. Either may come first."""

    def __init__(self, resumed: Settlement | None) -> None:
        self.order: Order | None = resumed.order if resumed else None
        self.paid: Decimal = resumed.paid if resumed else Decimal(0)
        self.settled: bool = resumed.settled if resumed else False

    def on_value(self, row: Order | Payment) -> Iterable[Paid]:
        if isinstance(row, Order):
            self.order = row
        elif self.order is None or row.at < self.order.at + LIMIT_US:
            self.paid += row.amount
        if self.order and not self.settled and self.paid >= self.order.price:
            self.settled = True
            yield Paid(self.order.id, self.order.customer, row.at - self.order.at)

    def on_merge(self, original: Settlement) -> Iterable[Paid]:
        self.order, self.paid = self.order or original.order, self.paid + original.paid
        self.settled = self.settled or original.settled
        return []

    def on_close(self) -> Iterable[Unpaid]:
        if self.order and not self.settled:
            yield Unpaid(self.order.id, self.order.customer, self.order.price - self.paid)

    def snapshot(self) -> Settlement:
        return copy(self)


def flow(orders: str = f"{DATA}/purchases.jsonl", payments: str = f"{DATA}/payments.jsonl") -> Dataflow:
    flow = Dataflow("orders-and-payments")
    placed = op.map("orders", op.input("order-lines", flow, FileSource(Path(orders))), json.Decoder(Order).decode)
    made = op.map("payments", op.input("payment-lines", flow, FileSource(Path(payments))), json.Decoder(Payment).decode)
    both = op.merge(
        "both",
        op.key_on("by-id", placed, lambda order: str(order.id)),
        op.key_on("by-order", made, lambda payment: str(payment.order)),
    )
    clock = windowing.EventClock(moment, wait_for_system_duration=timedelta(minutes=1))
    windower = windowing.SessionWindower(gap=timedelta(microseconds=LIMIT_US))
    settled = windowing.window("settlement", both, clock, windower, Settlement).down
    for name, kind in (("paid", Paid), ("unpaid", Unpaid)):
        rows = op.filter(name, settled, lambda pair, kind=kind: isinstance(pair[1][1], kind))
        lines = op.map(f"{name}-lines", rows, lambda pair: json.encode(pair[1][1]).decode())
        op.output(f"{name}-out", lines, StdOutSink())
    return flow
