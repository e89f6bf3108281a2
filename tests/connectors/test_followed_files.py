"""Files that grow and files that are added: each line is read once under any failures, and bad input is named."""

from __future__ import annotations

import collections
import json
import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sized
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clonos_py import Job, Record, col
from clonos_py.connectors import FileSink, FileSource, file_watch, read_results
from clonos_py.connectors.file_watch import INTERVAL_US, FileWatch
from clonos_py.connectors.followed_files import FollowedFiles, number_of
from clonos_py.connectors.line_reader import LinePartition
from clonos_py.model.errors import GraphError, SourceError
from clonos_py.model.operators import Discovered, LastRead, Read, Source, Wait
from tests.visible_rows import visible_rows
from tests.waiting import wait_while_running


class Line(Record):
    id: int


def followed(path: Path, index: int = 0, parallelism: int = 1, format: str = "jsonl") -> Source:
    definition = FileSource(str(path), Line, format, follow=True)
    definition.resolve()
    source = definition.create((None,))
    source.open(index, parallelism)
    source.seek({})
    return source


class Reading:
    """Polls a source as a task does; each call of ``new`` comes after the next look at the files."""

    def __init__(
        self, source: Source, positions: Mapping[int, int] | None = None, last: Mapping[int, LastRead] | None = None
    ) -> None:
        """``last``: what a checkpoint has of the last reads."""
        self.source, self.now_us = source, 0
        self.positions = dict(positions or {})
        self.last = dict(last or {})
        self.reads: list[Read] = []
        source.recall(self.last_read)

    def last_read(self, partition: int) -> LastRead | None:
        return self.last.get(partition)

    def restarted(self, source: Source) -> Reading:
        """Goes on with another source, as from a checkpoint."""
        source.seek(self.positions)
        return Reading(source, self.positions, self.last)

    def new(self) -> list[int]:
        """The numbers that have come."""
        self.now_us += INTERVAL_US
        found: list[Read] = []
        while not isinstance(got := self.source.poll(self.now_us), Wait):
            if isinstance(got, Discovered):
                self.source.discovered(got.starts)
                self.positions |= got.starts
            elif isinstance(got, Read):
                assert self.positions[got.partition] == got.start
                self.positions[got.partition] = got.stop
                self.last[got.partition] = LastRead(got.start, got.stop, got.checksum, got.identity)
                found.append(got)
        assert self.now_us < got.until <= self.now_us + INTERVAL_US
        self.reads += found
        return numbers(found)


def numbers(reads: list[Read]) -> list[int]:
    return [row["id"] for read in reads for rows in read.rows if rows is not None for row in rows.to_pylist()]


def lines(*ids: int) -> str:
    return "".join(f'{{"id": {number}}}\n' for number in ids)


def append(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)


def test_a_line_is_read_after_its_end_was_written(tmp_path: Path) -> None:
    file = tmp_path / "log.jsonl"
    reading = Reading(followed(file))
    assert reading.new() == [], "the file may be created later"
    append(file, lines(1, 2) + '{"id": ')
    assert reading.new() == [1, 2]
    assert reading.new() == []
    append(file, "3")
    assert reading.new() == []
    append(file, "}\n" + lines(4))
    assert reading.new() == [3, 4]
    assert not any(read.last for read in reading.reads)


def test_a_csv_file_may_begin_with_half_a_header(tmp_path: Path) -> None:
    file = tmp_path / "log.csv"
    reading = Reading(followed(file, format="csv"))
    append(file, "i")
    assert reading.new() == []
    append(file, "d\n1")
    assert reading.new() == []
    append(file, "0\n20\n")
    assert reading.new() == [10, 20]


def test_added_files_are_read_unless_they_are_hidden(tmp_path: Path) -> None:
    reading = Reading(followed(tmp_path))
    for number, name in enumerate(("b", "_half", ".hidden", "a")):
        append(tmp_path / name, lines(number))
    assert sorted(reading.new()) == [0, 3]
    (tmp_path / "_half").rename(tmp_path / "whole")
    assert reading.new() == [1]
    append(tmp_path / "a", lines(4))
    append(tmp_path / "b", lines(5))
    assert sorted(reading.new()) == [4, 5]


def test_tasks_divide_files_without_communicating(tmp_path: Path) -> None:
    for number in range(20):
        append(tmp_path / f"{number}.jsonl", lines(number))
    shares = [Reading(followed(tmp_path, index, 3)).new() for index in range(3)]
    assert sorted(number for share in shares for number in share) == list(range(20))
    assert all(shares)


def test_rows_are_read_again_after_files_have_grown_and_been_added(tmp_path: Path) -> None:
    reading = Reading(followed(tmp_path))
    append(tmp_path / "a", lines(1, 2))
    reading.new()
    append(tmp_path / "a", lines(3))
    append(tmp_path / "b", lines(4))
    reading.new()
    append(tmp_path / "a", lines(5))
    append(tmp_path / "c", lines(6))

    replacement = followed(tmp_path)
    replacement.seek({number_of(str(tmp_path / "a")): 0})
    for read in reading.reads:
        again = replacement.reread(read.partition, read.start, read.stop)
        assert (again.rows, again.checksum) == (read.rows, read.checksum)
    going_on = Reading(replacement, reading.positions)
    assert sorted(going_on.new()) == [5, 6]


def test_a_removed_file_has_ended(tmp_path: Path) -> None:
    reading = Reading(followed(tmp_path))
    append(tmp_path / "a", lines(1))
    append(tmp_path / "b", lines(2))
    reading.new()
    (tmp_path / "a").unlink()
    assert reading.new() == []
    last = reading.reads[-1]
    assert (last.partition, last.last, last.row_count) == (number_of(str(tmp_path / "a")), True, 0)
    assert reading.source.reread(last.partition, last.start, last.stop) == last
    append(tmp_path / "b", lines(3))
    assert reading.new() == [3]
    with pytest.raises(SourceError, match="files must stay where they are until a checkpoint has covered their rows"):
        followed(tmp_path).reread(last.partition, 0, 1)


def test_nothing_is_kept_of_a_removed_file_but_its_end(tmp_path: Path) -> None:
    """A folder may have new names for ever."""
    source = followed(tmp_path)
    reading = Reading(source)
    for number in range(3):
        (tmp_path / f"{number}.jsonl").write_text(lines(number))
        reading.new()
        (tmp_path / f"{number}.jsonl").unlink()
        reading.new()
    assert numbers(reading.reads) == [0, 1, 2]
    assert [read.last for read in reading.reads] == [False, True] * 3
    assert isinstance(source, FollowedFiles)
    watch = source._watch
    assert isinstance(watch, FileWatch)
    kept: list[Sized] = [
        source._numbers,
        source._paths,
        source._found,
        source._open,
        source._in_turn,
        watch.files,
        watch._names,
        watch._recent,
    ]
    assert [len(one) for one in kept] == [0] * len(kept)


@pytest.mark.parametrize("between_runs", [False, True])
@pytest.mark.parametrize("pattern", ["logs", "logs/*.jsonl", "*ogs/a.jsonl"])
def test_files_of_a_folder_that_is_gone_have_not_ended(pattern: str, between_runs: bool, tmp_path: Path) -> None:
    """It comes back, such as a mounted one, and its files are read on."""
    folder = tmp_path / "mount" / "logs"
    folder.mkdir(parents=True)
    append(folder / "a.jsonl", lines(1))
    reading = Reading(followed(tmp_path / "mount" / pattern))
    assert reading.new() == [1]
    gone = folder if pattern == "logs" else folder.parent
    gone.rename(tmp_path / "away")
    if between_runs:
        source = FileSource(str(tmp_path / "mount" / pattern), Line, "jsonl", follow=True).create((None,))
        source.open(0, 1)
        reading = reading.restarted(source)
    with pytest.raises(SourceError, match="the folder of the followed files is gone, or another file system"):
        reading.new()
    (tmp_path / "away").rename(gone)
    append(folder / "a.jsonl", lines(2))
    assert reading.restarted(followed(tmp_path / "mount" / pattern)).new() == [2]


@pytest.mark.parametrize("ended", [False, True])
def test_a_single_file_that_is_missing_in_the_next_run_is_named_unless_it_had_ended(
    ended: bool, tmp_path: Path
) -> None:
    file = tmp_path / "app.log"
    append(file, lines(1))
    reading = Reading(followed(file))
    assert reading.new() == [1]
    content = file.read_text()
    file.unlink()
    if ended:
        assert reading.new() == []
        assert reading.restarted(followed(file)).new() == []
        return
    with pytest.raises(
        SourceError, match=r"app\.log: the followed file is missing.*: put it back, and run the job again"
    ):
        reading.restarted(followed(file)).new()
    append(file, content)
    append(file, lines(2))
    assert reading.restarted(followed(file)).new() == [2]


@pytest.mark.parametrize("parallelism", [1, 3])
@pytest.mark.parametrize("at_first", [False, True])
@pytest.mark.parametrize("link", [os.link, os.symlink])
def test_a_file_with_two_names_is_refused(
    link: Callable[[Path, Path], None], at_first: bool, parallelism: int, tmp_path: Path
) -> None:
    """Its rows would be read twice. A link from outside of the folder, or one that is hidden, does no harm."""
    (folder := tmp_path / "logs").mkdir()
    append(folder / "a", lines(1))
    append(folder / "b", lines(2))
    for other in (tmp_path / "a", folder / ".a"):
        link(folder / "a", other)
    if at_first:
        link(folder / "a", folder / "c")
    tasks = [Reading(followed(folder, index, parallelism)) for index in range(parallelism)]
    if not at_first:
        assert sorted(number for reading in tasks for number in reading.new()) == [1, 2]
        link(folder / "a", folder / "c")
    for reading in tasks:
        with pytest.raises(SourceError, match=r"logs/a and .*logs/c are two names of one file.*: keep one of them"):
            reading.new()
    (folder / "c").unlink()
    append(folder / "b", lines(3))
    again = [reading.restarted(followed(folder, index, parallelism)) for index, reading in enumerate(tasks)]
    assert sorted(number for reading in again for number in reading.new()) == ([1, 2, 3] if at_first else [3])


def test_a_file_system_that_takes_the_place_of_the_folder_ends_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as the empty folder below a mount."""
    append(tmp_path / "a.jsonl", lines(1))
    reading = Reading(followed(tmp_path))
    assert reading.new() == [1]
    status = os.stat

    def moved(path: Any, **more: Any) -> os.stat_result:
        found = status(path, **more)
        if str(path) != str(tmp_path):
            return found
        return os.stat_result((*found[:2], found.st_dev + 1, *found[3:]), {"st_mtime_ns": found.st_mtime_ns + 1})

    (tmp_path / "a.jsonl").unlink()
    monkeypatch.setattr(os, "stat", moved)
    with pytest.raises(SourceError, match="or another file system is mounted there: put it back"):
        reading.new()


def test_a_file_that_is_created_again_after_its_removal_is_refused_by_every_attempt(tmp_path: Path) -> None:
    file = tmp_path / "current"
    append(file, lines(1, 2))
    reading = Reading(followed(tmp_path))
    reading.new()
    file.unlink()
    assert reading.new() == []
    restored = followed(tmp_path)
    restored.seek(reading.positions)
    assert Reading(restored, reading.positions).new() == [], "it reports again that the file has ended"
    replayed = followed(tmp_path)
    replayed.seek({})
    append(file, lines(3, 4, 5))
    replayed.discovered(dict.fromkeys(reading.positions, 0))
    end = reading.reads[-1]
    assert replayed.reread(end.partition, end.start, end.stop) == end
    remedy = r"current was removed and exists again: .* write new rows to a file with another name"
    for source in (reading.source, restored, replayed):
        with pytest.raises(SourceError, match=remedy):
            source.poll(reading.now_us + INTERVAL_US)
    file.rename(tmp_path / "another")
    going_on = followed(tmp_path)
    going_on.seek(reading.positions)
    assert Reading(going_on, reading.positions).new() == [3, 4, 5]


def test_a_file_that_shrinks_and_a_malformed_line_are_named(tmp_path: Path) -> None:
    file = tmp_path / "log.jsonl"
    append(file, lines(1, 2))
    reading = Reading(followed(file))
    reading.new()
    file.write_text(lines(7))
    with pytest.raises(SourceError, match=r"log\.jsonl has shrunk: .* a followed file may only grow"):
        reading.new()
    append(file, lines(1, 2, 3) + "no json\n")
    with pytest.raises(SourceError, match=r"log\.jsonl, line 5 \(byte 40\): malformed record"):
        Reading(followed(file)).new()


@pytest.mark.parametrize("length", [60_000, 70_000, 200_000])
def test_a_first_line_may_be_long(tmp_path: Path, length: int) -> None:
    file = tmp_path / "log.jsonl"
    file.write_text(json.dumps({"id": 1, "text": "x" * length}) + "\n" + json.dumps({"id": 2, "text": ""}) + "\n")
    assert Reading(followed(file)).new() == [1, 2]


def test_a_source_that_cannot_be_followed_is_refused(tmp_path: Path) -> None:
    with pytest.raises(GraphError, match="with follow=True choose text, jsonl or csv"):
        FileSource(str(tmp_path), Line, "parquet", follow=True)
    with pytest.raises(SourceError, match="nowhere: no such folder"):
        FileSource(str(tmp_path / "nowhere" / "*.jsonl"), Line, "jsonl", follow=True).resolve()


@contextmanager
def writing(folder: Path, count: int) -> Iterator[None]:
    """A line of each of two files every few milliseconds, a third file in the middle."""

    def write() -> None:
        for number in range(count):
            append(folder / f"{number % 2}.jsonl", lines(number))
            if number == count // 2:
                (folder / "_new").write_text(lines(*range(count, count + 50)))
                os.rename(folder / "_new", folder / "new.jsonl")
            time.sleep(0.002)

    thread = threading.Thread(target=write)
    thread.start()
    yield
    thread.join()


def test_a_job_follows_files_although_its_tasks_are_killed(tmp_path: Path) -> None:
    count, out = 1_000, tmp_path / "out"
    (tmp_path / "in").mkdir()
    job = Job("followed", checkpoint_interval="200ms")
    rows = job.source(FileSource(str(tmp_path / "in"), Line, "jsonl", follow=True)).named("rows")
    rows.rebalance().filter(col("id") >= 0).sink(FileSink(str(out), delivery="causal")).named("out")
    kills = ["rows[0]@700ms", "rows[1]@1s", "rows[0]@1300ms"]
    with writing(tmp_path / "in", count):
        run = job.start(runtime="local", parallelism=2, kills=kills, checkpoints=str(tmp_path / "checkpoints"))
        wait_while_running(run, lambda: len(visible_rows(out)) >= count + 50)
    run.stop()
    append(tmp_path / "in" / "0.jsonl", lines(count + 50))
    again = job.start(runtime="local", parallelism=2, checkpoints=str(tmp_path / "checkpoints"))
    wait_while_running(again, lambda: len(visible_rows(out)) >= count + 51)
    again.stop()
    assert sorted(row["id"] for row in read_results(str(out))) == list(range(count + 51))
    assert json.dumps(again.counters)


def rewritten(file: Path) -> None:
    file.write_text(lines(7, 8, 9))


def renamed_over(file: Path) -> None:
    (file.parent / ".new").write_text(lines(7, 8, 9))
    os.replace(file.parent / ".new", file)


def rewritten_with_the_same_size(file: Path) -> None:
    file.write_text(lines(7, 8))
    os.utime(file, ns=(1, 1))


@pytest.mark.parametrize("change", [rewritten, renamed_over, rewritten_with_the_same_size])
@pytest.mark.parametrize("restored", [False, True])
def test_a_file_that_was_replaced_is_named(change: Callable[[Path], None], restored: bool, tmp_path: Path) -> None:
    """However long the new one is."""
    file = tmp_path / "log.jsonl"
    append(file, lines(1, 2))
    reading = Reading(followed(file))
    assert reading.new() == [1, 2]
    change(file)
    if restored:
        reading = reading.restarted(followed(file))
    with pytest.raises(SourceError, match=r"log\.jsonl was replaced or written again: .* may only grow"):
        reading.new()


def test_a_file_with_the_same_beginning_may_take_its_place(tmp_path: Path) -> None:
    file = tmp_path / "log.jsonl"
    append(file, lines(1, 2))
    reading = Reading(followed(file))
    assert reading.new() == [1, 2]
    append(tmp_path / ".copy", lines(1, 2, 3))
    os.replace(tmp_path / ".copy", file)
    assert reading.new() == [3]


@pytest.mark.parametrize("between_runs", [False, True])
@pytest.mark.parametrize("grown", [False, True])
def test_a_file_that_was_renamed_is_not_read_twice(grown: bool, between_runs: bool, tmp_path: Path) -> None:
    append(tmp_path / "app.log", lines(1, 2))
    reading = Reading(followed(tmp_path))
    reading.new()
    (tmp_path / "app.log").rename(tmp_path / "app.log.1")
    if grown:
        append(tmp_path / "app.log.1", lines(3))
    if between_runs:
        reading = reading.restarted(followed(tmp_path))
    old = "was read under another name" if between_runs else r"app\.log was renamed to .*app\.log\.1"
    with pytest.raises(SourceError, match=rf"{old}.* its rows would be read twice.*move files that have been read"):
        reading.new()


@pytest.mark.parametrize("tasks", [(1, 2), (2, 3), (3, 1)])
def test_a_renamed_file_may_be_of_another_task_in_the_next_run(tasks: tuple[int, int], tmp_path: Path) -> None:
    append(tmp_path / "a", lines(1, 2))
    before = [Reading(followed(tmp_path, index, tasks[0])) for index in range(tasks[0])]
    assert [number for reading in before for number in reading.new()] == [1, 2]
    (tmp_path / "a").rename(tmp_path / "another")
    positions = {number: at for reading in before for number, at in reading.positions.items()}
    last = {number: read for reading in before for number, read in reading.last.items()}
    refused = list[str]()
    for index in range(tasks[1]):
        source = followed(tmp_path, index, tasks[1])
        own = {number: at for number, at in positions.items() if number % tasks[1] == index}
        source.seek(own)
        try:
            Reading(source, own, last).new()
        except SourceError as error:
            refused.append(str(error))
    assert ["was read under another name before" in error for error in refused] == [True]


def test_a_file_may_be_moved_away_and_another_one_added_between_two_runs(tmp_path: Path) -> None:
    append(tmp_path / "a", lines(1, 2))
    reading = Reading(followed(tmp_path))
    reading.new()
    (tmp_path / "a").rename(tmp_path / ".a")
    append(tmp_path / "b", lines(1, 2))
    assert reading.restarted(followed(tmp_path)).new() == [1, 2]


def test_a_new_file_may_have_the_inode_of_a_removed_one(tmp_path: Path) -> None:
    append(tmp_path / "a", lines(1, 2))
    source = followed(tmp_path)
    reading = Reading(source)
    reading.new()
    inode = os.stat(tmp_path / "a")
    (tmp_path / "a").unlink()
    append(tmp_path / "b", lines(3, 4, 5))
    same = os.stat(tmp_path / "b")
    with pytest.MonkeyPatch.context() as patch:
        look = os.stat
        patch.setattr(
            os, "stat", lambda path, **more: inode_of(inode, same) if str(path).endswith("b") else look(path, **more)
        )
        assert reading.new() == [3, 4, 5]


def inode_of(inode: os.stat_result, other: os.stat_result) -> os.stat_result:
    """The status ``other`` with the inode of the first."""
    return os.stat_result((other.st_mode, inode.st_ino, *other[2:]), {"st_mtime_ns": other.st_mtime_ns})


@pytest.fixture
def many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Reading:
    """Thirty files that have been read and are quiet since; ten are looked at in each interval."""
    monkeypatch.setattr(file_watch, "_FILES_PER_INTERVAL", 10)
    for number in range(30):
        append(tmp_path / f"{number:02}.jsonl", lines(number) + "half")
    reading = Reading(followed(tmp_path))
    assert sorted(reading.new()) == list(range(30))
    reading.now_us += 60_000_000
    assert reading.new() == []
    reading.now_us += 60_000_000
    assert reading.new() == []
    return reading


def test_files_without_changes_are_neither_opened_nor_listed(many: Reading, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LinePartition, "_pread", None)
    monkeypatch.setattr(LinePartition, "next", None)
    monkeypatch.setattr(os, "scandir", None)
    looked = 0
    look = os.stat

    def counted(path: str, **more: Any) -> os.stat_result:
        nonlocal looked
        looked += 1
        return look(path, **more)

    monkeypatch.setattr(os, "stat", counted)
    for _ in range(2):
        assert many.new() == []
    assert looked <= 2 * (10 + 4), "and only some are looked at"


def test_a_line_in_one_of_many_quiet_files_is_read_when_its_turn_has_come(many: Reading, tmp_path: Path) -> None:
    append(tmp_path / "07.jsonl", "\n")
    with pytest.raises(SourceError, match=r"07\.jsonl, line 2"):
        collections.deque(many.new() for _ in range(3))


def test_files_that_grew_a_short_time_ago_are_looked_at_in_each_interval(tmp_path: Path, many: Reading) -> None:
    (tmp_path / "new.jsonl").write_text(lines(100))
    assert many.new() == [100], "the folder has changed"
    for number in range(101, 110):
        append(tmp_path / "new.jsonl", lines(number))
        assert many.new() == [number]


def test_a_removed_and_a_replaced_file_are_seen_at_once_among_many(tmp_path: Path, many: Reading) -> None:
    (tmp_path / "07.jsonl").unlink()
    assert many.new() == []
    assert [read.last for read in many.reads[-1:]] == [True]
    (tmp_path / ".new").write_text(lines(200))
    os.replace(tmp_path / ".new", tmp_path / "08.jsonl")
    with pytest.raises(SourceError, match=r"08\.jsonl was replaced or written again"):
        many.new()


@given(st.lists(st.tuples(st.sampled_from(["grow", "remove", "wait", "restart"]), st.integers(0, 7)), max_size=25))
def test_every_line_is_read_once_whatever_happens_to_files(steps: list[tuple[str, int]]) -> None:
    """With two files that are looked at in each interval."""
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(file_watch, "_FILES_PER_INTERVAL", 2)
        reading = Reading(followed(Path(folder)))
        written, gone, found = 0, set[int](), list[int]()
        for step, number in steps:
            file = Path(folder, f"{number}.jsonl")
            match step:
                case "grow" if number not in gone:
                    append(file, lines(written))
                    written += 1
                case "remove" if file.exists():
                    found += [row for _ in range(8) for row in reading.new()]
                    file.unlink()
                    gone.add(number)
                case "restart":
                    reading = reading.restarted(followed(Path(folder)))
                case _:
                    found += reading.new()
        found += [row for _ in range(8) for row in reading.new()]
        assert sorted(found) == list(range(written))
