"""Small plans for tests of a task: vertices that pass rows on, and rows for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pyarrow as pa

from clonos_py.channel.frames import Frame, FrameKind
from clonos_py.model.ids import TaskId
from clonos_py.model.operators import End, EventTime, Operator, Read, Sink, Source, Wait
from clonos_py.model.plan import Edge, OperatorPlan, Partitioning, PhysicalPlan, SourcePlan, Vertex
from clonos_py.model.state import OperatorState
from clonos_py.model.times import MIN_TIME
from clonos_py.settings.protocols import ALIGNED

SCHEMA = pa.schema([("key", pa.int64())])


def rows(*keys: int) -> pa.RecordBatch:
    return pa.record_batch([pa.array(keys, pa.int64())], schema=SCHEMA)


def keys(batch: pa.RecordBatch | None) -> list[Any]:
    return batch.column("key").to_pylist() if batch is not None else []


def data(seq: int, *found: int, epoch: int = 0, watermark: int = MIN_TIME) -> Frame:
    return Frame(seq, FrameKind.DATA, epoch, watermark, rows=rows(*found))


def barrier(seq: int, checkpoint: int) -> Frame:
    return Frame(seq, FrameKind.BARRIER, checkpoint - 1, checkpoint=checkpoint)


def end(seq: int) -> Frame:
    return Frame(seq, FrameKind.END, 0)


class Seen(Operator):
    """Passes rows on and counts their keys; sets a timer where the key is negative."""

    def __init__(self) -> None:
        self._keys: list[int] = []

    def on_rows(self, rows: pa.RecordBatch, side: int) -> None:
        for key in keys(rows):
            self._keys.append(key)
            if key < 0:
                self.ctx.set_timer(-key)
        self.ctx.count("keys", rows.num_rows)
        self.out.emit(rows)

    def on_timer(self, at: int) -> None:
        self.out.emit(rows(at))

    def snapshot(self) -> OperatorState:
        return OperatorState(values={"keys": list(self._keys)})

    def restore(self, parts: Sequence[OperatorState]) -> None:
        self._keys = [key for part in parts for key in part.values["keys"]]


class SeenToTheEnd(Seen):
    """Counts its end, too, as an operator does that emits its last rows then."""

    def on_end(self) -> None:
        self.ctx.count("ends", 1)


class Counting(Source):
    """One partition: the numbers below ``total``, two at a time. ``shift`` makes a reread differ."""

    def __init__(self, total: int = 4, shift: int = 0) -> None:
        self._total, self._shift, self._at = total, shift, 0

    def seek(self, positions: Mapping[int, int]) -> None:
        self._at = positions.get(0, 0)

    def poll(self, now: int) -> Read | Wait | End:
        if self._at == self._total:
            return End()
        return self._read(self._at, self._at + 2, 0)

    def reread(self, partition: int, start: int, stop: int) -> Read:
        return self._read(start, stop, self._shift)

    def _read(self, start: int, stop: int, shift: int) -> Read:
        self._at = stop
        found = rows(*range(start + shift, stop + shift))
        return Read(0, start, stop, (found,), checksum=start + shift, last=stop == self._total)


UP, MIDDLE, DOWN = TaskId("up", 0), TaskId("middle", 0), TaskId("down", 0)


def three(
    parallelism: tuple[int, int, int] = (1, 1, 1),
    partitioning: Partitioning = Partitioning.HASH,
    frame_rows: int = 4,
    source: Source | None = None,
    sharing_depth: int = -1,
    merge_rows: int = 0,
    adaptive: bool = False,
) -> PhysicalPlan:
    """up (a source) -> middle -> down (a sink). ``adaptive``: as if Python functions followed the source."""
    counting = SourcePlan("up", partial(_same, source or Counting()), (SCHEMA,), EventTime((None,)), adaptive=adaptive)
    up, middle, down = parallelism
    vertices = (
        Vertex("up", up, counting, (), ()),
        Vertex("middle", middle, None, (OperatorPlan("seen", "map", Seen, (SCHEMA,), stateful=True),), ()),
        Vertex("down", down, None, (OperatorPlan("down", "sink", Sink, (), sink=True),), ()),
    )
    edges = (
        Edge(0, "up", -1, 0, "middle", 0, 0, partitioning, ("key",), SCHEMA, frame_rows, merge_rows, adaptive),
        Edge(1, "middle", 0, 0, "down", 0, 0, partitioning, ("key",), SCHEMA, frame_rows),
    )
    return PhysicalPlan("small", vertices, edges, key_groups=16, sharing_depth=sharing_depth, protocol=ALIGNED)


def _same(source: Source) -> Source:
    return source


@dataclass
class Outside:
    """The environment of the operators of a task: the test sets the time of day."""

    time_us: int = 0
    services: dict[str, Any] = field(default_factory=dict)
    aside: dict[str, bytes] = field(default_factory=dict)

    def now_us(self) -> int:
        return self.time_us

    def seed(self) -> int:
        return 7

    def service(self, name: str) -> Any:
        return self.services[name]

    def keep(self, epoch: int, content: bytes) -> str:
        name = f"{epoch}-{len(self.aside)}"
        self.aside[name] = content
        return name

    def kept(self, name: str) -> bytes:
        return self.aside[name]
