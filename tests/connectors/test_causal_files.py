"""Causal files: rows are visible at once, survive a death at any byte, and cannot be changed by a replaced attempt."""

from __future__ import annotations

import os
import pickle
import shutil
import struct
import tempfile
from decimal import Decimal
from pathlib import Path
from typing import Any, cast

import msgspec
import pyarrow as pa
import pytest
import xxhash

from clonos_py.connectors import FileSink, read_results
from clonos_py.model.errors import CheckpointError, GraphError, SinkError
from clonos_py.model.ids import Attempt, LogId
from clonos_py.model.operators import CausalSink, OutputSegment, PublishedOutput
from clonos_py.model.record import Money, Record
from clonos_py.model.record_codec import encode
from clonos_py.model.segments import LogSegment
from tests.connectors.contexts import opened
from tests.disks import PowerSupply

SHAPE = "out=1"
FORMATS = ["jsonl", "csv"]


class Hot(Record):
    auction: int
    price: Money
    note: str | None = None


def piece(seq: int, *auctions: int) -> OutputSegment:
    rows = encode([Hot(a, Decimal(a), f'"a\n{a}' if a % 2 else None) for a in auctions], Hot.schema())
    return OutputSegment(seq, 1_000 + seq, rows)


def log(*starts: int, epoch: int = 0) -> list[LogSegment]:
    return [LogSegment(LogId(0), epoch, 0, start, 1, b"%d" % start) for start in starts]


def sink(folder: Path, file_format: str = "jsonl", **place: Any) -> CausalSink:
    definition = pickle.loads(pickle.dumps(FileSink(str(folder), file_format, delivery="causal")))
    return cast("CausalSink", opened(definition.create(Hot.schema()), **place))


def acquired(folder: Path, counter: int, checkpoint: int = 0, **more: Any) -> tuple[CausalSink, PublishedOutput]:
    made = sink(folder, more.pop("file_format", "jsonl"), **more)
    return made, made.acquire(Attempt(1, counter), checkpoint, SHAPE, "line")


def visible(folder: Path) -> list[int]:
    return [int(row["auction"]) for row in read_results(str(folder))]


def journals(folder: Path) -> list[str]:
    return sorted(str(path.name) for path in (folder / ".causal" / "out-0").rglob("*-*"))


@pytest.mark.parametrize("file_format", FORMATS)
def test_rows_are_visible_as_soon_as_they_are_written(tmp_path: Path, file_format: str) -> None:
    writer, shown = acquired(tmp_path, 1, file_format=file_format)
    assert shown == PublishedOutput([], {})
    writer.append(0, log(0), [piece(0, 1, 2), piece(1, 3)])
    assert visible(tmp_path) == [1, 2, 3]
    writer.append(0, log(1), [piece(2, 4)])
    writer.append(1, log(2, epoch=1), [piece(3, 5)])
    assert visible(tmp_path) == [1, 2, 3, 4, 5]
    assert {name.name for name in tmp_path.iterdir()} == {".causal", f"out-0-0.{file_format}", f"out-0-1.{file_format}"}


def test_a_power_cut_loses_no_name_of_what_is_visible(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    power = PowerSupply(monkeypatch)
    folder = tmp_path / "new" / "out"
    for attempt in (1, 2):
        writer, _ = acquired(folder, attempt)
        assert power.unflushed_names == set()
        writer.append(attempt - 1, log(attempt - 1, epoch=attempt - 1), [piece(attempt - 1, attempt)])
        assert power.unflushed_names == set()


@pytest.mark.parametrize("file_format", FORMATS)
def test_the_next_attempt_reads_the_visible_rows_and_continues_after_them(tmp_path: Path, file_format: str) -> None:
    first, _ = acquired(tmp_path, 1, file_format=file_format)
    first.append(0, log(0, 1), [piece(0, 1), piece(1, 2)])
    second, shown = acquired(tmp_path, 2, file_format=file_format)
    assert shown == PublishedOutput(log(0, 1), {0: 1_000, 1: 1_001})
    second.append(0, log(2), [piece(2, 3)])
    assert acquired(tmp_path, 3, file_format=file_format)[1] == PublishedOutput(
        log(0, 1, 2), {0: 1_000, 1: 1_001, 2: 1_002}
    )
    assert visible(tmp_path) == [1, 2, 3]


@pytest.mark.parametrize("file_format", FORMATS)
def test_a_death_at_any_byte_leaves_whole_pieces_with_their_determinants(tmp_path: Path, file_format: str) -> None:
    whole = tmp_path / "whole"
    first, _ = acquired(whole, 1, file_format=file_format)
    sizes = [(0, 0)]
    rows, journal = whole / f"out-0-0.{file_format}", whole / ".causal" / "out-0" / "1.1" / "1.1-0"
    for seq in range(3):
        first.append(0, log(seq), [piece(seq, 2 * seq + 1, 2 * seq + 2)])
        sizes.append((journal.stat().st_size, rows.stat().st_size))
    for seq in range(3):
        torn_journals = [(size, sizes[seq][1]) for size in range(sizes[seq][0], sizes[seq + 1][0], 13)]
        torn_rows = [(sizes[seq + 1][0], size) for size in range(sizes[seq][1], sizes[seq + 1][1], 5)]
        for journal_bytes, rows_bytes in torn_journals + torn_rows:
            torn = tmp_path / "torn"
            shutil.copytree(whole, torn)
            os.truncate(torn / journal.relative_to(whole), journal_bytes)
            os.truncate(torn / rows.relative_to(whole), rows_bytes)
            second, shown = acquired(torn, 2, file_format=file_format)
            assert set(shown.checksums) == set(range(seq))
            assert set(log(*range(seq))) <= set(shown.log)
            assert visible(torn) == list(range(1, 2 * seq + 1))
            second.append(0, log(seq), [piece(seq, 77)])
            assert visible(torn) == [*range(1, 2 * seq + 1), 77]
            shutil.rmtree(torn)


def test_a_complete_checkpoint_deletes_journals_and_keeps_rows(tmp_path: Path) -> None:
    writer, _ = acquired(tmp_path, 1)
    writer.append(0, log(0), [piece(0, 1)])
    writer.append(1, log(1, epoch=1), [piece(1, 2)])
    assert journals(tmp_path) == ["1.1-0", "1.1-1"]
    committable = writer.prepare(1)
    assert committable is not None
    assert journals(tmp_path) == ["1.1-0", "1.1-1"]
    writer.commit(committable)
    assert journals(tmp_path) == ["1.1-1"]
    assert visible(tmp_path) == [1, 2]
    assert acquired(tmp_path, 2, checkpoint=1)[1] == PublishedOutput(log(1, epoch=1), {1: 1_001})


def test_logs_from_before_the_restart_point_are_not_reported(tmp_path: Path) -> None:
    """The process died after the manifest was written and before it was notified."""
    writer, _ = acquired(tmp_path, 1)
    writer.append(0, log(0), [piece(0, 1)])
    second, shown = acquired(tmp_path, 2, checkpoint=1)
    assert shown == PublishedOutput([], {})
    second.append(1, log(1, epoch=1), [piece(1, 2)])
    assert visible(tmp_path) == [1, 2]


def test_rows_of_a_replaced_attempt_never_become_visible(tmp_path: Path) -> None:
    zombie, _ = acquired(tmp_path, 1)
    zombie.append(0, log(0), [piece(0, 1)])
    second, _ = acquired(tmp_path, 2)
    zombie.append(0, log(1), [piece(1, 66)])
    assert visible(tmp_path) == [1]
    second.append(0, log(1), [piece(1, 2)])
    zombie.append(0, log(2), [piece(2, 67)])
    with pytest.raises(SinkError, match=r"attempt 1\.1 of out\[0\] has been replaced: it can no longer write"):
        zombie.append(1, log(3, epoch=1), [piece(3, 68)])
    zombie.truncate_before(5)
    assert visible(tmp_path) == [1, 2]
    assert acquired(tmp_path, 3)[1] == PublishedOutput(log(0, 1), {0: 1_000, 1: 1_001})


def test_rows_that_became_visible_just_before_an_acquisition_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The replaced attempt writes at the worst moment: its file is copied, and the copy has not replaced it yet."""
    zombie, _ = acquired(tmp_path, 1)
    zombie.append(0, log(0), [piece(0, 1)])
    rename = os.rename

    def late(source: str, target: str) -> None:
        if target.endswith("jsonl"):
            zombie.append(0, log(1), [piece(1, 2)])
            assert visible(tmp_path) == [1, 2]
        rename(source, target)

    monkeypatch.setattr(os, "rename", late)
    assert acquired(tmp_path, 2)[1] == PublishedOutput(log(0, 1), {0: 1_000, 1: 1_001})
    assert visible(tmp_path) == [1, 2]


def test_an_attempt_that_acquires_too_late_is_refused(tmp_path: Path) -> None:
    acquired(tmp_path, 1)[0].append(0, log(0), [piece(0, 1)])
    newest, _ = acquired(tmp_path, 3)
    with pytest.raises(SinkError, match=r"attempt 1\.2 of out\[0\] has been replaced"):
        acquired(tmp_path, 2)
    newest.append(0, log(1), [piece(1, 2)])
    assert visible(tmp_path) == [1, 2]
    assert acquired(tmp_path, 4)[1].checksums == {0: 1_000, 1: 1_001}


def test_an_attempt_that_acquires_too_late_leaves_the_journals_to_the_newer_one(tmp_path: Path) -> None:
    acquired(tmp_path, 1)[0].append(0, log(0), [piece(0, 1)])
    (tmp_path / ".causal" / "out-0" / "1.10").mkdir()
    with pytest.raises(SinkError, match=r"1\.10: attempt 1\.2 of out\[0\] has been replaced"):
        acquired(tmp_path, 2)
    assert [path.name for path in (tmp_path / ".causal" / "out-0" / "1.1").iterdir()] == ["1.1-0"]


@pytest.mark.parametrize("step", ["_replace_by_copy", "_cut", "_start_journal"])
def test_a_death_during_an_acquisition_is_repaired_by_the_next_acquisition(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    first, _ = acquired(tmp_path, 1)
    first.append(0, log(0), [piece(0, 1)])
    first.append(1, log(1, epoch=1), [piece(1, 2)])

    def die(*_: object) -> None:
        raise KeyboardInterrupt

    second = sink(tmp_path)
    with monkeypatch.context() as dying:
        dying.setattr(second, step, die)
        with pytest.raises(KeyboardInterrupt):
            second.acquire(Attempt(1, 2), 0, SHAPE, "line")
    assert acquired(tmp_path, 3)[1] == PublishedOutput([*log(0), *log(1, epoch=1)], {0: 1_000, 1: 1_001})
    assert visible(tmp_path) == [1, 2]


def test_a_replaced_attempt_creates_no_file_during_the_acquisition(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has written the file of a new epoch, and is about to rename it."""
    zombie, _ = acquired(tmp_path, 1)
    link = os.link

    def late(source: str, target: str) -> None:
        acquired(tmp_path, 2)
        link(source, target)

    monkeypatch.setattr(os, "link", late)
    with pytest.raises(SinkError, match="has been replaced"):
        zombie.append(0, log(0), [piece(0, 66)])
    assert visible(tmp_path) == []


def test_results_of_two_runs_are_never_mixed(tmp_path: Path) -> None:
    writer, _ = acquired(tmp_path, 1)
    writer.append(0, log(0), [piece(0, 1)])
    with pytest.raises(SinkError, match=r"1\.1 exists, written by another run: move the results away or choose"):
        acquired(tmp_path, 1)
    shutil.rmtree(tmp_path / ".causal")
    with pytest.raises(SinkError, match=r"out-0-0\.jsonl exists, written by another run: move the results away"):
        acquired(tmp_path, 1)
    assert visible(tmp_path) == [1]


def test_tasks_of_another_parallelism_cannot_repeat_visible_rows(tmp_path: Path) -> None:
    writer, _ = acquired(tmp_path, 1)
    writer.append(1, log(0, epoch=1), [piece(0, 1)])
    with pytest.raises(
        SinkError, match=r"has rows since checkpoint 1, which only tasks of the operators and the parallel"
    ):
        sink(tmp_path).acquire(Attempt(1, 2), 1, "out=2", "line")
    sink(tmp_path).acquire(Attempt(1, 3), 2, "out=2", "line")


def test_fewer_tasks_notice_the_rows_of_the_others(tmp_path: Path) -> None:
    writer, _ = acquired(tmp_path, 1, index=1, parallelism=2)
    writer.append(1, log(0, epoch=1), [piece(0, 1)])
    with pytest.raises(SinkError, match=r"out-1-1\.jsonl has rows since checkpoint 1"):
        acquired(tmp_path, 1, checkpoint=1)


def test_rows_that_differ_from_their_journal_are_written_again(tmp_path: Path) -> None:
    writer, _ = acquired(tmp_path, 1)
    writer.append(0, log(0), [piece(0, 1)])
    rows = tmp_path / "out-0-0.jsonl"
    rows.write_bytes(rows.read_bytes().replace(b"1", b"2", 1))
    assert acquired(tmp_path, 2)[1].checksums == {}, "rows that differ from the journal are written again"


def journal_of(folder: Path) -> Path:
    (found,) = (folder / ".causal" / "out-0").glob("*/*-*")
    return found


def two_pieces(folder: Path) -> tuple[Path, int]:
    """A journal, and the offset of its second record."""
    writer, _ = acquired(folder, 1)
    writer.append(0, log(0), [piece(0, 1)])
    begins = journal_of(folder).stat().st_size
    writer.append(0, log(1), [piece(1, 2)])
    return journal_of(folder), begins


def test_rows_without_an_entry_in_a_damaged_journal_are_an_error(tmp_path: Path) -> None:
    journal, second = two_pieces(tmp_path)
    good = journal.read_bytes()
    for place in [*range(0, len(good), 7), second, second + 3, second + 11, len(good) - 1]:
        journal.write_bytes(good[:place] + bytes([good[place] ^ 4]) + good[place + 1 :])
        refused_with(tmp_path, r"out-0-0\.jsonl (has rows that are not in the journals|exists, written by another run)")
        journal.write_bytes(good)
    for size in (0, 5, second, len(good) - 1):
        journal.write_bytes(good[:size])
        refused_with(tmp_path, r"out-0-0\.jsonl (has rows that are not in the journals|exists, written by another run)")
    journal.write_bytes(good)
    assert acquired(tmp_path, 2)[1].checksums == {0: 1_000, 1: 1_001}


def test_a_journal_of_an_earlier_version_is_refused(tmp_path: Path) -> None:
    """It named logs by the order of tasks in the plan."""
    journal, second = two_pieces(tmp_path)
    version, *fields = msgspec.msgpack.decode(journal.read_bytes()[struct.calcsize(">IQ") : second])
    assert version == 2
    former = msgspec.msgpack.encode(fields)
    journal.write_bytes(struct.pack(">IQ", len(former), xxhash.xxh3_64_intdigest(former)) + former)
    refused_with(tmp_path, f"{journal.name}: cannot be read .*; run the version that wrote it")


def refused_with(folder: Path, message: str) -> None:
    """Runs on a copy, so that the output can be tried again."""
    with tempfile.TemporaryDirectory() as copy:
        shutil.copytree(folder, Path(copy) / "out")
        with pytest.raises(SinkError, match=message):
            acquired(Path(copy) / "out", 2)
        assert visible(Path(copy) / "out") == [1, 2]


@pytest.mark.timeout(20, method="thread")
@pytest.mark.parametrize("kind", ["journal", "rows"])
def test_a_path_that_is_no_regular_file_is_refused(tmp_path: Path, kind: str) -> None:
    folder, copy = tmp_path / "out", tmp_path / "copy"
    journal, _ = two_pieces(folder)
    path = journal if kind == "journal" else folder / "out-0-0.jsonl"
    path.rename(tmp_path / "aside")
    for impostor in (os.mkfifo, os.mkdir, lambda path: os.symlink(tmp_path / "aside", path)):
        impostor(path)
        shutil.copytree(folder, copy, symlinks=True, copy_function=_copied)
        with pytest.raises(SinkError, match=r"not a regular file: restore it|Too many levels of symbolic links"):
            acquired(copy, 2)
        shutil.rmtree(copy)
        path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()


def _copied(source: str, target: str) -> None:
    """A FIFO is not opened."""
    if Path(source).is_fifo():
        os.mkfifo(target)
    else:
        shutil.copy2(source, target, follow_symlinks=False)


def test_journals_are_readable_by_their_owner_only_and_rows_by_all(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        two_pieces(tmp_path)
    finally:
        os.umask(before)
    assert (tmp_path / ".causal").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "out-0-0.jsonl").stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize("committable", [b"", b"../1", b"-1", b"x"])
def test_a_committable_that_is_no_checkpoint_is_refused(tmp_path: Path, committable: bytes) -> None:
    with pytest.raises(CheckpointError, match="as output of operator 'out': its manifest is damaged"):
        acquired(tmp_path, 1)[0].commit(committable)


@pytest.mark.parametrize("file_format", FORMATS)
def test_results_can_be_read_while_a_row_is_being_written(tmp_path: Path, file_format: str) -> None:
    writer, _ = acquired(tmp_path, 1, file_format=file_format)
    writer.append(0, log(0), [piece(0, 1, 2)])
    whole = (tmp_path / f"out-0-0.{file_format}").read_bytes()
    writer.append(0, log(1), [piece(1, 3)])
    end = (tmp_path / f"out-0-0.{file_format}").stat().st_size
    for size in range(len(whole), end):
        os.truncate(tmp_path / f"out-0-0.{file_format}", size)
        assert visible(tmp_path) == [1, 2]


def test_a_format_whose_files_cannot_grow_is_refused() -> None:
    with pytest.raises(GraphError, match="whose files can be read while they grow, jsonl or csv; parquet needs"):
        FileSink("out", "parquet", delivery="causal")
    with pytest.raises(GraphError, match="unknown delivery 'twice'; choose one of transactional, causal"):
        FileSink("out", delivery=cast("Any", "twice"))


def test_the_rows_of_a_piece_have_the_format_of_the_schema(tmp_path: Path) -> None:
    writer, _ = acquired(tmp_path, 1, file_format="csv")
    writer.append(0, log(0), [piece(0, 1)])
    assert (tmp_path / "out-0-0.csv").read_text() == '"auction","price","note"\n1,1.00,"""a\n1"\n'
    assert isinstance(piece(0, 1).rows, pa.RecordBatch)
