"""Sources and sinks of one's own, in whole jobs with failures, and their errors."""

from __future__ import annotations

import json
import os
import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from clonos_py import Job, Record, col, count, testing
from clonos_py.connectors import (
    CommitId,
    End,
    IdempotentSink,
    MemorySink,
    MemorySource,
    PartitionedSource,
    Read,
    RowCommitter,
    RowReader,
    RowWriter,
    SinkError,
    Source,
    SourceError,
    TransactionalSink,
    Wait,
)
from clonos_py.model.errors import UnreadableCheckpointError
from clonos_py.model.record_codec import encode
from clonos_py.plan.physical import plan
from clonos_py.runtime.launch import run_job
from clonos_py.runtime.sim.run import SimulatedRun, simulate_plan
from clonos_py.settings.resolution import resolve
from clonos_py.testing import check_sink
from tests.connectors.contexts import opened as opened_sink
from tests.small_pieces import in_small_pieces


class Number(Record):
    partition: str
    number: int


class NumbersReader(RowReader):
    """Positions are multiples of ten: they need not count rows."""

    def __init__(self, partition: str, count: int, follow: bool = False) -> None:
        self._partition, self._count, self._follow = partition, count, follow

    def read(self, position: int, rows_max: int) -> Any:
        first = position // 10
        numbers = range(first, min(self._count, first + rows_max))
        if not numbers:
            return ([], position) if self._follow else None
        return [Number(self._partition, number) for number in numbers], 10 * numbers.stop


class Numbers(PartitionedSource[Number]):
    read_rows_max = 7

    def __init__(self, *names: str, count: int = 30) -> None:
        super().__init__(Number)
        self._names, self._count = names, count

    def partitions(self) -> Sequence[str]:
        return self._names

    def open(self, partition: str) -> RowReader:
        return NumbersReader(partition, self._count)


def opened(definition: PartitionedSource[Any], read_rows: int | None = None) -> Source:
    source = definition.create((None,), read_rows)
    source.open(0, 1)
    return source


def numbers_of(read: Read | Wait | Any) -> list[int]:
    assert isinstance(read, Read)
    return [] if read.rows[0] is None else [row["number"] for row in read.rows[0].to_pylist()]


def copied(source: PartitionedSource[Any]) -> Job:
    job = Job("copied")
    job.source(source).named("numbers").filter(col("number") != 3).sink(MemorySink()).named("out")
    return job


@pytest.mark.parametrize("parallelism", [pytest.param(1, marks=pytest.mark.thorough), 2])
def test_each_row_comes_once_under_any_failures(parallelism: int) -> None:
    out = testing.run(copied(Numbers("a", "b", "c")), {}, kills=2, seeds=4, parallelism=parallelism)["out"]
    rows = sorted((row.partition, row.number) for row in out)
    assert rows == [(name, number) for name in "abc" for number in range(30) if number != 3]


def test_reads_are_repeated_with_the_same_rows_under_any_limit() -> None:
    source = opened(Numbers("a", count=100))
    pieces = []
    for limit in (7, 1, 5, 2, 7, 7, 3):
        source.limit(limit)
        pieces.append(source.poll(0))
    assert [len(numbers_of(piece)) for piece in pieces] == [7, 1, 5, 2, 7, 7, 3]
    for read_rows in (None, 1, 3):
        again = opened(Numbers("a", count=1_000), read_rows)
        for piece in pieces:
            assert isinstance(piece, Read)
            assert again.reread(0, piece.start, piece.stop) == piece
        assert numbers_of(again.poll(0))[0] == 32


def test_a_source_without_rows_waits_and_reads_its_partitions_in_turn() -> None:
    definition = Growing()
    source = opened(definition)
    assert [numbers_of(source.poll(0)) for _ in range(2)] == [[0, 1, 2]] * 2
    assert source.poll(5) == Wait(5 + definition.poll_every_us)
    definition.counts["b"] = 4
    assert numbers_of(source.poll(200_000)) == [3]
    assert source.poll(200_000) == Wait(200_000 + definition.poll_every_us)


def test_an_ended_source_reports_its_end() -> None:
    source = opened(Numbers("a", count=1))
    first, last, end = (source.poll(0) for _ in range(3))
    assert isinstance(first, Read)
    assert isinstance(last, Read)
    assert (first.last, last.last, end) == (False, True, End())


class Growing(Numbers):
    """Two partitions of three rows at first."""

    def __init__(self) -> None:
        super().__init__("a", "b")
        self.counts = {"a": 3, "b": 3}

    def open(self, partition: str) -> RowReader:
        counts = self.counts

        class Reader(RowReader):
            def read(self, position: int, rows_max: int) -> Any:
                return NumbersReader(partition, counts[partition], follow=True).read(position, rows_max)

        return Reader()


class Broken(Numbers):
    """Returns the given value."""

    def __init__(self, given: Any, names: Sequence[str] = ("a",)) -> None:
        super().__init__(*names)
        self._given = given

    def open(self, partition: str) -> RowReader:
        given = self._given

        class Reader(RowReader):
            def read(self, position: int, rows_max: int) -> Any:
                if isinstance(given, Exception):
                    raise given
                return given

        return Reader()


ROW = Number("a", 1)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (([ROW], 0), r"Broken, partition 'a': read\(0, 7\) gave 1 rows and position 0; give the position behind the"),
        (([ROW], "1"), "gave 1 rows and position '1'; give the position behind the last row"),
        (([ROW], 1 << 50), r"a higher integer below 2\*\*47"),
        (([], 5), "gave 0 rows and position 5; give the position behind the last row"),
        (([ROW] * 8, 80), "gave 8 rows and position 80; give at most as many rows as are asked for"),
        (([{"number": 1}], 1), "partition 'a': .*'partition'"),
        (7, "partition 'a' raised TypeError: cannot unpack"),
        (
            (pa.record_batch({"x": [1]}), 1),
            "its rows have the columns x int64, and were declared as partition string not null",
        ),
        (KeyError("gone"), r"partition 'a' raised KeyError: 'gone'; at test_own_connectors\.py:\d+ in read"),
        (SourceError("the server is away: start it"), "^the server is away: start it$"),
    ],
)
def test_a_reader_that_breaks_its_contract_is_named(given: Any, message: str) -> None:
    with pytest.raises(SourceError, match=message):
        opened(Broken(given)).poll(0)


def test_rows_that_are_gone_or_moved_are_named_when_they_are_reread() -> None:
    first = opened(Numbers("a")).poll(0)
    assert isinstance(first, Read)
    with pytest.raises(SourceError, match="there were rows between positions 0 and 70, and there are none at 50 now"):
        opened(Numbers("a", count=5)).reread(0, first.start, first.stop)
    with pytest.raises(SourceError, match="a read ended at position 15 before, and now the row at 10 leads to 20"):
        opened(Numbers("a")).reread(0, first.start, first.start + 15)


@pytest.mark.parametrize("names", [(), ("a", "a"), ("",)])
def test_partitions_need_names(names: Sequence[str]) -> None:
    with pytest.raises(SourceError, match=r"Numbers\.partitions gave \[.*each once, none empty"):
        opened(Numbers(*names))


def test_partitions_are_listed_once_where_the_job_is_submitted(tmp_path: Path) -> None:
    class Listed(Numbers):
        def partitions(self) -> Sequence[str]:
            return sorted(os.listdir(tmp_path))

    (tmp_path / "one").touch()
    definition = Listed()
    state = definition.__getstate__()
    (tmp_path / "two").touch()
    assert pickle.loads(pickle.dumps(state))["names"] == ("one",)
    assert opened(definition).partitions() == 1


VISIBLE: dict[CommitId, list[int]] = {}
MARKS: dict[str, int] = {}


class Committed(TransactionalSink):
    def open(self, schema: pa.Schema) -> RowCommitter:
        return DictCommitter()


class DictCommitter(RowCommitter):
    def commit(self, commit: CommitId, rows: pa.Table) -> None:
        if commit.checkpoint > MARKS.get(commit.owner, 0):
            MARKS[commit.owner] = commit.checkpoint
            VISIBLE[commit] = [row["number"] for row in rows.to_pylist()]


class FolderSink(IdempotentSink):
    """Keeps a file for each number in ``folder``."""

    upserts = deletes = True

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder).absolute()

    def open(self, schema: pa.Schema) -> RowWriter:
        return FolderWriter(self._folder)


class FolderWriter(RowWriter):
    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def write(self, rows: pa.RecordBatch) -> None:
        for row in rows.to_pylist():
            file = self._folder / f"{row['number']}.json"
            if row.pop("_change") == "delete":
                file.unlink(missing_ok=True)
            else:
                whole = file.with_suffix(f".{os.getpid()}")  # a death never leaves half of a file
                whole.write_text(json.dumps(row))
                whole.rename(file)


@pytest.fixture(autouse=True)
def nothing_written() -> None:
    nothing_written_yet()


def nothing_written_yet() -> None:
    VISIBLE.clear()
    MARKS.clear()


def test_a_transactional_sink_writes_each_row_once_under_any_failures() -> None:
    kills, commits = 0, 0
    for seed in range(2):
        clean = simulated(seed, kills=0, actions=None)
        killed = simulated(seed, 3, clean.actions)
        assert clean.problems == killed.problems == []
        kills += killed.kills
        commits = max(commits, len(VISIBLE))
        assert sorted(number for numbers in VISIBLE.values() for number in numbers) == list(range(400))
        assert {commit.owner for commit in VISIBLE} == {f"seed-{seed}/out/0", f"seed-{seed}/out/1"}
    assert kills > 4
    assert commits > 4, "it commits several checkpoints"


def test_rows_stay_in_checkpoints_until_they_are_committed() -> None:
    sink = opened_sink(Committed().create(Number.schema()))
    sink.restore([])
    sink.on_rows(encode([Number("a", 1)], Number.schema()), 0)
    first = sink.prepare(1)
    state = sink.snapshot()
    assert first is not None
    assert sink.prepare(2) is None
    assert sink.snapshot().tables == state.tables, "the checkpoint may yet be aborted"
    sink.commit_all([first])
    assert sink.prepare(3) is None
    assert sink.snapshot().tables == {}

    replacement = opened_sink(Committed().create(Number.schema()))
    replacement.loaded([state])
    replacement.commit_all([first])
    replacement.restore([state])
    assert replacement.prepare(2) is None
    assert replacement.snapshot().tables == {}
    assert list(VISIBLE.values()) == [[1]]


def test_a_committable_of_another_sink_and_missing_rows_are_named() -> None:
    sink = opened_sink(Committed().create(Number.schema()))
    with pytest.raises(SinkError, match="operator 'out': the checkpoint names no rows of this sink"):
        sink.commit(b"nonsense")
    sink.on_rows(encode([Number("a", 1)], Number.schema()), 0)
    first = sink.prepare(1)
    assert first is not None
    with pytest.raises(
        UnreadableCheckpointError, match="operator 'out': rows of checkpoint 1 are not in the checkpoint that names"
    ):
        opened_sink(Committed().create(Number.schema())).commit(first)


def same(row: Number) -> Number:
    return row


def simulated(seed: int, kills: int, actions: int | None) -> SimulatedRun:
    """The rows of an earlier run are deleted first."""
    nothing_written_yet()
    job = Job("written")
    rows = job.source(MemorySource([Number("a", number) for number in range(400)], 3, batch_rows=2))
    rows.rebalance().map(same).rebalance().sink(Committed()).named("out")
    small = in_small_pieces(plan(job, resolve({}), parallelism=2))
    return simulate_plan(small, seed, kills, actions_expected=actions, linger_us=0)


def in_folder(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(file.read_text()) for file in folder.glob("*.json")]


def test_an_idempotent_sink_keeps_the_contract(tmp_path: Path) -> None:
    check_sink(FolderSink(str(tmp_path)), lambda: in_folder(tmp_path), row=first_of, later=later_of, deaths=8)


def first_of(number: int) -> Number:
    return Number("first", number)


def later_of(number: int) -> Number:
    return Number("later", number)


@pytest.mark.parametrize("parallelism", [pytest.param(1, marks=pytest.mark.thorough), 3])
def test_an_idempotent_sink_keeps_a_table_that_loses_rows(tmp_path: Path, parallelism: int) -> None:
    """The number of keys by number of rows: all but the last of these numbers are deleted in the end."""
    rows = [Number(name, number) for name, count in (("a", 5), ("b", 9)) for number in range(count)]
    job = Job("counted")
    counts = job.source(MemorySource(rows, batch_rows=1)).key_by("partition").aggregate(number=count()).named("count")
    counts.key_by("number").aggregate(keys=count()).named("keys").sink(FolderSink(str(tmp_path))).named("out")
    run_job(job, resolve(command_line={"runtime": "local", "parallelism": parallelism}))
    assert sorted((row["number"], row["keys"]) for row in in_folder(tmp_path)) == [(5, 1), (9, 1)]


class Failing(TransactionalSink):
    def open(self, schema: pa.Schema) -> RowCommitter:
        raise OSError("no route to the server")


def test_an_exception_of_a_sink_names_the_operator_and_the_line() -> None:
    job = Job("failing")
    job.source(MemorySource([Number("a", 1)])).sink(Failing()).named("out")
    with pytest.raises(SinkError, match=r"operator 'out' raised OSError: no route to the server; at test_own_conn"):
        run_job(job, resolve(command_line={"runtime": "local"}))
