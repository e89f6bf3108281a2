"""Takings of a shop: for each product and minute how many orders there were, and how much they came to."""

from __future__ import annotations

from datetime import datetime

from clonos_py import Job, Record, col, count, tumbling
from clonos_py.connectors import FileSink, FileSource


class Order(Record):
    at: datetime
    product: str
    cents: int


class Takings(Record):
    product: str
    window_end: datetime
    orders: int
    cents: int


def job(orders: str = "orders", out: str = "takings", follow: bool = False) -> Job:
    job = Job("shop")
    source = FileSource(orders, Order, "jsonl", follow=follow)
    placed = job.source(source, event_time="at", out_of_order="5s", idle="2s").named("orders")
    minutes = placed.filter(col("cents") > 0).key_by("product").window(tumbling("1m"))
    takings = minutes.aggregate(Takings, orders=count(), cents=col("cents").sum()).named("takings")
    takings.sink(FileSink(out, "jsonl")).named("files")
    return job
