"""Keeps the five best-selling products of each category, by totals that go up with sales and down with returns.

Every change of a rank is written: ``insert`` for the first product of a rank, ``update`` when another product or
another total takes its place.

    clonos run examples/best_sellers.py --runtime local --out best-sellers
"""

from __future__ import annotations

from pathlib import Path

from clonos_py import Job, Record, col, count
from clonos_py.connectors import FileSink, FileSource

SALES = str(Path(__file__).parent / "data" / "sales.jsonl")


class Sale(Record):
    category: int
    product: int
    amount: int


def job(sales: str = SALES, out: str = "best-sellers") -> Job:
    job = Job("best-sellers")
    sold = job.source(FileSource(sales, Sale)).named("sales").key_by("category", "product")
    totals = sold.aggregate(total=col("amount").sum(), sales=count()).named("totals")
    best = totals.key_by("category").top(5, by=col("total").desc()).named("best")
    best.changes(kind="change").sink(FileSink(out)).named("changes")
    return job
