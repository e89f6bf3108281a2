"""Adds to each order the rate of its currency at the time of the order, or none where no rate was known.

A rate that comes up to 15 seconds late is used, as orders wait that long.

    clonos run examples/converted.py --runtime local --out converted
"""

from __future__ import annotations

from pathlib import Path

from clonos_py import Instant, Job, Money, Record, as_of
from clonos_py.connectors import FileSink, FileSource

DATA = Path(__file__).parent / "data"


class Order(Record):
    id: str
    price: Money
    currency: str
    at: Instant


class Rate(Record):
    currency: str
    rate: Money
    since: Instant


class Converted(Order):
    rate: Money | None


def job(orders: str = f"{DATA}/foreign.jsonl", rates: str = f"{DATA}/rates.jsonl", out: str = "converted") -> Job:
    job = Job("converted")
    ordered = job.source(FileSource(orders, Order), event_time="at", out_of_order="15s").named("orders")
    known = job.source(FileSource(rates, Rate), event_time="since", out_of_order="15s").named("rates")
    converted = ordered.join(known, on="currency", within=as_of(), how="left", into=Converted).named("converted")
    converted.sink(FileSink(out)).named("out")
    return job
