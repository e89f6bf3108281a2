"""The best-selling products of each category, by running totals that go up and down, and an oracle for each change."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from clonos_py.connectors import FileSink, read_results
from clonos_py.model.coordinator_events import RolledBack
from clonos_py.observe.events import Event
from clonos_py.runtime.launch import run_job
from clonos_py.settings.resolution import resolve
from examples import best_sellers
from tests.observed import killed
from tests.paced_rows import PacedRows

FIRST = 5
_SECONDS_OF_A_ROW = 5e-6
"""Sales come at this pace at most, so that no machine is done before the last kill."""

Place = tuple[int, int]


class Sales:
    """Sales of a seed: few products make most of them, and a third of the amounts is negative."""

    def __init__(self, rows: int, categories: int = 50, products: int = 20_000) -> None:
        draw = np.random.default_rng(11)
        self.categories = categories
        self.product: npt.NDArray[np.int64] = (draw.zipf(1.2, rows) % products).astype(np.int64)
        self.amount: npt.NDArray[np.int64] = draw.integers(-20, 40, rows)

    def run(self, folder: str, runtime: str, kills: list[str], interval: str = "500ms") -> list[dict[str, Any]]:
        """The changes that a job emits, those of a category in their order, while tasks are killed, all of them."""
        table = pa.table({"category": self.product % self.categories, "product": self.product, "amount": self.amount})
        rows = table.cast(best_sellers.Sale.schema())
        paced = PacedRows(rows, best_sellers.Sale, rows.num_rows * _SECONDS_OF_A_ROW, rows.num_rows // 1_024)
        job = best_sellers.job().with_connectors({"sales": paced, "changes": FileSink(folder, format="parquet")})
        settings = {"runtime": runtime, "parallelism": 2, "checkpoint_interval": interval, "kills": kills}
        events: list[Event] = []
        run_job(job, resolve(command_line=settings), lambda at_us, event: events.append(event))
        assert len(killed(events)) == len(kills), events
        assert not any(isinstance(event, RolledBack) for event in events)
        return read_results(folder)

    @cached_property
    def totals(self) -> Mapping[int, npt.NDArray[np.int64]]:
        """By product its total after each of its sales."""
        order = np.argsort(self.product, kind="stable")
        products, starts = np.unique(self.product[order], return_index=True)
        parts = np.split(self.amount[order], starts[1:])
        return {int(product): np.cumsum(part) for product, part in zip(products, parts, strict=True)}

    def best(self) -> dict[Place, tuple[int, int]]:
        """By category and rank the product and its total, when all is sold."""
        found: dict[int, list[tuple[int, int]]] = defaultdict(list)
        for product, totals in self.totals.items():
            found[product % self.categories].append((-int(totals[-1]), product))
        return {
            (category, rank): (product, -total)
            for category, products in found.items()
            for rank, (total, product) in enumerate(sorted(products)[:FIRST], 1)
        }

    def check(self, changes: Iterable[Mapping[str, Any]]) -> None:
        """Follows the changes: each fits the rows before it and has a total that its product had, no earlier one than
        the last change had; after the changes of a batch the rows of a category are in their order; the final rows are
        the expected ones."""
        there: dict[Place, tuple[int, int, int]] = {}
        numbers: dict[int, int] = {}
        for category, rows in _runs(changes):
            for row in rows:
                place, found = (category, row["rank_number"]), (row["product"], row["total"], row["sales"])
                product, total, number = found
                assert (place in there) == (row["change"] != "insert")
                if row["change"] == "delete":
                    assert there.pop(place) == found
                    continue
                assert there.get(place) != found
                there[place] = found
                assert self.totals[product][number - 1] == total
                assert numbers.get(product, 0) <= number
                numbers[product] = number
            mine = [there[category, rank] for rank in range(1, FIRST + 1) if (category, rank) in there]
            assert mine == sorted(mine, key=lambda row: (-row[1], row[0]))
            assert len({row[0] for row in mine}) == len(mine) == sum(place[0] == category for place in there)
        assert {place: row[:2] for place, row in there.items()} == self.best()


def _runs(changes: Iterable[Mapping[str, Any]]) -> Iterator[tuple[int, list[Mapping[str, Any]]]]:
    """Changes of one category that follow each other: they come together."""
    for category, rows in itertools.groupby(changes, lambda row: int(row["category"])):
        yield category, list(rows)
