"""``check_sink`` passes sinks that keep the contract, and names the rule that another one breaks."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from clonos_py import Record
from clonos_py.connectors import (
    BlackholeSink,
    Chunk,
    CommitId,
    Delivery,
    FileSink,
    IdempotentSink,
    MemorySink,
    OperatorState,
    RowCommitter,
    RowWriter,
    Sink,
    SinkDefinition,
    TransactionalSink,
    UpsertFileSink,
    UpsertMemorySink,
    read_results,
)
from clonos_py.model.errors import GraphError
from clonos_py.testing import check_sink


class Kept(Record):
    number: int
    text: str


DEATHS = 8
"""Fewer than users have; those sinks have as many that break a rule of deaths."""


def later(number: int) -> Kept:
    return Kept(number, "later")


@pytest.mark.parametrize(
    ("format", "by"),
    [
        ("parquet", ()),
        ("jsonl", ("text",)),
        pytest.param("jsonl", (), marks=pytest.mark.thorough),
        pytest.param("parquet", ("text",), marks=pytest.mark.thorough),
    ],
)
def test_files_keep_the_contract(tmp_path: Path, format: str, by: tuple[str, ...]) -> None:
    check_sink(FileSink(str(tmp_path), format, partition_by=by), lambda: read_results(str(tmp_path)), deaths=DEATHS)


def test_files_of_a_table_keep_the_contract(tmp_path: Path) -> None:
    check_sink(UpsertFileSink(str(tmp_path), "number"), lambda: read_results(str(tmp_path)), later=later, deaths=DEATHS)


@pytest.mark.parametrize("sink", [MemorySink(), UpsertMemorySink("number")], ids=["rows", "table"])
def test_memory_keeps_the_contract(sink: MemorySink) -> None:
    check_sink(sink, lambda: sink.rows(Kept), later=later if sink.upserts else None, deaths=DEATHS)


@dataclass
class Database:
    """The content of a server."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    marks: dict[str, int] = field(default_factory=dict)
    table: dict[int, dict[str, Any]] = field(default_factory=dict)
    staged: dict[str, list[dict[str, Any]]] = field(default_factory=dict)


DATABASE = Database()


@pytest.fixture(autouse=True)
def an_empty_database() -> None:
    for held in (DATABASE.rows, DATABASE.marks, DATABASE.table, DATABASE.staged):
        held.clear()


def visible() -> list[dict[str, Any]]:
    return [*DATABASE.rows, *DATABASE.table.values()]


class Committer(RowCommitter):
    """A transaction is one call: it succeeds as a whole or not at all."""

    def commit(self, commit: CommitId, rows: pa.Table) -> None:
        if commit.checkpoint > DATABASE.marks.get(commit.owner, 0):
            transact(commit.owner, commit.checkpoint, rows.to_pylist())


def transact(owner: str, mark: int, rows: list[dict[str, Any]]) -> None:
    DATABASE.rows, DATABASE.marks = DATABASE.rows + rows, DATABASE.marks | {owner: mark}


class LatestWins(RowCommitter):
    """Writes by key, without marks of commits."""

    def commit(self, commit: CommitId, rows: pa.Table) -> None:
        DATABASE.table = DATABASE.table | {row["number"]: row for row in rows.to_pylist()}


class Committed(TransactionalSink):
    committer: type[RowCommitter] = Committer

    def open(self, schema: pa.Schema) -> RowCommitter:
        return self.committer()


class Unmarked(RowCommitter):
    def commit(self, commit: CommitId, rows: pa.Table) -> None:
        DATABASE.rows = DATABASE.rows + rows.to_pylist()


class MarkedInMemory(RowCommitter):
    def __init__(self) -> None:
        self.marks: dict[str, int] = {}

    def commit(self, commit: CommitId, rows: pa.Table) -> None:
        if commit.checkpoint > self.marks.get(commit.owner, 0):
            self.marks[commit.owner] = commit.checkpoint
            DATABASE.rows = DATABASE.rows + rows.to_pylist()


class MarkedAfterwards(RowCommitter):
    def commit(self, commit: CommitId, rows: pa.Table) -> None:
        if commit.checkpoint > DATABASE.marks.get(commit.owner, 0):
            DATABASE.rows = DATABASE.rows + rows.to_pylist()
            DATABASE.marks = DATABASE.marks | {commit.owner: commit.checkpoint}


class MarkedBefore(RowCommitter):
    def commit(self, commit: CommitId, rows: pa.Table) -> None:
        if commit.checkpoint > DATABASE.marks.get(commit.owner, 0):
            DATABASE.marks = DATABASE.marks | {commit.owner: commit.checkpoint}
            DATABASE.rows = DATABASE.rows + rows.to_pylist()


class MarkedByTheLastOnly(RowCommitter):
    """Treats a late commit as a new one."""

    def commit(self, commit: CommitId, rows: pa.Table) -> None:
        if commit.checkpoint != DATABASE.marks.get(commit.owner, 0):
            transact(commit.owner, commit.checkpoint, rows.to_pylist())


class MarkedWithoutOwner(RowCommitter):
    def commit(self, commit: CommitId, rows: pa.Table) -> None:
        if commit.checkpoint > DATABASE.marks.get("", 0):
            transact("", commit.checkpoint, rows.to_pylist())


class MarkedWithoutLineage(RowCommitter):
    def commit(self, commit: CommitId, rows: pa.Table) -> None:
        owner = commit.owner.partition("/")[2]
        if commit.checkpoint > DATABASE.marks.get(owner, 0):
            transact(owner, commit.checkpoint, rows.to_pylist())


class Racing(RowCommitter):
    """Reads the mark, and lets another process commit before it continues."""

    def commit(self, commit: CommitId, rows: pa.Table) -> None:
        if commit.checkpoint > DATABASE.marks.get(commit.owner, 0):
            time.sleep(0.02)
            transact(commit.owner, commit.checkpoint, rows.to_pylist())


class LosingARow(RowCommitter):
    def commit(self, commit: CommitId, rows: pa.Table) -> None:
        Committer().commit(commit, rows.slice(1))


class Raising(RowCommitter):
    def commit(self, commit: CommitId, rows: pa.Table) -> None:
        raise ConnectionError("no server")


def test_a_sink_of_ones_own_keeps_the_contract() -> None:
    check_sink(Committed(), visible, deaths=DEATHS)


@pytest.mark.parametrize(
    ("committer", "rule"),
    [
        (Unmarked, "commit twice writes once': 0 rows are missing, 2 rows are too many"),
        (MarkedInMemory, "commit twice writes once"),
        (
            MarkedAfterwards,
            "a death within commit loses and duplicates nothing': 0 rows are missing, 3 rows are too many",
        ),
        (MarkedBefore, "a death within commit loses and duplicates nothing': 3 rows are missing, such as"),
        (MarkedByTheLastOnly, "an attempt that was replaced has no further effect"),
        (MarkedWithoutOwner, "a commit shows the rows that were prepared, and no others|rows of an aborted checkpoint"),
        (MarkedWithoutLineage, "rows of another run are not taken for those of an earlier one"),
        (Racing, "two processes may commit the same rows at the same time': 0 rows are missing, 2 rows are too many"),
        (LosingARow, "a commit shows the rows that were prepared, and no others': 1 rows are missing, such as {'numbe"),
        (
            Raising,
            "a commit shows the rows that were prepared, .*raised ConnectionError: no server; at test_check_sink",
        ),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else "",
)
def test_a_committer_that_breaks_a_rule_is_reported_with_the_remedy(committer: type[RowCommitter], rule: str) -> None:
    class Bad(Committed):
        pass

    Bad.committer = committer
    with pytest.raises(AssertionError, match=rf"^Bad breaks the rule '({rule}).*Remedy: "):
        check_sink(Bad(), visible)


class Staging(Sink):
    """Written against ``Sink``: rows are staged in the database under a name, which prepare returns."""

    def __init__(self) -> None:
        self.written: list[dict[str, Any]] = []

    def on_rows(self, rows: pa.RecordBatch, side: int) -> None:
        self.written += rows.to_pylist()

    def prepare(self, checkpoint: int) -> bytes | None:
        name = f"{self.owner}@{checkpoint}@{id(self)}"
        DATABASE.staged[name], self.written = self.written, []
        return name.encode()

    @property
    def owner(self) -> str:
        return f"{self.ctx.numbering}/{self.ctx.operator}/{self.ctx.task.index}"

    def commit(self, committable: bytes) -> None:
        owner, checkpoint, _ = committable.decode().split("@")
        if int(checkpoint) > DATABASE.marks.get(owner, 0):
            transact(owner, int(checkpoint), DATABASE.staged[committable.decode()])

    def restore(self, parts: Sequence[OperatorState]) -> None:
        self.written = []


class VisibleAtOnce(Staging):
    def on_rows(self, rows: pa.RecordBatch, side: int) -> None:
        DATABASE.rows = DATABASE.rows + rows.to_pylist()


class VisibleWhenPrepared(Staging):
    def prepare(self, checkpoint: int) -> bytes | None:
        transact(self.owner, checkpoint, self.written)
        self.written = []
        return b"done"

    def commit(self, committable: bytes) -> None:
        pass


class ForgettingAtRestart(Staging):
    """Commits the rows in memory, whatever the checkpoint names."""

    def __init__(self) -> None:
        super().__init__()
        self.prepared: dict[bytes, list[dict[str, Any]]] = {}

    def prepare(self, checkpoint: int) -> bytes | None:
        name = f"{self.owner}@{checkpoint}@".encode()
        self.prepared[name], self.written = self.written, []
        return name

    def commit(self, committable: bytes) -> None:
        DATABASE.rows = DATABASE.rows + self.prepared.pop(committable, [])


class PreparingOnlyTheLast(Staging):
    """An epoch replaces one that was aborted."""

    def commit_all(self, committables: Sequence[bytes]) -> None:
        self.commit(committables[-1])


class NamingTheTaskThatCommits(Staging):
    def prepare(self, checkpoint: int) -> bytes | None:
        DATABASE.staged[f"{self.owner}@{checkpoint}"], self.written = self.written, []
        return str(checkpoint).encode()

    def commit(self, committable: bytes) -> None:
        checkpoint = int(committable)
        if checkpoint > DATABASE.marks.get(self.owner, 0):
            transact(self.owner, checkpoint, DATABASE.staged[f"{self.owner}@{checkpoint}"])


class NotNamingTheTask(Staging):
    @property
    def owner(self) -> str:
        return f"{self.ctx.numbering}/{self.ctx.operator}"


class NamingWithText(Staging):
    def prepare(self, checkpoint: int) -> Any:
        return "text"


class SnapshotWithAnObject(Staging):
    def snapshot(self) -> OperatorState:
        return OperatorState(values={"lock": object()})


class KeepingWhatIsNotPrepared(Staging):
    """Keeps its rows when it goes back."""

    def restore(self, parts: Sequence[OperatorState]) -> None:
        pass


class KeepingWhatComesAgain(Staging):
    """Restores rows since the last checkpoint from the snapshot, and gets them again."""

    def snapshot(self) -> OperatorState:
        kept = [Chunk(pa.RecordBatch.from_pylist(DATABASE.staged[name])) for name in DATABASE.staged]
        return OperatorState({"kept": kept[-1:]})

    def restore(self, parts: Sequence[OperatorState]) -> None:
        self.written = [row for part in parts for chunk in part.tables["kept"] for row in chunk.rows.to_pylist()]


class StagingSink(SinkDefinition):
    delivery = Delivery.TRANSACTIONAL
    writer: type[Sink] = Staging

    def create(self, schema: pa.Schema) -> Sink:
        return self.writer()


def test_a_sink_written_against_the_whole_contract_passes() -> None:
    check_sink(StagingSink(), visible)


@pytest.mark.parametrize(
    ("writer", "rule"),
    [
        (VisibleAtOnce, "rows are not visible before their commit': 0 rows are missing, 3 rows are too many"),
        (VisibleWhenPrepared, "rows are not visible before their commit': 0 rows are missing, 3 rows are too many"),
        (ForgettingAtRestart, "a replacement commits what the checkpoint names': 2 rows are missing"),
        (PreparingOnlyTheLast, "rows of an aborted checkpoint are committed with the next one': 2 rows are missing"),
        (NamingTheTaskThatCommits, "rows of removed tasks are committed"),
        (NotNamingTheTask, "tasks of a sink do not disturb each other"),
        (NamingWithText, "prepare gives bytes that name what was prepared, or None': it gave 'text'"),
        (SnapshotWithAnObject, "a snapshot is plain data that does not change later': it raised TypeError"),
        (KeepingWhatIsNotPrepared, "rows that are sent again after a restart are written once': 0 rows are missing, 2"),
        (KeepingWhatComesAgain, "rows that are sent again after a restart are written once|a replacement commits what"),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else "",
)
def test_a_sink_that_breaks_a_rule_is_reported_with_the_remedy(writer: type[Sink], rule: str) -> None:
    class Bad(StagingSink):
        pass

    Bad.writer = writer
    with pytest.raises(AssertionError, match=rf"^Bad breaks the rule '({rule}).*Remedy: "):
        check_sink(Bad(), visible)


class KeyedWriter(RowWriter):
    def write(self, rows: pa.RecordBatch) -> None:
        for row in rows.to_pylist():
            self.one(row.pop("_change", None), row)

    def one(self, change: str | None, row: dict[str, Any]) -> None:
        if change == "delete":
            DATABASE.table.pop(row["number"], None)
        else:
            DATABASE.table[row["number"]] = row


class Appending(KeyedWriter):
    def one(self, change: str | None, row: dict[str, Any]) -> None:
        DATABASE.rows.append(row)


class Buffering(KeyedWriter):
    """Nothing is written before the buffer is full."""

    def __init__(self) -> None:
        self.buffer: list[pa.RecordBatch] = []

    def write(self, rows: pa.RecordBatch) -> None:
        self.buffer.append(rows)

    def close(self) -> None:
        for rows in self.buffer:
            super().write(rows)


class Flushing(Buffering):
    """Writes its rows at a flush."""

    def flush(self) -> None:
        for rows in self.buffer:
            KeyedWriter().write(rows)
        self.buffer = []


class InsertingOnly(KeyedWriter):
    """The first row of a key stays."""

    def one(self, change: str | None, row: dict[str, Any]) -> None:
        DATABASE.table.setdefault(row["number"], row)


class NotDeleting(KeyedWriter):
    def one(self, change: str | None, row: dict[str, Any]) -> None:
        DATABASE.table[row["number"]] = row


class NumberingRows(KeyedWriter):
    """The key is a number that the next attempt continues from the number of rows."""

    def one(self, change: str | None, row: dict[str, Any]) -> None:
        DATABASE.table[len(DATABASE.table)] = row


class KeyedSink(IdempotentSink):
    upserts = deletes = True
    writer: type[RowWriter] = KeyedWriter

    def open(self, schema: pa.Schema) -> RowWriter:
        return self.writer()


class FlushingSink(KeyedSink):
    writer = Flushing


@pytest.mark.parametrize("sink", [KeyedSink(), FlushingSink()], ids=["at once", "at checkpoints"])
def test_an_idempotent_sink_of_ones_own_keeps_the_contract(sink: KeyedSink) -> None:
    check_sink(sink, visible, row=lambda number: Kept(number, "first"), later=later, deaths=DEATHS)


@pytest.mark.parametrize(
    ("writer", "rule"),
    [
        (Appending, "rows that are written again replace those before"),
        (NumberingRows, "rows that are written again replace those before"),
        (Buffering, "what was written is there when its checkpoint is complete': 3 rows are missing"),
        (InsertingOnly, "of the rows of a key the last one is visible"),
        (NotDeleting, "a row that is deleted is not visible"),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else "",
)
def test_a_writer_that_breaks_a_rule_is_reported_with_the_remedy(writer: type[RowWriter], rule: str) -> None:
    class Bad(KeyedSink):
        pass

    Bad.writer = writer
    with pytest.raises(AssertionError, match=rf"^Bad breaks the rule '({rule}).*Remedy: "):
        check_sink(Bad(), visible, later=later, deaths=DEATHS)


def test_a_table_whose_late_commits_restore_old_rows_is_reported() -> None:
    class Bad(Committed):
        upserts = True
        committer = LatestWins

    with pytest.raises(AssertionError, match="Bad breaks the rule 'a late commit brings no old row back"):
        check_sink(Bad(), visible, later=later, deaths=DEATHS)


def test_sinks_without_a_contract_are_refused() -> None:
    with pytest.raises(GraphError, match=r"BlackholeSink has delivery None: check_sink checks sinks that are"):
        check_sink(BlackholeSink(), visible)
    with pytest.raises(GraphError, match="Committed does not upsert: omit later=, or set upserts = True"):
        check_sink(Committed(), visible, later=later)


def test_an_exception_of_read_is_reported() -> None:
    def unreadable() -> list[Any]:
        return json.loads("no JSON")  # type: ignore[no-any-return]

    read: Callable[[], list[Any]] = unreadable
    with pytest.raises(AssertionError, match="read gives the rows that are visible': it raised JSONDecodeError"):
        check_sink(Committed(), read)
