"""Keeps up to date what each customer owes: orders that are not paid, or not in full, whichever comes first.

The orders and what was paid for each are tables, which are joined. A payment changes its row, a row that is paid leaves
the filter, and a customer who owes nothing leaves the result.

    clonos run examples/debts.py --runtime local --out debts
"""

from __future__ import annotations

from pathlib import Path

from clonos_py import Instant, Job, Money, Record, coalesce, col, count
from clonos_py.connectors import FileSource, UpsertFileSink

DATA = Path(__file__).parent / "data"


class Order(Record):
    id: int
    customer: str
    price: Money
    at: Instant


class Payment(Record):
    order: int
    amount: Money
    at: Instant


def job(
    orders: str = str(DATA / "purchases.jsonl"), payments: str = str(DATA / "payments.jsonl"), out: str = "debts"
) -> Job:
    job = Job("debts")
    ordered = job.source(FileSource(orders, Order)).named("orders").key_by("id", "customer")
    prices = ordered.aggregate(price=col("price").sum()).named("prices")
    received = job.source(FileSource(payments, Payment)).named("payments").key_by("order")
    paid = received.aggregate(paid=col("amount").sum()).named("paid")
    joined = prices.join(paid, on=("id", "order"), how="left").named("balances")
    left = col("price").cast(Money) - coalesce(col("paid"), 0).cast(Money)
    missing = joined.with_columns(missing=left).filter(col("missing") > 0)
    owed = missing.key_by("customer").aggregate(orders=count(), owed=col("missing").sum()).named("owed")
    owed.sink(UpsertFileSink(out, key="customer")).named("debts")
    return job
