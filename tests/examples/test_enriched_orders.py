"""The orders, products and shipments of a shop, joined as their tables change, in the simulator with a kill.
``tests/postgres`` has the same with a server."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import msgspec

from clonos_py import testing
from examples import enriched_orders
from tests.rewritten_examples import Rows, asked, contents, given


def changed(row: Callable[[int], dict[str, Any]], keys: int, changes: int, draw: random.Random) -> tuple[Rows, Rows]:
    """Random changes of a table whose key is the first column, and its rows after them."""
    held: dict[int, dict[str, Any]] = {}
    found = []
    for _ in range(changes):
        key = draw.randrange(keys)
        if key in held and draw.random() < 0.4:
            found.append({**held.pop(key), "_change": "delete"})
        else:
            kind = "update" if key in held else "insert"
            held[key] = row(key)
            found.append({**held[key], "_change": kind})
    return found, list(held.values())


def test_enriched_orders_follow_their_tables_although_a_process_is_killed() -> None:
    draw = random.Random(1)

    def order(key: int) -> dict[str, Any]:
        made = {"order_id": key, "order_date": "2026-02-02T09:00:00Z", "customer": f"customer {key % 3}"}
        return {**made, "price": f"{key}.50", "product_id": draw.randrange(5), "paid": draw.random() < 0.5}

    def product(key: int) -> dict[str, Any]:
        return {"product_id": key, "name": f"product {draw.randrange(99)}", "description": draw.choice([None, "large"])}

    def shipment(key: int) -> dict[str, Any]:
        return {"order_id": key, "origin": "Rome", "destination": draw.choice(["Oslo", "Bern"]), "arrived": False}

    orders, products = changed(order, 12, 40, draw), changed(product, 4, 16, draw)
    shipments = changed(shipment, 12, 30, draw)
    job = enriched_orders.job()
    inputs = {"orders-changes": orders[0], "products-changes": products[0], "shipments-changes": shipments[0]}
    out = testing.run(job, {source: given(rows, job.record_of(source)) for source, rows in inputs.items()}, kills=1)

    kept: dict[int, dict[str, Any]] = {}
    for row in map(msgspec.to_builtins, out["enriched"]):
        kept[row["order_id"]] = row
    left = [
        {name: value for name, value in row.items() if name != "_change"}
        for row in kept.values()
        if row["_change"] != "delete"
    ]
    query = """
        SELECT o.* EXCLUDE place, name, description, origin, destination, arrived
        FROM orders o LEFT JOIN products p USING (product_id) LEFT JOIN shipments s USING (order_id)
    """
    tables = {"orders": orders[1], "products": products[1], "shipments": shipments[1]}
    assert contents(left) == contents(asked(query)(tables))
    assert any(row["name"] is None for row in left)
    assert any(row["origin"] is None for row in left)
