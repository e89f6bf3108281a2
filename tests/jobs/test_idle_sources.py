"""A source without rows and event time."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
import pytest

from clonos_py import Context, Instant, Job, Record, count, testing, tumbling
from clonos_py.connectors import MemorySink, MemorySource
from clonos_py.model.connectors import SourceDefinition
from clonos_py.model.operators import End, Read, Source, Wait
from tests.jobs.rows import EVENTS, IN_FOURS, SECOND, Event


class QuietSource(Source):
    """Gives a row, then nothing for two seconds."""

    def __init__(self) -> None:
        self._position = 0

    def seek(self, positions: Mapping[int, int]) -> None:
        self._position = positions.get(0, 0)
        self._until: int | None = None

    def poll(self, now: int) -> Read | Wait | End:
        if self._position == 0:
            self._position = 1
            return self.reread(0, 0, 1)
        self._until = self._until or now + 2 * SECOND
        return Wait(self._until) if now < self._until else End()

    def reread(self, partition: int, start: int, stop: int) -> Read:
        self._position = stop
        row = pa.RecordBatch.from_pylist(
            [{"id": 0, "key": "a", "value": 0, "at": 0, "note": None}], schema=Event.schema()
        )
        return Read(0, start, stop, (row,))


class Quiet(SourceDefinition):
    schemas = (Event.schema(),)
    records = (Event,)

    def create(self, columns: tuple[tuple[str, ...] | None, ...], read_rows: int | None = None) -> Source:
        return ProjectedQuietSource(columns[0])


class ProjectedQuietSource(QuietSource):
    def __init__(self, columns: tuple[str, ...] | None) -> None:
        super().__init__()
        self._columns = columns

    def reread(self, partition: int, start: int, stop: int) -> Read:
        read = super().reread(partition, start, stop)
        (row,) = read.rows
        assert row is not None
        return read if self._columns is None else read._replace(rows=(row.select(list(self._columns)),))


class Stamped(Record):
    window_end: Instant
    rows: int
    seen: Instant


class Counted(Record):
    window_end: Instant
    rows: int


def stamped(row: Counted, ctx: Context) -> Stamped:
    return Stamped(row.window_end, row.rows, ctx.time.now())


@pytest.mark.parametrize("idle", ["200ms", None])
def test_an_idle_source_does_not_hold_windows_back(idle: str | None) -> None:
    for seed in range(2):
        job = Job("semantics")
        quiet = job.source(Quiet(), event_time="at", idle=idle).named("quiet")
        ending = job.source(MemorySource(EVENTS), event_time="at", out_of_order="4s").named("in")
        windows = ending.union(quiet).window(tumbling("10s")).aggregate(Counted, rows=count())
        windows.map(stamped).sink(MemorySink()).named("out")
        out = testing.run(job, {"in": IN_FOURS}, first_seed=seed)["out"]
        assert sum(row.rows for row in out) == len(EVENTS) + 1
        waited = [row.seen - 1_700_000_000 * SECOND for row in out if row.window_end <= 30 * SECOND]
        assert all((time < SECOND) == (idle is not None) for time in waited)


class Halves(Source):
    """Partition 0 gives its four rows in 0.4 s and is finished; partition 1 gives its three after 1 s."""

    def __init__(self, columns: tuple[str, ...] | None) -> None:
        self._columns = columns
        self.seek({})

    def partitions(self) -> int:
        return 2

    def seek(self, positions: Mapping[int, int]) -> None:
        self._positions = {0: positions.get(0, 0), 1: positions.get(1, 0)}
        self._began: int | None = None

    def poll(self, now: int) -> Read | Wait | End:
        self._began = self._began or now
        first, second = self._positions.values()
        due = self._began + (first * SECOND // 10 if first < 4 else SECOND)
        if now < due:
            return Wait(due)
        if first < 4:
            return self.reread(0, first, first + 1)
        return self.reread(1, second, second + 1) if second < 3 else End()

    def reread(self, partition: int, start: int, stop: int) -> Read:
        self._positions[partition] = stop
        at = (4 * partition + start) * SECOND
        row = {"id": 0, "key": "a", "value": 0, "at": at, "note": None}
        rows = pa.RecordBatch.from_pylist([row], schema=Event.schema())
        given = rows if self._columns is None else rows.select(list(self._columns))
        return Read(partition, start, stop, (given,), last=stop == (3 if partition else 4))


class InHalves(SourceDefinition):
    schemas = (Event.schema(),)
    records = (Event,)

    def create(self, columns: tuple[tuple[str, ...] | None, ...], read_rows: int | None = None) -> Source:
        return Halves(columns[0])


@pytest.mark.parametrize("kills", [0, 2])
def test_rows_of_a_partition_that_was_idle_while_another_finished_are_not_late(kills: int) -> None:
    job = Job("halves")
    events = job.source(InHalves(), event_time="at", idle="200ms").named("in")
    events.window(tumbling("1s")).aggregate(Counted, rows=count()).sink(MemorySink()).named("out")
    out = testing.run(job, {}, kills=kills, seeds=3)["out"]
    assert [(row.window_end // SECOND, row.rows) for row in sorted(out, key=lambda row: row.window_end)] == [
        (second, 1) for second in range(1, 8)
    ]
