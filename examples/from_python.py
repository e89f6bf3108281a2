"""Previews the rows of a job, runs it and watches it, from a script without the ``clonos`` command.

python examples/from_python.py
"""

from __future__ import annotations

from pathlib import Path

from clonos_py import Job, Record, col, count
from clonos_py.connectors import FileSource, MemorySink

ORDERS = str(Path(__file__).parent / "data" / "orders-*.jsonl")


class Order(Record):
    id: int
    symbol: str
    side: str
    quantity: int


class Volume(Record):
    symbol: str
    orders: int
    quantity: int


def main() -> None:
    job = Job("volumes")
    orders = job.source(FileSource(ORDERS, Order)).named("orders")
    print(job.preview(orders, rows=5).to_pylist())

    volumes = orders.key_by("symbol").aggregate(Volume, orders=count(), quantity=col("quantity").sum())
    found = MemorySink()
    volumes.at_end().sink(found).named("volumes")

    run = job.start(runtime="local")
    while not run.wait(timeout_s=1):
        print(run.counters)
    for volume in found.rows(Volume):
        print(volume)


if __name__ == "__main__":
    main()
