"""Lists each order beside its payments of the next 15 minutes. Orders without any are in the list, too.

clonos run examples/late_payers.py --runtime local --out payers
"""

from __future__ import annotations

from pathlib import Path

from clonos_py import Instant, Job, Money, Record, between, col
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
    id: int
    customer: str
    amount: Money | None
    """None: nothing was paid in time."""


def job(out: str = "payers") -> Job:
    job = Job("late-payers")
    orders = job.source(FileSource(str(DATA / "purchases.jsonl"), Order), event_time="at", out_of_order="1m")
    payments = job.source(FileSource(str(DATA / "payments.jsonl"), Payment), event_time="at", out_of_order="1m")
    paid = payments.named("payments").select("order", "amount", paid=col("at"))

    payers = orders.named("orders").join(paid, on=("id", "order"), within=between("0s", "15m"), how="left", into=Payer)
    payers.named("payers").sink(FileSink(out)).named("list")
    return job
