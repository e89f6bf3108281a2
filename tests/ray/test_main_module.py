"""What a script or the cells of a notebook define works in the processes of a cluster, replaced ones included."""

from __future__ import annotations

import sys
import types
from pathlib import Path

import pytest

from clonos_py.connectors import read_results
from clonos_py.runtime.ray.cluster import Cluster

pytestmark = pytest.mark.ray

CELLS = (
    """
import enum
import functools
import time
from collections.abc import Iterator
from typing import ClassVar

from clonos_py import Context, Job, Process, Record, state
from clonos_py.connectors import FileSink, PartitionedSource, RowReader

ROWS = 40


class Kind(enum.Enum):
    EVEN = "even"
    ODD = "odd"


class Row(Record):
    STEP: ClassVar[int] = 3
    number: int


class Counted(Record):
    kind: str
    number: int
    seen: int
""",
    """
class Numbers(PartitionedSource[Row]):
    def partitions(self) -> list[str]:
        return ["all"]

    def open(self, partition: str) -> RowReader:
        return NumbersReader()


class NumbersReader(RowReader):
    def read(self, position: int, rows_max: int) -> tuple[list[Row], int] | None:
        time.sleep(0.05)
        return ([Row(position)], position + 1) if position < ROWS else None


@functools.cache
def kind_of(number: int) -> Kind:
    return Kind.ODD if number % 2 else Kind.EVEN


def tripled(row: Row) -> Row:
    return Row(row.number * row.STEP)


class Counts(Process[Row, Counted]):
    seen: int = state(0)

    def on_row(self, row: Row, ctx: Context) -> Iterator[Counted]:
        self.seen += 1
        yield Counted(kind_of(row.number).value, row.number, self.seen)
""",
    """
job = Job("cells")
rows = job.source(Numbers(Row)).named("numbers").rebalance().map(tripled).named("tripled")
rows.key_by("number").process(Counts).named("counts").sink(FileSink("out"))
result = job.run(kills=["tripled[0]@700ms", "counts[0]@1200ms"], checkpoint_interval="500ms", parallelism=1)
""",
)


def test_cells_of_a_notebook_run_on_ray_although_tasks_are_replaced(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The module ``__main__`` of a notebook has no file."""
    notebook = types.ModuleType("__main__")
    monkeypatch.setitem(sys.modules, "__main__", notebook)
    monkeypatch.chdir(tmp_path)
    for number, cell in enumerate(CELLS):
        exec(compile(cell, f"<cell {number}>", "exec"), vars(notebook))
    found = [(row["kind"], row["number"], row["seen"]) for row in read_results("out")]
    assert sorted(found, key=lambda row: row[1]) == [(("even", "odd")[n % 2], 3 * n, 1) for n in range(40)]
