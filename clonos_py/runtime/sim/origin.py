"""The sources of generated jobs: numbered rows in partitions, with reads of varying size, pauses and an end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from clonos_py.model.errors import SourceError
from clonos_py.model.operators import End, Read, Source, Wait
from clonos_py.runtime.sim.histories import HISTORY_ROWS, IDS_PER_SOURCE, HistoryLedger, key_of
from clonos_py.runtime.sim.slices import among_others


@dataclass(frozen=True)
class Volume:
    """The number of rows of a source, its speed, and when a silent partition counts as idle. The source pauses after
    ``burst`` reads. ``in_turn``: it reads each partition to its end, and pauses for ``nap_us`` before the next one.
    ``logged``: the log has the rows, so a replay must not read them again. ``silent_us``: how long the source gives
    nothing behind its last row before it ends; its partitions end with it, and not with their last rows."""

    rows: int
    partitions: int
    batch: int
    pause_us: int
    idle_us: int | None
    burst: int = 1
    in_turn: bool = False
    nap_us: int = 0
    logged: bool = False
    silent_us: int = 0

    def ids(self, source: int, partition: int) -> range:
        """The ids of a partition's rows."""
        first = source * IDS_PER_SOURCE
        return range(first + partition, first + self.rows, self.partitions)


class RowOrigin(Source):
    """Partition p has the ids p, p + partitions, ... of source ``number``. The size of a read depends on the time."""

    def __init__(self, number: int, volume: Volume, ledger: HistoryLedger) -> None:
        self._number = number
        self._volume, self._ledger = volume, ledger
        self._next_us = self._reads = self._given = 0
        self._end_us: int | None = None
        self._rows_max = volume.batch
        self.logs_rows = volume.logged

    def partitions(self) -> int:
        return self._volume.partitions

    def open(self, index: int, parallelism: int) -> None:
        self._own = [p for p in range(self._volume.partitions) if p % parallelism == index]
        self.seek({})

    def seek(self, positions: Mapping[int, int]) -> None:
        self._positions = {p: positions.get(p, 0) for p in self._own}

    def _count(self, partition: int) -> int:
        return len(self._volume.ids(self._number, partition))

    def limit(self, rows: int) -> None:
        self._rows_max = min(rows, self._volume.batch)

    def poll(self, now: int) -> Read | Wait | End:
        if now < self._next_us:
            return Wait(self._next_us)
        self._reads += 1
        if self._reads % self._volume.burst == 0:
            self._next_us = now + self._volume.pause_us
        left = [p for p in self._own if self._positions[p] < self._count(p)]
        if not left:
            self._end_us = self._end_us or now + self._volume.silent_us
            if now < self._end_us:
                return Wait(self._end_us)
            self._ledger.ended(self._number, self._own)
            return End()
        partition = left[0] if self._volume.in_turn else min(left, key=lambda p: self._positions[p])
        start = self._positions[partition]
        stop = min(start + 1 + now % self._rows_max, self._count(partition))
        self._ledger.rows_read += stop - start
        read = self._read(partition, start, stop)
        if read.last and self._volume.in_turn:
            self._next_us = now + self._volume.nap_us
        return read

    def reread(self, partition: int, start: int, stop: int) -> Read:
        if self.logs_rows:
            raise SourceError(f"rows [{start}, {stop}) of partition {partition} are in the log")
        return self._read(partition, start, stop)

    def _read(self, partition: int, start: int, stop: int) -> Read:
        self._positions[partition] = stop
        last = stop == self._count(partition) and not self._volume.silent_us
        ids = self._volume.ids(self._number, partition)[start:stop]
        self._ledger.given(self._number, partition, ids[-1] if ids else -1, last)
        rows = pa.record_batch([ids, [key_of(i) for i in ids], [b""] * len(ids)], schema=HISTORY_ROWS)
        self._given += 1
        return Read(partition, start, stop, (among_others(rows, self._given),), last=last)
