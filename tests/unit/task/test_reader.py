"""What a task reads, how much of it at once, and where it continues."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import msgspec
import pyarrow as pa
import pytest

from clonos_py.connectors.memory import MemorySource
from clonos_py.model.errors import SourceError
from clonos_py.model.operators import End, EventTime, Read, Source, Wait
from clonos_py.model.plan import SourcePlan
from clonos_py.model.times import MIN_TIME
from clonos_py.operators.event_time import AssignEventTime
from clonos_py.task.reader import Reader
from clonos_py.task.stored_partitions import StoredPartition, state_of

SCHEMA = pa.schema([("text", pa.string())])
READS = 6


class Texts(Source):
    """Three partitions that give one text at a time, which stands for so many events."""

    def __init__(self, size: int, events: int) -> None:
        self._size, self._events, self._given = size, events, 0

    def partitions(self) -> int:
        return 3

    def seek(self, positions: Mapping[int, int]) -> None:
        self._given = 0

    def poll(self, now: int) -> Read | Wait | End:
        if self._given == READS:
            return End()
        self._given += 1
        return self.reread(self._given % 3, self._given // 3, self._given // 3 + 1)

    def reread(self, partition: int, start: int, stop: int) -> Read:
        rows = pa.record_batch([["x" * self._size]], schema=SCHEMA)
        return Read(partition, start, stop, (rows,), events=self._events)


def sizes(size: int = 1, events: int = 1, merge_rows: int = 100, parallelism: int = 1) -> list[int]:
    """How many reads each poll gives, until the end."""
    plan = SourcePlan("texts", lambda: Texts(size, events), (SCHEMA,), EventTime((None,)), merge_rows)
    reader = Reader(plan, 0, parallelism)
    reader.restore([], None)
    found = []
    while reads := reader.poll(0):
        found.append(len(reads))
    assert reads == []
    return found


class Told(Texts):
    """Records the positions of completed checkpoints."""

    reached: dict[int, int]

    def commit(self, positions: Mapping[int, int]) -> None:
        self.reached = dict(positions)


def test_a_source_receives_the_positions_of_completed_checkpoints() -> None:
    """By the positions of all former instances together, the newest last."""
    source = Told(1, 1)
    made = Reader(SourcePlan("texts", lambda: source, (SCHEMA,), EventTime((None,)), commits=True), 0, 1)
    assert made.commits
    made.restore([], None)
    first = made.prepared()
    reads = made.poll(0)
    assert isinstance(reads, list)
    for read in reads:
        made.accept(read, 0)
    made.commit_all([first, made.prepared(), msgspec.msgpack.encode({7: 3})])
    assert made.positions
    assert source.reached == {**made.positions, 7: 3}


def test_every_partition_is_read_in_each_poll() -> None:
    assert sizes() == [3, 3]
    assert sizes(parallelism=3) == [1] * READS


@pytest.mark.parametrize("most", [{"merge_rows": 2}, {"events": 20_000}, {"size": 3 << 20}])
def test_a_poll_stops_at_the_limit(most: dict[str, int]) -> None:
    assert sizes(**most) == [2, 2, 2]


@pytest.mark.parametrize("alone", [{"merge_rows": 0}, {"merge_rows": 1}, {"events": 40_000}, {"size": 5 << 20}])
def test_a_read_that_reaches_the_limit_alone_is_a_poll_of_its_own(alone: dict[str, int]) -> None:
    assert sizes(**alone) == [1] * READS


def reader(partitions: int) -> Reader:
    rows = pa.record_batch({"n": pa.array(range(12))})
    source = MemorySource(rows, partitions=partitions)
    return Reader(SourcePlan("numbers", partial(source.create, (None,)), source.schemas, EventTime((None,))), 0, 1)


def test_positions_of_all_former_instances_are_restored() -> None:
    ours = reader(4)
    ours.restore([state_of({0: StoredPartition(1)}), state_of({3: StoredPartition(2)})], None)
    assert ours.positions == {0: 1, 3: 2}


def test_a_partition_that_is_gone_since_the_checkpoint_is_an_error() -> None:
    with pytest.raises(
        SourceError, match="the list of inputs has changed since the checkpoint, partition 3 no longer exists"
    ):
        reader(3).restore([state_of({0: StoredPartition(1), 3: StoredPartition(2)})], None)


class Times(Source):
    """Two partitions; the test defines their reads. Polls give nothing."""

    def partitions(self) -> int:
        return 2

    def seek(self, positions: Mapping[int, int]) -> None: ...

    def poll(self, now: int) -> Wait:
        return Wait(now)


TIMED = pa.schema([("at", pa.int64())])


def timed() -> Reader:
    """Rows may come 5 late; a partition that is silent for 100 is idle."""
    event_time = EventTime(("at",), out_of_order_us=5, idle_us=100)
    made = Reader(SourcePlan("times", Times, (TIMED,), event_time), 0, 1)
    made.restore([], None)
    return made


def read(partition: int, at: int, last: bool = False) -> Read:
    return Read(partition, 0, 1, (pa.record_batch([[at]], schema=TIMED),), last=last)


def test_a_finished_partition_beside_an_idle_one_does_not_end_event_time() -> None:
    reader = timed()
    assert reader.due_idle(0) is None
    reader.accept(read(0, 50), 0)
    reader.accept(read(0, 70, last=True), 100)
    assert reader.due_idle(100) is None, "it may have rows that the task has not read"
    assert reader.poll(100) is None
    assert reader.due_idle(100) == 1
    reader.fall_idle(1)
    assert reader.watermark == 65, "rows of the idle partition may follow from there"
    assert reader.idle
    reader.accept(read(1, 72), 200)
    assert reader.watermark == 67
    assert not reader.idle


def test_a_finished_partition_is_never_idle_and_does_not_hold_the_watermark_back() -> None:
    reader = timed()
    assert reader.due_idle(0) is None
    reader.accept(read(0, 50, last=True), 0)
    reader.accept(read(1, 60), 40)
    assert reader.watermark == 55
    assert reader.next_idle_us == 140
    assert reader.poll(120) is None
    assert reader.due_idle(120) is None
    assert reader.poll(140) is None
    assert reader.due_idle(140) == 1
    reader.accept(read(1, 80, last=True), 140)
    assert reader.watermark == 75, "the end itself is an event of its own"
    assert not reader.idle
    assert reader.next_idle_us is None


def test_a_read_that_only_moves_the_position_leaves_a_partition_idle() -> None:
    """As of a source that follows one table of a database whose log has the changes of others, too."""
    reader = timed()
    reader.accept(read(0, 50), 0)
    reader.accept(read(1, 60), 0)
    for partition in (0, 1):
        reader.fall_idle(partition)
    reader.accept(Read(0, 1, 7, (None,)), 150)
    assert reader.idle
    assert reader.positions[0] == 7


@pytest.mark.parametrize("behind", [0, 1])
@pytest.mark.parametrize("first", [0, 1])
def test_once_no_partition_is_active_the_watermark_is_that_of_the_one_ahead(behind: int, first: int) -> None:
    """It depends on their event times, and neither on their numbers nor on which one fell idle first."""
    reader, ahead = timed(), 1 - behind
    reader.accept(read(behind, 50), 0)
    reader.accept(read(ahead, 300), 0)
    assert reader.watermark == 45
    reader.fall_idle(first)
    assert reader.watermark == (295 if first == behind else 45)
    assert not reader.idle
    reader.fall_idle(1 - first)
    assert reader.watermark == 295
    assert reader.idle


def test_after_a_change_of_parallelism_a_finished_partition_does_not_hold_the_watermark_back() -> None:
    before, after = timed(), timed()
    before.accept(read(0, 50, last=True), 0)
    after.restore([before.snapshot()], None)
    after.accept(read(1, 60), 0)
    assert after.watermark == 55


def assigned_reader(index: int = 0, parallelism: int = 1) -> tuple[Reader, AssignEventTime]:
    """A reader whose rows get their event time from an operator after it."""
    assigner = AssignEventTime("at", 5)
    assigner.out = Nowhere()
    plan = SourcePlan("texts", lambda: Texts(1, 1), (SCHEMA,), EventTime((None,)))
    reader = Reader(plan, index, parallelism, {"timed": assigner})
    reader.restore([], None)
    return reader, assigner


class Nowhere:
    def emit(self, rows: pa.RecordBatch, port: int = 0) -> None:
        """Drops the rows."""


def passed(reader: Reader, assigner: AssignEventTime, partition: int, *times: int) -> None:
    assigner.on_rows(pa.record_batch({"at": pa.array(times, pa.int64())}), 0)
    reader.assign(partition)


def test_assigned_event_time_follows_the_partition_farthest_behind() -> None:
    reader, assigner = assigned_reader()
    for partition, time in ((0, 100), (1, 70), (2, 90)):
        assert reader.assigned("timed") == MIN_TIME
        passed(reader, assigner, partition, time, time - 50)
    assert reader.assigned("timed") == 65
    assert reader.watermark == MIN_TIME


@pytest.mark.parametrize("parallelism", [1, 2])
def test_assigned_event_time_continues_from_the_snapshot(parallelism: int) -> None:
    reader, assigner = assigned_reader()
    for partition, time in ((0, 100), (1, 70), (2, 90)):
        passed(reader, assigner, partition, time)
    saved = reader.snapshot()
    restored = [assigned_reader(index, parallelism)[0] for index in range(parallelism)]
    for other in restored:
        other.restore([saved], reader.partitions if parallelism == 1 else None)
    assert [other.assigned("timed") for other in restored] == ([65] if parallelism == 1 else [85, 65])
