"""Writes each order with what its customer has spent so far, and how often in a row an order was dearer than the last.

clonos run examples/statements.py --runtime local --out statements
"""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

from clonos_py import Instant, Job, Money, Record, col, count
from clonos_py.connectors import FileSink, FileSource

DATA = Path(__file__).parent / "data"


class Order(Record):
    id: int
    customer: str
    price: Money
    at: Instant


class Statement(Record):
    id: int
    customer: str
    price: Money
    orders: int
    spent: Money


class Rise(Record):
    id: int = 0
    price: Money = Decimal(0)
    steps: int = 0


def risen(rise: Rise, order: Order) -> Rise:
    return Rise(order.id, order.price, rise.steps + 1 if rise.id and order.price > rise.price else 0)


def job(out: str = "statements") -> Job:
    job = Job("statements")
    orders = job.source(FileSource(str(DATA / "purchases.jsonl"), Order), event_time="at", out_of_order="1m")
    by_customer = orders.named("orders").key_by("customer")
    statements = by_customer.reduce(Statement, orders=count(), spent=col("price").sum())
    statements.named("statements").sink(FileSink(out)).named("list")
    rises = by_customer.fold(Rise(), risen, in_order=True)
    rises.named("rises").sink(FileSink(f"{out}-rises")).named("steps")
    return job
