"""Jobs that write to PostgreSQL, run as users run them."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pytest

from clonos_py import Job, Money, Record, col, count
from clonos_py.bench.postgres.server import PostgresServer
from clonos_py.connectors import FileSource, PostgresSink
from clonos_py.model.errors import SinkError
from clonos_py.settings.definitions import Runtime

ORDERS = [("anna", "1.50"), ("ben", "2.00"), ("anna", "0.25")]


class Order(Record):
    customer: str
    price: Money


def totals(orders: str, dsn: str) -> Job:
    job = Job("totals", checkpoint_interval="1s")
    by_customer = job.source(FileSource(orders, Order)).key_by("customer")
    owed = by_customer.aggregate(orders=count(), owed=col("price").sum()).named("owed")
    owed.sink(PostgresSink(dsn, "debts", key="customer"))
    return job


def test_a_table_of_a_job_is_kept_in_one_of_the_database(server: PostgresServer, tmp_path: Path) -> None:
    orders = tmp_path / "orders.csv"
    orders.write_text("\n".join(["customer,price", *map(",".join, ORDERS)]) + "\n")
    job = totals(str(orders), server.dsn())
    with pytest.raises(SinkError, match="there is no table debts: CREATE TABLE debts"):
        job.run(runtime=Runtime.LOCAL)
    with server.connect() as connection:
        connection.execute("CREATE TABLE debts (customer text PRIMARY KEY, orders int, owed numeric(12,2))")
        for _ in range(2):  # the second run is another lineage, whose rows replace those of the first one
            job.run(runtime=Runtime.LOCAL)
            found = connection.execute("SELECT customer, orders, owed FROM debts ORDER BY customer").fetchall()
            assert found == [("anna", 2, Decimal("1.75")), ("ben", 1, Decimal("2.00"))]
