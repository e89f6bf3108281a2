"""A small job for tests of the driver: paced numbers, a keyed running count, witnesses before and after a shuffle.

    numbers (source, 2) --hash--> count, near (2) --rebalance--> far, keep, rows (2)

The counts carry a random number and the time: had a replay anything answered again, the two witnesses would disagree.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from clonos_py.columns.digest import MODULUS, digest
from clonos_py.connectors.digests import DigestSink, read_digest
from clonos_py.model.operators import End, EventTime, Operator, Read, Source, Wait
from clonos_py.model.plan import (
    Edge,
    OperatorPlan,
    Partitioning,
    PhysicalPlan,
    SourcePlan,
    Vertex,
    Wire,
)
from clonos_py.model.state import OperatorState
from clonos_py.settings.protocols import ALIGNED

NUMBER = pa.schema([("key", pa.int64()), ("value", pa.int64())])
COUNTED = NUMBER.append(pa.field("count", pa.int64())).append(pa.field("drawn", pa.float64()))
COUNTED = COUNTED.append(pa.field("seen_us", pa.int64()))
KEYS = 50


class Numbers(Source):
    """``total`` rows in reads of ``read_rows``, at most ``rate`` rows a second until the file ``unpaced`` exists; every
    instance has one partition."""

    def __init__(self, total: int, rate: float, unpaced: str, read_rows: int = 100) -> None:
        self._total, self._rate, self._unpaced, self._read_rows = total, rate, Path(unpaced), read_rows
        self._position = 0
        self._started_us: int | None = None

    def partitions(self) -> int:
        return 2

    def open(self, index: int, parallelism: int) -> None:
        self._index = index

    def seek(self, positions: Mapping[int, int]) -> None:
        self._position = positions.get(self._index, 0)
        self._started_us = None

    def poll(self, now: int) -> Read | Wait | End:
        if self._position >= self._total:
            return End()
        if self._started_us is None:
            self._started_us = now - int(self._position / self._rate * 1e6)
        due_us = self._started_us + int(self._position / self._rate * 1e6)
        if due_us > now and not self._unpaced.exists():
            return Wait(due_us)
        return self.reread(self._index, self._position, min(self._position + self._read_rows, self._total))

    def reread(self, partition: int, start: int, stop: int) -> Read:
        values = np.arange(start, stop) * 2 + partition
        self._position = stop
        return Read(partition, start, stop, (pa.record_batch([values % KEYS, values], schema=NUMBER),))


class Count(Operator):
    """Numbers the rows of each key, and asks for a random number and the time with every batch."""

    def __init__(self) -> None:
        self._counts: dict[int, int] = {}

    def on_rows(self, rows: pa.RecordBatch, side: int) -> None:
        counts = []
        for key in rows.column("key").to_numpy().tolist():
            self._counts[key] = self._counts.get(key, 0) + 1
            counts.append(self._counts[key])
        drawn, seen_us = self.ctx.random.random(), self.ctx.time.now()
        extra = [pa.array(counts, pa.int64()), _constant(drawn, rows), _constant(seen_us, rows)]
        self.out.emit(pa.record_batch([*rows.columns, *extra], schema=COUNTED))

    def snapshot(self) -> OperatorState:
        return OperatorState(values={"counts": dict(self._counts)})

    def restore(self, parts: Sequence[OperatorState]) -> None:
        self._counts = dict(parts[0].values["counts"]) if parts else {}


class Keep(Operator):
    """The deterministic columns of a batch."""

    def on_rows(self, rows: pa.RecordBatch, side: int) -> None:
        self.out.emit(rows.select(["key", "value"]))


def _constant(value: float, rows: pa.RecordBatch) -> Any:
    return pa.array([value] * rows.num_rows)


def counting(
    folder: str, total: int = 3_000, rate: float = 3_000.0, standbys: int = 1, sharing_depth: int = -1
) -> PhysicalPlan:
    """``total`` rows per source task, which come at once when the file ``folder``/unpaced exists. Digests go to
    ``folder``/near (before the last shuffle, in the count's own task), ``folder``/far (after it) and ``folder``/rows
    (deterministic columns only)."""
    sources = SourcePlan("numbers", partial(Numbers, total, rate, f"{folder}/unpaced"), (NUMBER,), EventTime((None,)))
    near = OperatorPlan("near", "sink", partial(DigestSink(f"{folder}/near").create, COUNTED), (), sink=True)
    far = OperatorPlan("far", "sink", partial(DigestSink(f"{folder}/far").create, COUNTED), (), sink=True)
    kept = OperatorPlan("rows", "sink", partial(DigestSink(f"{folder}/rows").create, NUMBER), (), sink=True)
    count = OperatorPlan("count", "process", Count, (COUNTED,), stateful=True)
    keep = OperatorPlan("keep", "map", Keep, (NUMBER,))
    wires = (_wire(0, 1),)
    return PhysicalPlan(
        "counting",
        (
            Vertex("numbers", 2, sources, (), (), standbys),
            Vertex("count", 2, None, (count, near), wires, standbys),
            Vertex("audit", 2, None, (far, keep, kept), (_wire(1, 2),), standbys),
        ),
        (
            Edge(0, "numbers", -1, 0, "count", 0, 0, Partitioning.HASH, ("key",), NUMBER),
            Edge(1, "count", 0, 0, "audit", 0, 0, Partitioning.REBALANCE, (), COUNTED),
            Edge(2, "count", 0, 0, "audit", 1, 0, Partitioning.REBALANCE, (), COUNTED),
        ),
        protocol=ALIGNED,
        sharing_depth=sharing_depth,
    )


def _wire(producer: int, consumer: int) -> Wire:
    return Wire(producer, 0, consumer, 0)


def expected_digest(total: int) -> tuple[int, int]:
    """The digest of the deterministic columns, computed here."""
    batches = []
    for partition in (0, 1):
        values = np.arange(total) * 2 + partition
        batches.append(pa.record_batch([values % KEYS, values], schema=NUMBER))
    return sum(digest(batch) for batch in batches) % MODULUS, 2 * total


def assert_exactly_once(folder: Path, total: int) -> None:
    """All rows are there once, and both witnesses have the same."""
    assert read_digest(str(folder / "rows")) == expected_digest(total)
    near, far = read_digest(str(folder / "near")), read_digest(str(folder / "far"))
    assert near == far
    assert near[1] == 2 * total
