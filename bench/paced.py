"""A source that gives rows at a fixed rate, for jobs that are observed while they run."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from clonos_py.model.operators import End, Read, Source, Wait


class PacedSource(Source):
    """Each of ``partitions`` partitions gives ``total`` rows, one every ``1 / rate`` seconds. One read takes at most
    ``most`` of the rows that are due. After ``seek`` the schedule is set so that it continues at the current row."""

    def __init__(self, total: int, rate: float, partitions: int = 1, most: int | None = None) -> None:
        self._total, self._interval_us = total, 1e6 / rate
        self._partitions, self._most = partitions, most or total
        self._rows_max = self._most
        self._position = 0
        self._origin_us: float | None = None

    def partitions(self) -> int:
        return self._partitions

    def open(self, index: int, parallelism: int) -> None:
        self._partition = index
        if index >= self._partitions:
            self._total = 0

    def seek(self, positions: Mapping[int, int]) -> None:
        self._position, self._origin_us = positions.get(self._partition, 0), None

    def limit(self, rows: int) -> None:
        self._rows_max = min(rows, self._most)

    def poll(self, now: int) -> Read | Wait | End:
        if self._position >= self._total:
            return End()
        if self._origin_us is None:
            self._origin_us = now - self._position * self._interval_us
        due = min(self.due_rows(now - self._origin_us), self._total)
        if due <= self._position:
            return Wait(int(self.due_us(self._position)) + 1)
        return self.reread(self._partition, self._position, min(due, self._position + self._rows_max))

    def reread(self, partition: int, start: int, stop: int) -> Read:
        self._position = stop
        return Read(partition, start, stop, (self.rows(partition, start, stop),), last=stop == self._total)

    def due_rows(self, elapsed_us: float) -> int:
        """How many rows of a partition are due ``elapsed_us`` after the begin of its schedule."""
        return int(elapsed_us / self._interval_us)

    def due_us(self, row: int) -> float:
        """The time at which a row of the current schedule is due, in microseconds."""
        return (self._origin_us or 0.0) + (row + 1) * self._interval_us

    def rows(self, partition: int, start: int, stop: int) -> pa.RecordBatch:
        """Rows [start, stop) of a partition."""
        raise NotImplementedError
