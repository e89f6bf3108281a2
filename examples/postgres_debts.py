"""Follows a table of PostgreSQL, and keeps what each customer owes in another one.

clonos run examples/postgres_debts.py --runtime local --dsn "postgresql://me@localhost/shop"
"""

from __future__ import annotations

from clonos_py import Job, Money, Record, col, count
from clonos_py.connectors import PostgresSink, PostgresSource


class Order(Record):
    id: int
    customer: str
    price: Money
    paid: bool


def job(dsn: str = "postgresql://localhost/shop") -> Job:
    made = Job("debts", checkpoints="checkpoints", checkpoint_interval="1s")
    changes = made.source(PostgresSource(dsn, "orders", Order, slot="debts")).named("changes")
    unpaid = changes.to_table("id").named("orders").filter(~col("paid"))
    owed = unpaid.key_by("customer").aggregate(orders=count(), owed=col("price").sum()).named("owed")
    owed.sink(PostgresSink(dsn, "debts", key="customer")).named("debts")
    return made
