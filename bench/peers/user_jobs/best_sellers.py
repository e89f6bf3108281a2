"""Keeps the five best-selling products of each category, and writes every change of a rank."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path

import bytewax.operators as op  # pyright: ignore[reportMissingImports]
from bytewax.connectors.files import FileSink, FileSource  # pyright: ignore[reportMissingImports]
from bytewax.dataflow import Dataflow  # pyright: ignore[reportMissingImports]
from msgspec import Struct, json
from msgspec.structs import asdict

SALES = str(Path(__file__).parents[3] / "examples" / "data" / "sales.jsonl")


class Sale(Struct):
    category: int
    product: int
    amount: int


class Total(Struct):
    category: int
    product: int
    total: int
    sales: int


class Change(Total):
    rank_number: int
    change: str


Ranks = tuple[dict[int, Total], list[Total]]


def totalled(state: tuple[int, int] | None, sale: Sale) -> tuple[tuple[int, int], Total]:
    total, sales = state or (0, 0)
    state = (total + sale.amount, sales + 1)
    return state, Total(sale.category, sale.product, *state)


def ranked(state: Ranks | None, row: Total) -> tuple[Ranks, Iterator[Change]]:
    products, before = state or ({}, [])
    products[row.product] = row
    best = sorted(products.values(), key=lambda row: (-row.total, row.product))[:5]
    return (products, best), changes(before, best)


def changes(before: list[Total], best: list[Total]) -> Iterator[Change]:
    for rank, (old, new) in enumerate(zip_longest(before, best), 1):
        if old != new:
            yield Change(**asdict(new), rank_number=rank, change="update" if old else "insert")


def flow(sales: str = SALES, out: str = "best-sellers.jsonl") -> Dataflow:
    flow = Dataflow("best-sellers")
    sold = op.map("parsed", op.input("sales", flow, FileSource(Path(sales))), json.Decoder(Sale).decode)
    by_product = op.key_on("by-product", sold, lambda sale: f"{sale.category}/{sale.product}")
    totals = op.key_rm("values", op.stateful_map("totals", by_product, totalled))
    by_category = op.key_on("by-category", totals, lambda row: str(row.category))
    best = op.stateful_flat_map("best", by_category, ranked)
    op.output("changes", op.map_value("lines", best, lambda row: json.encode(row).decode()), FileSink(Path(out)))
    return flow
