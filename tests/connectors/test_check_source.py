"""``check_source`` passes sources that keep the contract, and names the rule that another one breaks."""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from clonos_py import Record
from clonos_py.connectors import (
    End,
    FileSource,
    MemorySource,
    PartitionedSource,
    Read,
    RowReader,
    Source,
    SourceDefinition,
    Wait,
)
from clonos_py.testing import check_source

PARTITIONS, ROWS = 2, 12


class Tick(Record):
    number: int
    text: str


def tick(partition: int, number: int) -> Tick:
    return Tick(partition * 1_000 + number, f"tick {number}")


TICKS = [tick(partition, number) for partition in range(PARTITIONS) for number in range(ROWS)]


@pytest.mark.parametrize("partitions", [1, 3])
def test_rows_from_memory_keep_the_contract(partitions: int) -> None:
    check_source(MemorySource(TICKS, partitions, batch_rows=5), TICKS)


@pytest.mark.parametrize("follow", [False, True])
@pytest.mark.parametrize("format", ["jsonl", "csv"])
def test_files_keep_the_contract(format: str, follow: bool, tmp_path: Path) -> None:
    for number in range(3):
        rows = TICKS[number::3]
        lines = [json.dumps({"number": row.number, "text": row.text}) for row in rows]
        lines = lines if format == "jsonl" else ["number,text", *(f"{row.number},{row.text}" for row in rows)]
        (tmp_path / f"{number}.{format}").write_text("".join(f"{line}\n" for line in lines))
    check_source(FileSource(str(tmp_path), Tick, format, follow=follow), TICKS)


class TickReader(RowReader):
    def __init__(self, partition: int) -> None:
        self.partition = partition

    def read(self, position: int, rows_max: int) -> tuple[list[Tick], int] | None:
        numbers = range(position, min(ROWS, position + rows_max))
        return ([tick(self.partition, number) for number in numbers], numbers.stop) if numbers else None


class Ticks(PartitionedSource[Tick]):
    read_rows_max = 5
    reader: type[TickReader] = TickReader

    def __init__(self) -> None:
        super().__init__(Tick)

    def partitions(self) -> Sequence[str]:
        return [str(partition) for partition in range(PARTITIONS)]

    def open(self, partition: str) -> RowReader:
        return self.reader(int(partition))


def test_a_source_of_ones_own_keeps_the_contract() -> None:
    check_source(Ticks(), TICKS)


def test_missing_rows_and_superfluous_rows_are_reported() -> None:
    with pytest.raises(AssertionError, match=r"every row is read once': 1 rows are missing, such as \{'number': 5000"):
        check_source(Ticks(), [*TICKS, Tick(5_000, "")])
    with pytest.raises(AssertionError, match=r"1 rows are too many, such as \{'number': 0,"):
        check_source(Ticks(), TICKS[1:])


_read = itertools.count()


class Unrepeatable(TickReader):
    def read(self, position: int, rows_max: int) -> tuple[list[Tick], int] | None:
        found = super().read(position, rows_max)
        return found and ([Tick(row.number, f"read {next(_read)}") for row in found[0]], found[1])


class SkippingAfterASeek(TickReader):
    """Skips a row after a seek, and none when it continues."""

    at = 0

    def read(self, position: int, rows_max: int) -> tuple[list[Tick], int] | None:
        found = super().read(position + (position != self.at), rows_max)
        self.at = position if found is None else found[1]
        return found


class NotGoingBack(TickReader):
    """Continues at its own position, whatever position is asked for."""

    at: int | None = None

    def read(self, position: int, rows_max: int) -> tuple[list[Tick], int] | None:
        self.at = max(position, self.at or 0)
        found = super().read(self.at, rows_max)
        self.at = self.at if found is None else found[1]
        return found


class CutDependent(TickReader):
    """Rounds positions to whole pages: rows of a partly read page are lost."""

    def read(self, position: int, rows_max: int) -> tuple[list[Tick], int] | None:
        found = super().read(position, rows_max)
        return found and (found[0], -(-found[1] // 4) * 4)


@pytest.mark.parametrize(
    ("reader", "rule"),
    [
        (Unrepeatable, "the same positions have the same rows, in every process"),
        (SkippingAfterASeek, "reading goes on at the position that it was given"),
        (NotGoingBack, "a source that has read on can go back"),
        (CutDependent, "positions do not depend on how many rows are asked for"),
    ],
)
def test_a_reader_that_breaks_a_rule_is_reported_with_the_remedy(reader: type[TickReader], rule: str) -> None:
    class Bad(Ticks):
        pass

    Bad.reader = reader
    with pytest.raises(AssertionError, match=rf"^Bad breaks the rule '({rule}).*Remedy: "):
        check_source(Bad())


class RawTicks(Source):
    """The same, written against ``Source``."""

    def __init__(self, columns: Sequence[str] | None) -> None:
        self.columns = columns
        self.own: list[int] = []
        self.positions: dict[int, int] = {}
        self.unmarked: set[int] = set()
        self.most = 5

    def partitions(self) -> int:
        return PARTITIONS

    def open(self, index: int, parallelism: int) -> None:
        self.own = list(range(index, PARTITIONS, parallelism))

    def seek(self, positions: Mapping[int, int]) -> None:
        self.positions = {partition: positions.get(partition, 0) for partition in self.own}
        self.unmarked = set(self.own)

    def limit(self, rows: int) -> None:
        self.most = rows

    def poll(self, now: int) -> Any:
        for partition, at in self.positions.items():
            if partition in self.unmarked:
                return self.piece(partition, at, min(ROWS, at + self.most))
        return End()

    def reread(self, partition: int, start: int, stop: int) -> Read:
        return self.piece(partition, start, stop)

    def piece(self, partition: int, start: int, stop: int) -> Read:
        self.positions[partition] = stop
        self.unmarked -= {partition} if stop == ROWS else set()
        rows = MemorySource([tick(partition, number) for number in range(start, stop)], schema=Tick)._rows
        taken = rows if self.columns is None else rows.select(list(self.columns))
        return Read(partition, start, stop, (taken,), last=stop == ROWS)


class RawSource(SourceDefinition[Tick]):
    schemas = (Tick.schema(),)
    records = (Tick,)

    def create(self, columns: tuple[tuple[str, ...] | None, ...], read_rows: int | None = None) -> Source:
        return RawTicks(columns[0])


def test_a_source_written_against_the_whole_contract_passes() -> None:
    check_source(RawSource(), TICKS)


class NotMarkingEndsAgain(RawTicks):
    def seek(self, positions: Mapping[int, int]) -> None:
        super().seek(positions)
        self.unmarked = {partition for partition, at in self.positions.items() if at < ROWS}


class StandingStill(RawTicks):
    def piece(self, partition: int, start: int, stop: int) -> Read:
        return super().piece(partition, start, stop)._replace(stop=start)


class Jumping(RawTicks):
    def piece(self, partition: int, start: int, stop: int) -> Read:
        read = super().piece(partition, start, stop)
        self.positions[partition] = stop + 1
        return read


class StandingStillAfterAReread(RawTicks):
    def reread(self, partition: int, start: int, stop: int) -> Read:
        before = dict(self.positions)
        read = super().reread(partition, start, stop)
        self.positions = before
        return read


class ReadingEverything(RawTicks):
    def open(self, index: int, parallelism: int) -> None:
        super().open(0, 1)


class LosingAPartition(RawTicks):
    def open(self, index: int, parallelism: int) -> None:
        self.own = [index] if parallelism <= PARTITIONS else []
        self.own = list(range(PARTITIONS)) if parallelism == 1 else self.own


class IgnoringColumns(RawTicks):
    def __init__(self, columns: Sequence[str] | None) -> None:
        super().__init__(None)


class IgnoringSeek(RawTicks):
    def seek(self, positions: Mapping[int, int]) -> None:
        super().seek({})


class RereadingTooMuch(RawTicks):
    def reread(self, partition: int, start: int, stop: int) -> Read:
        return super().reread(partition, start, min(ROWS, stop + 1))


class RereadingOneLess(RawTicks):
    def reread(self, partition: int, start: int, stop: int) -> Read:
        read = super().reread(partition, start, stop)
        (rows,) = read.rows
        return read._replace(rows=(rows and rows.slice(1),))


class EndingTooEarly(RawTicks):
    def piece(self, partition: int, start: int, stop: int) -> Read:
        return super().piece(partition, start, stop)._replace(last=True)


class OtherTypes(RawTicks):
    def piece(self, partition: int, start: int, stop: int) -> Read:
        rows = pa.record_batch({"number": pa.array(range(start, stop), pa.int32()), "text": ["x"] * (stop - start)})
        return super().piece(partition, start, stop)._replace(rows=(rows,))


class GivingNone(RawTicks):
    def poll(self, now: int) -> Any:
        return None


class NeverAnything(RawTicks):
    def poll(self, now: int) -> Any:
        return Wait(now + 1)


class RaisingOnSeek(RawTicks):
    def seek(self, positions: Mapping[int, int]) -> None:
        if positions:
            raise KeyError("positions")
        super().seek(positions)


@pytest.mark.parametrize(
    ("reader", "rule"),
    [
        (StandingStill, r"positions advance with the rows': partition 0 \[0, 0\) with 5 rows"),
        (Jumping, r"a read begins where the last one of its partition ended': partition 0 \[6, 11\) .* position 5"),
        (StandingStillAfterAReread, "after a piece was read again, reading goes on behind it"),
        (ReadingEverything, r"partition p belongs to instance p % parallelism': instance 0 of 2 read partition 1"),
        (LosingAPartition, "partition p belongs to instance p % parallelism': read by 3 instances: .*missing"),
        (IgnoringColumns, "rows have the schema that the definition declares': it gave number int64, text string, and"),
        (IgnoringSeek, "reading goes on at the position that it was given"),
        (RereadingTooMuch, "a piece that is read again has the same rows"),
        (RereadingOneLess, "a piece that is read again has the same rows"),
        (EndingTooEarly, "a partition whose read was the last gives no more"),
        (NotMarkingEndsAgain, "a partition at its end is marked as such again after a seek"),
        (OtherTypes, "rows have the schema that the definition declares': it gave number int32"),
        (GivingNone, "poll gives a Read, a Wait, an End or what is Discovered': it gave None"),
        (NeverAnything, "a source gives rows"),
        (RaisingOnSeek, "a source can be read': it raised KeyError: 'positions'"),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else "",
)
def test_a_source_that_breaks_a_rule_is_reported_with_the_remedy(reader: type[RawTicks], rule: str) -> None:
    class Bad(RawSource):
        def create(self, columns: tuple[tuple[str, ...] | None, ...], read_rows: int | None = None) -> Source:
            return reader(columns[0])

    with pytest.raises(AssertionError, match=rf"^Bad breaks the rule '({rule}).*Remedy: "):
        check_source(Bad())


def test_a_definition_that_holds_a_connection_is_reported() -> None:
    class Held(Ticks):
        def __init__(self) -> None:
            super().__init__()
            self.lock = threading.Lock()

    with pytest.raises(
        AssertionError, match=r"a definition can be sent to other processes.*lock.*Remedy: keep addresses"
    ):
        check_source(Held())


def test_a_source_that_logs_its_rows_need_not_reread_them() -> None:
    class Live(RawTicks):
        logs_rows = True

        def piece(self, partition: int, start: int, stop: int) -> Read:
            read = super().piece(partition, start, stop)
            rows = pa.record_batch([[next(_read)] * (stop - start), ["x"] * (stop - start)], schema=Tick.schema())
            taken = rows if self.columns is None else rows.select(list(self.columns))
            return read._replace(rows=(taken,))

    class LiveSource(RawSource):
        def create(self, columns: tuple[tuple[str, ...] | None, ...], read_rows: int | None = None) -> Source:
            return Live(columns[0])

    check_source(LiveSource())


def test_a_source_without_end_is_read_for_a_while() -> None:
    class Endless(Ticks):
        read_rows_max = 50

        def open(self, partition: str) -> RowReader:
            class Reader(RowReader):
                def read(self, position: int, rows_max: int) -> tuple[list[Tick], int]:
                    return [tick(int(partition), position + n) for n in range(rows_max)], position + rows_max

            return Reader()

    check_source(Endless(), rows_max=300)
