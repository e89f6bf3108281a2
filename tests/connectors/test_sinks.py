"""Sinks: which rows are visible when, what survives a death between any two steps, and disks that fail."""

from __future__ import annotations

import json
import math
import os
import re
import tempfile
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clonos_py import Job
from clonos_py.columns.digest import digest
from clonos_py.connectors import (
    BlackholeSink,
    DigestSink,
    FileSink,
    MemorySink,
    MemorySource,
    PrintSink,
    UpsertFileSink,
    UpsertMemorySink,
    partitioned_files,
    read_results,
    row_files,
)
from clonos_py.connectors.digests import decode_result, read_digest
from clonos_py.connectors.files import FileSource
from clonos_py.connectors.row_files import json_lines
from clonos_py.model.connectors import SinkDefinition
from clonos_py.model.errors import GraphError, SinkError
from clonos_py.model.operators import Sink
from clonos_py.model.record import Record
from clonos_py.model.record_codec import encode
from clonos_py.runtime.launch import run_job
from clonos_py.settings.resolution import resolve
from tests.connectors.contexts import SinkContext, opened
from tests.connectors.hot import Hot, hot, prepared, start
from tests.connectors.test_sources import opened as source_of
from tests.connectors.test_sources import reads, rows_of
from tests.disks import PowerSupply, make_read_only

Visible = Callable[[], list[int]]


class Placed(Record):
    n: int
    at: str | None


@pytest.fixture(params=["jsonl", "csv", "parquet", "partitioned", "memory"])
def medium(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[SinkDefinition, Visible]:
    """A transactional sink, and a function that returns its visible auctions."""
    if request.param == "memory":
        memory = MemorySink()
        return memory, lambda: [row.auction for row in memory.rows(Hot)]
    folder = tmp_path / "out"
    if request.param == "partitioned":
        by_note = FileSink(str(folder), partition_by="note")
        return by_note, lambda: sorted(row["auction"] for row in read_results(str(folder)))
    return FileSink(str(folder), request.param), lambda: [int(row["auction"]) for row in read_results(str(folder))]


def test_rows_appear_when_their_checkpoint_commits(medium: tuple[SinkDefinition, Visible]) -> None:
    definition, visible = medium
    sink = start(definition)
    sink.on_rows(hot(1, 2), 0)
    sink.on_rows(hot(3), 0)
    assert visible() == []
    committable = prepared(sink, 1)
    sink.on_rows(hot(4), 0)
    assert visible() == []
    sink.commit(committable)
    assert visible() == [1, 2, 3]
    sink.commit(prepared(sink, 2))
    assert visible() == [1, 2, 3, 4]


@pytest.mark.parametrize(
    "sink_in",
    [
        FileSink,
        lambda folder: FileSink(folder, partition_by="note"),
        lambda folder: UpsertFileSink(folder, key="auction"),
        DigestSink,
    ],
    ids=["files", "partitioned", "upserts", "digest"],
)
@pytest.mark.parametrize("made_by_another", [False, True])
def test_a_power_cut_after_a_commit_loses_no_name(
    sink_in: Callable[[str], SinkDefinition], made_by_another: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor those of folders that a process made which died before it had flushed their parents."""
    power = PowerSupply(monkeypatch)
    folder = tmp_path / "new" / "out"
    if made_by_another:
        os.mkdir(tmp_path / "new")
    sink = start(sink_in(str(folder)))
    for checkpoint in (1, 2):
        sink.on_rows(hot(checkpoint), 0)
        sink.commit(prepared(sink, checkpoint))
        assert power.unflushed_names == set()


def test_an_epoch_without_rows_commits_nothing(medium: tuple[SinkDefinition, Visible]) -> None:
    sink = start(medium[0])
    assert sink.prepare(1) is None
    sink.on_rows(hot(), 0)
    assert sink.prepare(2) is None
    assert medium[1]() == []


def test_a_repeated_commit_has_no_effect(medium: tuple[SinkDefinition, Visible]) -> None:
    definition, visible = medium
    sink = start(definition)
    sink.on_rows(hot(1), 0)
    committable = prepared(sink, 1)
    sink.commit(committable)
    sink.commit(committable)
    start(definition).commit(committable)
    assert visible() == [1]


def test_rows_of_an_aborted_checkpoint_are_committed_with_the_next(medium: tuple[SinkDefinition, Visible]) -> None:
    definition, visible = medium
    sink = start(definition)
    sink.on_rows(hot(1), 0)
    aborted = prepared(sink, 1)
    sink.on_rows(hot(2), 0)
    for committable in (aborted, prepared(sink, 2)):
        sink.commit(committable)
    assert visible() == [1, 2]


def test_a_late_commit_of_an_older_checkpoint_has_no_effect(medium: tuple[SinkDefinition, Visible]) -> None:
    definition, visible = medium
    sink = start(definition)
    sink.on_rows(hot(1), 0)
    first = prepared(sink, 1)
    sink.on_rows(hot(2), 0)
    second = prepared(sink, 2)
    for committable in (first, second, first):
        sink.commit(committable)
    assert visible() == [1, 2]


def test_a_replacement_commits_prepared_rows_of_its_predecessor_and_writes_the_rest(
    medium: tuple[SinkDefinition, Visible],
) -> None:
    definition, visible = medium
    dead = start(definition)
    dead.on_rows(hot(1), 0)
    first, state = dead.prepare(1), dead.snapshot()
    dead.on_rows(hot(2), 0)
    dead.prepare(2)
    dead.on_rows(hot(3), 0)

    replacement = start(definition)
    replacement.restore([state])
    assert first is not None
    replacement.commit(first)
    assert visible() == [1]
    replacement.on_rows(hot(2), 0)
    aborted = prepared(replacement, 2)
    replacement.on_rows(hot(3), 0)
    for committable in (aborted, prepared(replacement, 3)):
        replacement.commit(committable)
    assert visible() == [1, 2, 3]


@pytest.mark.parametrize("by", [(), ("note",)])
def test_leftovers_of_a_dead_task_are_removed(tmp_path: Path, by: tuple[str, ...]) -> None:
    definition = FileSink(str(tmp_path), partition_by=by)
    dead = start(definition)
    dead.on_rows(hot(1), 0)
    dead.prepare(1)
    dead.on_rows(hot(2), 0)
    other = start(definition, index=1)
    other.on_rows(hot(7), 0)
    replacement = start(definition)
    replacement.restore([])
    replacement.on_rows(hot(1, 2), 0)
    committable, of_other = prepared(replacement, 2), prepared(other, 2)
    replacement.commit(committable)
    assert len(list((tmp_path / ".staged").iterdir())) == 1
    other.commit(of_other)
    assert sorted(row["auction"] for row in read_results(str(tmp_path))) == [1, 2, 7]
    assert list((tmp_path / ".staged").iterdir()) == []


def test_two_attempts_of_a_task_may_commit_the_same_piece_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task that hung wakes up in the middle of a commit that its replacement has done, too."""
    hung = start(FileSink(str(tmp_path)))
    hung.on_rows(hot(1), 0)
    committable = prepared(hung, 1)
    replacement = start(FileSink(str(tmp_path)))
    rename = os.rename

    def overtaken(source: str, target: str) -> None:
        monkeypatch.setattr(os, "rename", rename)
        replacement.commit(committable)
        rename(source, target)

    monkeypatch.setattr(os, "rename", overtaken)
    hung.commit(committable)
    hung.commit(committable)
    assert [row["auction"] for row in read_results(str(tmp_path))] == [1]


def test_a_late_commit_of_a_hung_task_does_not_undo_a_later_one(tmp_path: Path) -> None:
    definition = DigestSink(str(tmp_path))
    hung, replacement = start(definition), start(definition)
    for sink in (hung, replacement):
        sink.on_rows(hot(1), 0)
    first = prepared(hung, 1)
    replacement.commit(first)
    replacement.on_rows(hot(2), 0)
    replacement.commit(prepared(replacement, 2))
    result = read_digest(str(tmp_path))
    hung.commit(first)
    assert read_digest(str(tmp_path)) == result
    assert result[1] == 2


@pytest.mark.parametrize("by", [(), ("note",)])
def test_closing_discards_rows_that_are_not_prepared(tmp_path: Path, by: tuple[str, ...]) -> None:
    sink = start(FileSink(str(tmp_path), partition_by=by))
    sink.on_rows(hot(1), 0)
    sink.close()
    assert list((tmp_path / ".staged").iterdir()) == []


def test_tasks_of_an_operator_share_a_folder(tmp_path: Path) -> None:
    sinks = [start(FileSink(str(tmp_path)), operator="hot/out", index=index, parallelism=2) for index in (0, 1)]
    for index, sink in enumerate(sinks):
        sink.on_rows(hot(index), 0)
    committables = [prepared(sink, 3) for sink in sinks]
    for sink, committable in zip(sinks, committables, strict=True):
        sink.commit(committable)
    assert sorted(p.name for p in tmp_path.glob("*.jsonl")) == ["hot%2Fout-0-3.jsonl", "hot%2Fout-1-3.jsonl"]
    assert [row["auction"] for row in read_results(str(tmp_path))] == [0, 1]


def test_files_are_in_folders_named_by_columns_that_they_omit(tmp_path: Path) -> None:
    both = pa.schema([*Hot.schema(), pa.field("hm", pa.string())])
    rows = hot(1, 2, 3).append_column("hm", pa.array(["09:30", "a/b=c", "09:30"]))
    sink = opened(FileSink(str(tmp_path), "parquet", partition_by=("hm", "note")).create(both))
    sink.on_rows(rows, 0)
    sink.on_rows(hot(5).append_column("hm", pa.array(["09:30"])), 0)
    sink.commit(prepared(sink, 4))
    found = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.parquet"))
    assert found == [
        "hm=09%3A30/note=n1/out-0-4.parquet",
        "hm=09%3A30/note=n3/out-0-4.parquet",
        "hm=09%3A30/note=n5/out-0-4.parquet",
        "hm=a%2Fb%3Dc/note=__HIVE_DEFAULT_PARTITION__/out-0-4.parquet",
    ]
    assert pq.read_schema(tmp_path / found[0]).names == ["auction", "price"]
    assert [tuple(row.values()) for row in read_results(str(tmp_path))] == [
        (number, Decimal(1), hm, note)
        for number, hm, note in [(1, "09:30", "n1"), (3, "09:30", "n3"), (5, "09:30", "n5"), (2, "a/b=c", None)]
    ]
    again = opened(FileSink(str(tmp_path), "parquet", partition_by=("hm", "note")).create(both))
    with pytest.raises(SinkError, match="written by another run"):
        again.on_rows(rows, 0)


@pytest.mark.parametrize("file_format", ["jsonl", "csv", "parquet"])
def test_there_may_be_more_values_than_files_can_be_open(tmp_path: Path, file_format: str) -> None:
    def open_files() -> int:
        return sum(str(tmp_path) in os.readlink(link) for link in Path("/proc/self/fd").iterdir() if link.is_symlink())

    sink = start(FileSink(str(tmp_path), file_format, partition_by="note"))
    most = 0
    for _ in range(3):
        sink.on_rows(hot(*range(1, 200, 2)), 0)
        most = max(most, open_files())
    assert 0 < most <= partitioned_files._OPEN_FILES_MAX
    sink.commit(prepared(sink, 1))
    assert open_files() == 0
    found = [(int(row["auction"]), row["note"]) for row in read_results(str(tmp_path))]
    assert sorted(found) == [(n, f"n{n}") for n in range(1, 200, 2) for _ in range(3)]


@pytest.mark.parametrize("file_format", ["jsonl", "csv", "parquet"])
def test_a_parked_file_is_appended_to(tmp_path: Path, file_format: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_files, "GATHERED_ROWS", 1)
    monkeypatch.setattr(partitioned_files, "_OPEN_FILES_MAX", 1)
    sink = start(FileSink(str(tmp_path), file_format, partition_by="note"))
    for _ in range(3):
        sink.on_rows(hot(1, 3), 0)
    sink.commit(prepared(sink, 1))
    assert [int(row["auction"]) for row in read_results(str(tmp_path))] == [1, 1, 1, 3, 3, 3]


@given(st.lists(st.none() | st.text(max_size=20) | st.just(partitioned_files.NO_VALUE), max_size=5))
def test_every_value_is_read_back_from_the_name_of_its_folder(values: list[str | None]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        sink = opened(FileSink(folder, partition_by="at").create(Placed.schema()))
        sink.on_rows(
            pa.RecordBatch.from_arrays(
                [pa.array(range(len(values)), pa.int64()), pa.array(values, pa.string())], schema=Placed.schema()
            ),
            0,
        )
        if values:
            sink.commit(prepared(sink, 1))
        assert sorted((row["n"], row["at"]) for row in read_results(folder)) == list(enumerate(values))


def test_a_value_that_is_too_long_for_a_folder_is_named_before_rows_are_lost(tmp_path: Path) -> None:
    sink = opened(FileSink(str(tmp_path), partition_by="at").create(Placed.schema()))

    def rows(at: str) -> pa.RecordBatch:
        return pa.RecordBatch.from_pylist([{"n": 1, "at": at}], Placed.schema())

    sink.on_rows(rows("a" * 252), 0)
    with pytest.raises(SinkError, match=r"'aaa.*'at' needs a folder name of 256 bytes.*shorten it before the sink"):
        sink.on_rows(rows("a" * 253), 0)


@pytest.mark.parametrize(
    ("by", "message"),
    [
        (("nothing",), "partition_by: no column 'nothing'; there are auction, price, note"),
        (("auction",), "column 'auction' is int64; make it text"),
    ],
)
def test_columns_that_cannot_name_folders_are_refused(tmp_path: Path, by: tuple[str, ...], message: str) -> None:
    with pytest.raises(GraphError, match=message):
        FileSink(str(tmp_path), partition_by=by).create(Hot.schema())
    with pytest.raises(GraphError, match="omit partition_by"):
        FileSink(str(tmp_path), delivery="causal", partition_by=by)


def test_results_of_two_runs_are_not_mixed(tmp_path: Path) -> None:
    """Even if the runs take checkpoints at other times, and so have other names of files."""
    first = start(FileSink(str(tmp_path)))
    first.on_rows(hot(1), 0)
    first.commit(prepared(first, 3))
    second = start(FileSink(str(tmp_path)))
    with pytest.raises(SinkError, match=r"out-0-3\.jsonl exists, written by another run"):
        second.on_rows(hot(2), 0)
    with pytest.raises(SinkError, match=r"out-0-3\.jsonl exists, written by another run"):
        second.prepare(1)
    start(FileSink(str(tmp_path)), operator="other").on_rows(hot(3), 0)
    assert [row["auction"] for row in read_results(str(tmp_path))] == [1]


def test_missing_staged_rows_are_an_error(medium: tuple[SinkDefinition, Visible], tmp_path: Path) -> None:
    definition, _ = medium
    sink = start(definition)
    sink.on_rows(hot(1), 0)
    committable = prepared(sink, 1)
    for staged in [path for path in (tmp_path / "out" / ".staged").rglob("*") if path.is_file()]:
        staged.unlink()
    if isinstance(definition, MemorySink):
        definition.clear()
    with pytest.raises(SinkError, match=r"missing|another MemorySink"):
        sink.commit(committable)
    with pytest.raises(SinkError, match="names no staged rows"):
        sink.commit(b"nonsense")


@pytest.mark.parametrize("suffix", ["jsonl", "csv", "parquet"])
def test_a_source_reads_the_rows_that_a_sink_wrote(suffix: str, tmp_path: Path) -> None:
    rows = encode([Hot(1, Decimal("1.25"), 'say "hi",\nok'), Hot(2**62, Decimal("-0.01"), None)], Hot.schema())
    sink = opened(FileSink(str(tmp_path), suffix).create(Hot.schema()))
    sink.on_rows(rows, 0)
    sink.commit(prepared(sink, 1))
    source = FileSource(str(tmp_path), Hot, suffix).create((None,))
    source.open(0, 1)
    assert rows_of(reads(source)) == rows.to_pylist()


def test_many_small_batches_make_one_file_per_epoch(tmp_path: Path) -> None:
    context = SinkContext()
    sink = opened(FileSink(str(tmp_path)).create(Hot.schema()), context)
    for auction in range(100):
        sink.on_rows(hot(auction), 0)
    sink.commit(prepared(sink, 1))
    assert [p.name for p in tmp_path.glob("*.jsonl")] == ["out-0-1.jsonl"]
    assert [row["auction"] for row in read_results(str(tmp_path))] == list(range(100))
    assert context.counts == {"rows_out": 100}


@pytest.mark.parametrize("suffix", ["jsonl", "csv", "parquet"])
def test_a_full_disk_is_an_error_and_committed_rows_stay(suffix: str, small_disk: Path) -> None:
    sink = opened(FileSink(str(small_disk), suffix).create(pa.schema([("auction", pa.int64())])))
    sink.on_rows(pa.record_batch({"auction": [1]}), 0)
    sink.commit(prepared(sink, 1))
    large = pa.record_batch({"auction": np.random.default_rng(1).integers(0, 2**62, 300_000)})
    with pytest.raises(SinkError, match=rf"{small_disk}.*disk is full; free space and run the job again"):
        sink.on_rows(large, 0)
    sink.close()
    assert [int(row["auction"]) for row in read_results(str(small_disk))] == [1]
    assert list((small_disk / ".staged").iterdir()) == []


def test_a_read_only_folder_is_an_error(small_disk: Path) -> None:
    make_read_only(small_disk)
    with pytest.raises(SinkError, match=rf"{small_disk}.*cannot be written"):
        start(FileSink(str(small_disk / "out")))


def test_columns_that_a_format_cannot_hold_are_refused(tmp_path: Path) -> None:
    with pytest.raises(GraphError, match="jsonl cannot hold column 'b'"):
        FileSink(str(tmp_path)).create(pa.schema([("b", pa.binary())]))
    with pytest.raises(GraphError, match="csv cannot hold column 'l'"):
        FileSink(str(tmp_path), "csv").create(pa.schema([("l", pa.list_(pa.int64()))]))
    with pytest.raises(GraphError, match="unknown format 'xml'"):
        FileSink(str(tmp_path), "xml")
    with pytest.raises(GraphError, match="no key 'nope'"):
        UpsertMemorySink("nope").create(Hot.schema())


def test_print_shows_rows_as_lines_of_json(capsys: pytest.CaptureFixture[str]) -> None:
    opened(PrintSink().create(Hot.schema())).on_rows(hot(1, 2), 0)
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(line["auction"], line["note"]) for line in lines] == [(1, "n1"), (2, None)]


def test_the_blackhole_counts_rows() -> None:
    context = SinkContext()
    sink = opened(BlackholeSink().create(Hot.schema()), context)
    sink.on_rows(hot(1, 2), 0)
    sink.on_rows(hot(3), 0)
    assert sink.prepare(1) is None
    assert context.counts == {"rows_out": 3}


def test_a_digest_does_not_depend_on_order_batches_or_parallelism(tmp_path: Path) -> None:
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    one = opened(DigestSink(str(whole)).create(Hot.schema()))
    one.on_rows(hot(1, 2, 3, 4), 0)
    one.commit(prepared(one, 1))
    for index, auctions in enumerate([(4, 1), (3, 2)]):
        sink = opened(DigestSink(str(parts)).create(Hot.schema()), index=index, parallelism=2)
        for auction in auctions:
            sink.on_rows(hot(auction), 0)
        sink.commit(prepared(sink, 1))
    assert read_digest(str(whole)) == read_digest(str(parts)) == (digest(hot(1, 2, 3, 4)), 4)


def test_a_digest_survives_a_restart_at_any_parallelism() -> None:
    def restarted(parts: list[Any], count: int) -> list[Sink]:
        sinks = [opened(DigestSink().create(Hot.schema()), index=i, parallelism=count) for i in range(count)]
        for index, sink in enumerate(sinks):
            sink.restore([parts[index]] if len(parts) == count else parts)
        return sinks

    sinks = restarted([opened(DigestSink().create(Hot.schema())).snapshot()], 1)
    auction = 0
    for count in (1, 1, 2, 2, 3, 1, 2):
        for sink in sinks:
            sink.on_rows(hot(auction := auction + 1), 0)
        sinks = restarted([sink.snapshot() for sink in sinks], count)
        results = [decode_result(prepared(sink, 1)) for sink in sinks]
        assert sum(r.digest for r in results) % 2**64 == digest(hot(*range(1, auction + 1)))
        assert sum(r.rows for r in results) == auction


class Measured(Record):
    value: float
    maybe: float | None


@pytest.mark.parametrize(
    ("row", "place"),
    [
        ({"values": [1.0, math.nan]}, "values[]"),
        ({"inner": {"x": math.inf}}, "inner.x"),
        ({"many": [{"x": 1.0}, {"x": math.nan}]}, "many[].x"),
    ],
)
def test_values_that_json_lacks_are_found_at_each_depth(row: dict[str, Any], place: str) -> None:
    number = pa.float64()
    inner = pa.struct([pa.field("x", number, nullable=False), pa.field("maybe", number)])
    types = {"values": pa.list_(pa.field("item", number, nullable=False)), "inner": inner, "many": pa.list_(inner)}
    with pytest.raises(SinkError, match=rf"column '{re.escape(place)}' has a NaN or an infinity"):
        json_lines(pa.Table.from_pylist([{}, row], pa.schema(types)))
    maybe = pa.Table.from_pylist([{"inner": {"x": 1.0, "maybe": math.nan}}, {}], pa.schema(types))
    assert json.loads(bytes(json_lines(maybe)).splitlines()[0])["inner"] == {"x": 1.0, "maybe": None}


@pytest.mark.parametrize("delivery", ["transactional", "causal"])
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_values_that_json_lacks_are_null_where_allowed_and_else_an_error(
    delivery: Any, value: float, tmp_path: Path
) -> None:
    def run(row: Measured) -> list[dict[str, Any]]:
        job, folder = Job("measured"), str(tmp_path / str(row.value))
        job.source(MemorySource([row])).sink(FileSink(folder, delivery=delivery)).named("out")
        run_job(job, resolve(command_line={"runtime": "local"}))
        return read_results(folder)

    assert run(Measured(1.0, value)) == [{"value": 1.0, "maybe": None}]
    with pytest.raises(
        SinkError, match="column 'value' has a NaN or an infinity, which JSON cannot express: declare it"
    ):
        run(Measured(value, None))


@pytest.mark.parametrize("format", ["csv", "parquet"])
def test_nan_is_kept_in_formats_that_have_it(format: str, tmp_path: Path) -> None:
    sink = start(FileSink(str(tmp_path), format), Measured.schema())
    rows = [Measured(math.nan, math.inf), Measured(-math.inf, math.nan), Measured(1.0, None)]
    sink.on_rows(encode(rows, Measured.schema()), 0)
    sink.commit(prepared(sink, 1))
    source = FileSource(str(tmp_path / "*"), Measured, format)
    assert repr(rows_of(reads(source_of(source)))) == repr([msgspec.structs.asdict(row) for row in rows])
