"""The examples of the page about tables of data lakes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog

from clonos_py import Job, Record, col
from clonos_py.connectors import (
    DeltaSink,
    DeltaSource,
    FileSink,
    FileSource,
    IcebergSink,
    IcebergSource,
    Secret,
    read_results,
)
from clonos_py.runtime.launch import run_job
from clonos_py.settings.resolution import resolve


class Order(Record):
    customer: str
    amount: int
    day: str


def totals(lake: str) -> Job:
    job = Job("totals", checkpoint_interval="1m")
    orders = job.source(FileSource(f"{lake}/orders/*.jsonl", Order))
    orders.sink(DeltaSink(f"{lake}/orders-by-day", partition_by="day", compact="1h")).named("orders")
    by_customer = orders.key_by("customer").aggregate(spent=col("amount").sum())
    by_customer.sink(DeltaSink(f"{lake}/spent", key="customer")).named("spent")
    return job


def large(lake: str, follow: bool) -> Job:
    job = Job("large")
    orders = job.source(DeltaSource(f"{lake}/orders-by-day", Order, follow=follow), idle="5s")
    orders.filter(col("amount") > 7).sink(FileSink(f"{lake}/large")).named("large")
    return job


def spent(catalog: dict[str, str | Secret]) -> Job:
    job = Job("spent", checkpoint_interval="1m")
    orders = job.source(IcebergSource("sales.orders", Order, "lake", properties=catalog), idle="5s")
    large = orders.filter(col("amount") > 7)
    large.sink(IcebergSink("sales.large", "lake", properties=catalog, partition_by="day")).named("large")
    return job


ORDERS: list[dict[str, Any]] = [
    {"customer": f"c{n % 3}", "amount": n, "day": f"2026-01-0{n % 2 + 1}"} for n in range(12)
]


@pytest.fixture
def lake(tmp_path: Path) -> str:
    (tmp_path / "orders").mkdir()
    (tmp_path / "orders" / "1.jsonl").write_text("".join(json.dumps(order) + "\n" for order in ORDERS))
    return str(tmp_path)


def run(job: Job, lake: str) -> None:
    run_job(job, resolve(job.settings, command_line={"runtime": "local", "checkpoints": f"{lake}/checkpoints"}))


def test_the_examples_with_delta_write_what_they_say(lake: str) -> None:
    run(totals(lake), lake)
    orders = DeltaTable(f"{lake}/orders-by-day").to_pyarrow_table().to_pylist()
    assert sorted(order["amount"] for order in orders) == list(range(12))
    spent = {row["customer"]: row["spent"] for row in DeltaTable(f"{lake}/spent").to_pyarrow_table().to_pylist()}
    assert spent == {f"c{n}": sum(order["amount"] for order in ORDERS[n::3]) for n in range(3)}
    run(large(lake, follow=False), lake)
    assert sorted(row["amount"] for row in read_results(f"{lake}/large")) == [8, 9, 10, 11]


def test_the_example_with_iceberg_writes_what_it_says(lake: str) -> None:
    properties = {"type": "sql", "uri": f"sqlite:///{lake}/catalog.db", "warehouse": f"file://{lake}/warehouse"}
    catalog = load_catalog("lake", **properties)
    catalog.create_namespace("sales")
    catalog.create_table("sales.orders", Order.schema()).append(pa.Table.from_pylist(ORDERS, Order.schema()))
    run(spent(dict(properties)), lake)
    assert sorted(row["amount"] for row in catalog.load_table("sales.large").scan().to_arrow().to_pylist()) == [
        8,
        9,
        10,
        11,
    ]
