"""Joins over random histories of rows and watermarks, with snapshots and other parallelism in between."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from clonos_py.columns.keys import key_groups
from clonos_py.model.joins import JoinColumns
from clonos_py.model.operators import Operator
from clonos_py.model.state import OperatorState
from clonos_py.model.times import MAX_TIME
from clonos_py.model.windows import Hopping, Tumbling
from tests.unit.operators.scripted import Collected, ScriptedContext, advance, opened, read_by, schema, stored

Row = tuple[int | None, int | None, str]
"""key, time, name"""

INPUT = schema(("key", pa.int64()), ("at", pa.int64()), ("name", pa.string()))
PAIR = schema(("left", pa.string()), ("right", pa.string()))
COLUMNS: JoinColumns = (("left", 0, "name"), ("right", 1, "name"))

Step = tuple[int, list[tuple[int | None, int]]] | int
"""Rows (key, time) of a side, or a watermark."""


def _histories(keys: st.SearchStrategy[int | None]) -> st.SearchStrategy[list[Step]]:
    rows = st.lists(st.tuples(keys, st.integers(-30, 60)), max_size=6)
    return st.lists(st.tuples(st.integers(0, 1), rows) | st.integers(-30, 70), max_size=14)


histories = _histories(st.integers(0, 3))
histories_with_nulls = _histories(st.none() | st.integers(0, 3))
windows = st.sampled_from([Tumbling(10), Hopping(20, 10), Hopping(15, 10), Hopping(10, 15)])


class Instances:
    """The instances of an operator: feeds each its key groups and can replace all by fewer or more."""

    def __init__(self, create: Callable[[], Operator]) -> None:
        self.create = create
        self.collected: list[Collected] = []
        self.start(1, [])

    def start(self, parallelism: int, parts: list[OperatorState], watermark: int | None = None) -> None:
        cuts = np.linspace(0, 128, parallelism + 1).astype(int).tolist()
        self.running: list[tuple[Operator, ScriptedContext]] = []
        for low, high in itertools.pairwise(cuts):
            operator = self.create()
            ctx, out = opened(operator, ScriptedContext(range(low, high)))
            if watermark is not None:
                ctx.watermark = watermark
            operator.restore(read_by(parts, ctx.groups))
            self.collected.append(out)
            self.running.append((operator, ctx))

    def feed(self, rows: pa.RecordBatch, side: int) -> None:
        groups = key_groups(rows, ["key"], 128)
        for operator, ctx in self.running:
            mine = rows.take(np.flatnonzero((groups >= ctx.groups.start) & (groups < ctx.groups.stop)))
            if mine.num_rows:
                operator.on_rows(mine, side)

    def advance(self, watermark: int) -> None:
        for operator, ctx in self.running:
            advance(operator, ctx, watermark)

    def rescale(self, parallelism: int, watermark: int) -> None:
        self.start(parallelism, [stored(operator.snapshot()) for operator, _ in self.running], watermark)

    def pairs(self) -> list[tuple[Any, ...]]:
        return in_order(pair for out in self.collected for pair in pairs(out))


def batch(rows: Sequence[Row]) -> pa.RecordBatch:
    columns = [pa.array([row[i] for row in rows], INPUT.field(i).type) for i in range(3)]
    return pa.RecordBatch.from_arrays(columns, schema=INPUT)


def pairs(out: Collected) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in out.rows()]


def in_order(rows: Iterable[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """The rows, sorted; nulls come first."""
    return sorted(rows, key=lambda row: [(value is not None, value) for value in row])


def windows_of(window: Tumbling | Hopping, time: int) -> list[int]:
    slide = window.slide_us if isinstance(window, Hopping) else window.size_us
    return [start for start in range(-300, 300, slide) if start <= time < start + window.size_us]


def run(create: Callable[[], Operator], history: list[Step], rescale_at: int, parallelism: int) -> tuple[Any, Any]:
    """The pairs, and by side the rows in the order in which they came, each with the watermark it met."""
    instances = Instances(create)
    seen: tuple[list[tuple[int | None, int, str, int]], ...] = ([], [])
    watermark = -1_000
    for number, step in enumerate(history):
        if number == rescale_at:
            instances.rescale(parallelism, watermark)
        if isinstance(step, int):
            if step > watermark:
                watermark = step
                instances.advance(watermark)
            continue
        side, rows = step
        named: list[Row] = [(key, at, f"{number}.{i}") for i, (key, at) in enumerate(rows)]
        seen[side].extend((key, at, name, watermark) for (key, at), (_, _, name) in zip(rows, named, strict=True))
        instances.feed(batch(named), side)
    instances.advance(MAX_TIME)
    return instances.pairs(), seen
