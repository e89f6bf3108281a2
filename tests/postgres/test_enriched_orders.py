"""The example that follows three tables, and keeps in a fourth one what they say together."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psycopg

from clonos_py.bench.postgres.server import PostgresServer
from clonos_py.settings.definitions import Runtime
from examples import enriched_orders
from tests.waiting import wait_until

TABLES = (
    "orders (order_id bigint PRIMARY KEY, order_date timestamptz NOT NULL, customer text NOT NULL, "
    "price numeric(12,2) NOT NULL, product_id bigint NOT NULL, paid boolean NOT NULL)",
    "products (product_id bigint PRIMARY KEY, name text NOT NULL, description text)",
    "shipments (order_id bigint PRIMARY KEY, origin text NOT NULL, destination text NOT NULL, "
    "arrived boolean NOT NULL)",
    "enriched_orders (order_id bigint PRIMARY KEY, order_date timestamptz, customer text, price numeric(12,2), "
    "product_id bigint, paid boolean, name text, description text, origin text, destination text, arrived boolean)",
)
ROWS = (
    "INSERT INTO orders SELECT n, '2026-02-02 09:00+00', 'customer ' || n % 3, n * 1.25, n % 4, false "
    "FROM generate_series(1, 9) AS rows(n)",
    "INSERT INTO products SELECT n, 'product ' || n, CASE WHEN n = 2 THEN 'the second' END "
    "FROM generate_series(0, 2) AS rows(n)",
    "INSERT INTO shipments SELECT n, 'Rome', 'Oslo', false FROM generate_series(2, 12, 2) AS rows(n)",
)
CHANGES = (
    "UPDATE products SET name = 'another' WHERE product_id = 1",
    "UPDATE shipments SET arrived = true WHERE order_id = 4",
    "UPDATE orders SET paid = true, product_id = 2 WHERE order_id = 5",
    "DELETE FROM orders WHERE order_id = 6",
    "DELETE FROM shipments WHERE order_id = 8",
    "DELETE FROM products WHERE product_id = 0",
    "INSERT INTO products VALUES (3, 'late', null)",
)
COLUMNS = "order_id, order_date, customer, price, product_id, paid, name, description, origin, destination, arrived"
ENRICHED = (
    f"SELECT {COLUMNS} FROM orders LEFT JOIN products USING (product_id) LEFT JOIN shipments USING (order_id) "
    "ORDER BY order_id"
)
KEPT = f"SELECT {COLUMNS} FROM enriched_orders ORDER BY order_id"


def test_each_order_has_its_product_and_shipment_after_every_change(
    server: PostgresServer, database: psycopg.Connection[tuple[Any, ...]], tmp_path: Path
) -> None:
    for table in TABLES:
        database.execute(f"CREATE TABLE {table}")

    def agree() -> bool:
        return database.execute(ENRICHED).fetchall() == database.execute(KEPT).fetchall()

    for statement in ROWS:
        database.execute(statement)
    run = enriched_orders.job(server.dsn()).start(
        runtime=Runtime.LOCAL, checkpoints=str(tmp_path), checkpoint_interval="100ms"
    )
    wait_until(agree)
    for statement in CHANGES:
        database.execute(statement)
    wait_until(agree)
    run.stop()
    names = {name for (name,) in database.execute(f"SELECT name FROM ({KEPT}) AS kept").fetchall()}
    assert names == {None, "another", "product 2", "late"}
