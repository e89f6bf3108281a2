"""Keeps the volume of each symbol in a table of SQLite."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import bytewax.operators as op  # pyright: ignore[reportMissingImports]
from bytewax.connectors.files import FileSource  # pyright: ignore[reportMissingImports]
from bytewax.dataflow import Dataflow  # pyright: ignore[reportMissingImports]
from bytewax.outputs import DynamicSink, StatelessSinkPartition  # pyright: ignore[reportMissingImports]
from msgspec import Struct, json

ORDERS = str(Path(__file__).parents[3] / "examples" / "data" / "orders-1.jsonl")


class Order(Struct):
    symbol: str
    quantity: int


class VolumeSink(DynamicSink):  # type: ignore[misc]
    def __init__(self, database: str) -> None:
        self._database = database

    def build(self, step_id: str, worker_index: int, worker_count: int) -> VolumeWriter:
        return VolumeWriter(self._database)


class VolumeWriter(StatelessSinkPartition):  # type: ignore[misc]
    def __init__(self, database: str) -> None:
        self._database = sqlite3.connect(database, timeout=30)
        self._database.execute("CREATE TABLE IF NOT EXISTS volume (symbol TEXT PRIMARY KEY, orders, quantity)")

    def write_batch(self, items: list[tuple[str, tuple[int, int]]]) -> None:
        with self._database:
            rows = [(symbol, *volume) for symbol, volume in items]
            self._database.executemany("INSERT OR REPLACE INTO volume VALUES (?, ?, ?)", rows)


def added(state: tuple[int, int] | None, order: Order) -> tuple[tuple[int, int], tuple[int, int]]:
    orders, quantity = state or (0, 0)
    volume = (orders + 1, quantity + order.quantity)
    return volume, volume


def flow(orders: str = ORDERS, database: str = "volumes.sqlite") -> Dataflow:
    flow = Dataflow("sqlite-upserts")
    placed = op.map("parsed", op.input("orders", flow, FileSource(Path(orders))), json.Decoder(Order).decode)
    by_symbol = op.key_on("by-symbol", placed, lambda order: order.symbol)
    op.output("volumes", op.stateful_map("sum", by_symbol, added), VolumeSink(database))
    return flow
