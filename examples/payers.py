"""Names the customer of each payment at once, by the orders that are known when it comes.

The orders are a table: the last row of each id, for a month. The first payments wait until it is loaded. If its source
went on, a payment that comes before its order would have no customer, and recovery would repeat which order was known.

    clonos run examples/payers.py --runtime local --out payers
"""

from __future__ import annotations

from pathlib import Path

from clonos_py import Instant, Job, Money, Record, col
from clonos_py.connectors import FileSink, FileSource

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


class Payer(Record):
    order: int
    amount: Money
    customer: str | None


def job(
    orders: str = str(DATA / "purchases.jsonl"), payments: str = str(DATA / "payments.jsonl"), out: str = "payers"
) -> Job:
    job = Job("payers")
    ordered = job.source(FileSource(orders, Order), event_time="at").named("orders")
    known = ordered.key_by("id").top(1, by=col("at").desc()).ttl("30d").named("known")
    paid = job.source(FileSource(payments, Payment)).named("payments")
    payers = paid.join(known, on=("order", "id"), how="left", into=Payer, load_first=True)
    payers.named("payers").sink(FileSink(out)).named("out")
    return job
