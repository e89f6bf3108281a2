"""Matches payments with orders, and raises an alert for an order that is not paid within 15 minutes.

Orders and payments come from two sources, and either may be first. Both are keyed by the order, so that one function
holds the state and the timer of an order. The test of this job is in tests/examples.

    clonos run examples/orders_and_payments.py --runtime local
"""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

from clonos_py import Context, CoProcess, Instant, Job, Money, Record, event_timer, micros, state
from clonos_py.connectors import FileSource, PrintSink

DATA = Path(__file__).parent / "data"
NOTHING = Decimal(0)


class Order(Record):
    id: int
    customer: str
    price: Money
    at: Instant


class Payment(Record):
    order: int
    amount: Money
    at: Instant


class Paid(Record):
    order: int
    customer: str
    waited: int


class Unpaid(Record):
    order: int
    customer: str
    missing: Money


class Settlement(CoProcess[Order, Payment, Paid | Unpaid]):
    """The order and what was paid for it, whichever comes first. The limit is configured where the job is written."""

    order: Order | None = state(None)
    paid: Money = state(NOTHING)
    overdue = event_timer()

    def __init__(self, limit: str) -> None:
        self.limit = micros(limit)

    def on_left(self, order: Order, ctx: Context) -> Iterator[Paid | Unpaid]:
        self.order = order
        self.overdue.set(order.at + self.limit)
        yield from self.settled(ctx)

    def on_right(self, payment: Payment, ctx: Context) -> Iterator[Paid | Unpaid]:
        self.paid += payment.amount
        if self.order is None:
            self.overdue.set(payment.at + self.limit)
        yield from self.settled(ctx)

    def settled(self, ctx: Context) -> Iterator[Paid]:
        if self.order and self.paid >= self.order.price:
            yield Paid(ctx.key, self.order.customer, ctx.event_time - self.order.at)
            self.overdue.clear()
            self.forget()

    @overdue.fires
    def alert(self, ctx: Context) -> Iterator[Unpaid]:
        if self.order:
            yield Unpaid(ctx.key, self.order.customer, self.order.price - self.paid)
        self.forget()

    def forget(self) -> None:
        self.order, self.paid = None, NOTHING


job = Job("orders-and-payments")
orders = job.source(FileSource(str(DATA / "purchases.jsonl"), Order), event_time="at", out_of_order="1m").named(
    "orders"
)
payments = job.source(FileSource(str(DATA / "payments.jsonl"), Payment), event_time="at", out_of_order="1m")
both = orders.key_by("id").connect(payments.named("payments").key_by("order"))
paid, unpaid = both.process(Settlement("15m"), in_order=True).named("settlement").split(Paid, Unpaid)
paid.sink(PrintSink()).named("paid")
unpaid.sink(PrintSink()).named("unpaid")
