"""Metrics of users' functions in jobs: exact over kills, over runs, and at another parallelism."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from clonos_py import Context, Job, Record
from clonos_py.connectors import FileSink, FileSource
from clonos_py.dsl.runs import JobHandle
from clonos_py.model.user_metrics import MetricKind, UserMetric

ROWS = 4_000


class Order(Record):
    id: int
    cents: int
    currency: str


class Priced(Record):
    id: int
    euros: float


RATES = {"EUR": 1.0, "USD": 0.9}
CURRENCIES = ("EUR", "USD", "EUR", "XXX")


def priced(order: Order, ctx: Context) -> Priced:
    rate = RATES.get(order.currency)
    if rate is None:
        ctx.metrics.counter("unknown_currencies").inc()
        rate = 1.0
    euros = order.cents / 100 * rate
    ctx.metrics.histogram("euros", buckets=(1, 10, 100, 1_000)).observe(euros)
    ctx.metrics.gauge("last_order").set(order.id)
    return Priced(order.id, euros)


def write(folder: Path, first: int) -> None:
    """A file of orders. Every fourth one has an unknown currency."""
    orders = [{"id": n, "cents": n % 997, "currency": CURRENCIES[n % 4]} for n in range(first, first + ROWS)]
    (folder / f"{first:06}.jsonl").write_text("".join(f"{json.dumps(order)}\n" for order in orders))


def run(folder: Path, **settings: object) -> Mapping[str, Mapping[int, UserMetric]]:
    job = Job("shop")
    orders = job.source(FileSource(f"{folder}/*.jsonl", Order)).named("orders")
    orders.rebalance().map(priced).named("priced").sink(FileSink(f"{folder}/out")).named("out")
    handle: JobHandle = job.start(runtime="local", checkpoints=f"{folder}/checkpoints", **settings)
    assert handle.wait(60)
    return handle.metrics


def counted(found: Mapping[str, Mapping[int, UserMetric]], rows: int) -> None:
    assert sum(metric.value for metric in found["priced.unknown_currencies"].values()) == rows / 4
    assert sum(metric.count for metric in found["priced.euros"].values()) == rows


def test_every_row_counts_once_over_kills_runs_and_another_parallelism(tmp_path: Path) -> None:
    write(tmp_path, 0)
    kills = {"checkpoint_interval": "20ms", "kills": ["priced[0]@30ms", "priced[1]@60ms"]}
    found = run(tmp_path, parallelism=2, **kills)
    counted(found, ROWS)
    assert {metric.kind for metric in found["priced.last_order"].values()} == {MetricKind.GAUGE}
    for number, parallelism in enumerate((3, 1, 2), 1):
        write(tmp_path, number * ROWS)
        found = run(tmp_path, parallelism=parallelism)
        counted(found, (number + 1) * ROWS)
        assert len(found["priced.euros"]) == parallelism
