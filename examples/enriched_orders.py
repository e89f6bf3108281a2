"""Follows the orders, products and shipments of a shop in PostgreSQL, and keeps each order with its product and
shipment in a table of its own.

A row of any of the three that is added, changed or deleted changes the rows with it. The primary key of shipments is
the order.

    clonos run examples/enriched_orders.py --runtime local --dsn "postgresql://me@localhost/shop"
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from clonos_py import Job, Money, Record, Table
from clonos_py.connectors import PostgresSink, PostgresSource


class Order(Record):
    order_id: int
    order_date: datetime
    customer: str
    price: Money
    product_id: int
    paid: bool


class Product(Record):
    product_id: int
    name: str
    description: str | None


class Shipment(Record):
    order_id: int
    origin: str
    destination: str
    arrived: bool


def job(dsn: str = "postgresql://localhost/shop") -> Job:
    job = Job("enriched-orders", checkpoints="checkpoints", checkpoint_interval="3s")

    def followed(table: str, row: type[Record], key: str) -> Table[Any]:
        changes = job.source(PostgresSource(dsn, table, row, slot=table)).named(f"{table}-changes")
        return changes.to_table(key).named(table)

    described = followed("orders", Order, "order_id").join(
        followed("products", Product, "product_id"), on="product_id", how="left"
    )
    shipped = described.named("described").join(followed("shipments", Shipment, "order_id"), on="order_id", how="left")
    shipped.named("shipped").sink(PostgresSink(dsn, "enriched_orders", key="order_id")).named("enriched")
    return job
