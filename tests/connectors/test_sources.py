"""Sources of files and memory: every way to read them gives the same rows, and bad input is named."""

from __future__ import annotations

import pickle
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from clonos_py.connectors import FileSource, MemorySource, line_reader, parquet_reader
from clonos_py.model.connectors import SourceDefinition
from clonos_py.model.errors import GraphError, SourceError
from clonos_py.model.operators import End, Read, Source
from clonos_py.model.record import Instant, Money, Record


class Bid(Record):
    auction: int
    price: Money
    at: Instant
    note: str | None = None
    hot: bool = False


class Sparse(Record):
    a: str
    b: str | None
    c: int | None


def bids(count: int) -> list[Bid]:
    notes = [None, "plain", 'quoted "word", and comma', "zwei\nZeilen", ""]
    return [Bid(i, Decimal(i) / 4, 1_000 * i, notes[i % 5], i % 3 == 0) for i in range(count)]


def batch(count: int) -> pa.RecordBatch:
    rows = MemorySource(bids(count), schema=Bid, batch_rows=count + 1).create((None,))
    rows.open(0, 1)
    read = rows.poll(0)
    assert isinstance(read, Read)
    assert read.rows[0] is not None
    return read.rows[0]


def write(path: Path, rows: pa.RecordBatch) -> None:
    table = pa.Table.from_batches([rows])
    match path.suffix:
        case ".csv":
            pa_csv.write_csv(table, path)
        case ".parquet":
            pq.write_table(table, path, row_group_size=700)
        case _:
            import polars as pl

            pl.DataFrame(pl.from_arrow(table)).write_ndjson(path)


def reads(source: Source) -> list[Read]:
    found = []
    while not isinstance(read := source.poll(0), End):
        assert isinstance(read, Read)
        found.append(read)
    return found


def rows_of(found: list[Read]) -> list[dict[str, Any]]:
    return [row for read in found for rows in read.rows if rows is not None for row in rows.to_pylist()]


def opened(
    definition: SourceDefinition,
    columns: tuple[str, ...] | None = None,
    read_rows: int | None = None,
    index: int = 0,
    parallelism: int = 1,
) -> Source:
    source = definition.create((columns,), read_rows)
    source.open(index, parallelism)
    return source


@pytest.fixture(params=["jsonl", "csv", "parquet"])
def definition(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FileSource:
    """Two files of 1,000 and 500 bids, read in small blocks."""
    monkeypatch.setattr(line_reader, "BLOCK_BYTES", 4096)
    monkeypatch.setattr(parquet_reader, "PIECE_ROWS", 256)
    write(tmp_path / f"a.{request.param}", batch(1000))
    write(tmp_path / f"b.{request.param}", batch(500))
    return FileSource(str(tmp_path), Bid, request.param)


def test_every_row_of_every_file_is_read_once(definition: FileSource) -> None:
    found = reads(opened(definition))
    assert len(found) > 5
    for partition, count in ((0, 1000), (1, 500)):
        assert rows_of([r for r in found if r.partition == partition]) == batch(count).to_pylist()
    assert [r.last for r in found].count(True) == 2
    assert sum(r.events for r in found) == 1500


def test_ranges_are_contiguous_and_offsets_only_grow(definition: FileSource) -> None:
    found = reads(opened(definition))
    for partition in (0, 1):
        own = [r for r in found if r.partition == partition]
        assert all(before.stop == after.start for before, after in pairwise(own))
        assert all(0 <= r.start < r.stop < 2**63 for r in own)


def test_rereading_gives_the_same_pieces_and_reading_continues(definition: FileSource) -> None:
    found = reads(opened(definition))
    again = opened(definition)
    replayed = [again.reread(r.partition, r.start, r.stop) for r in found[:4]]
    rest = reads(again)
    for before, after in zip(found[:4], replayed, strict=True):
        assert after == before
    assert sorted((r.partition, r.start, r.checksum) for r in replayed + rest) == sorted(
        (r.partition, r.start, r.checksum) for r in found
    )
    assert sum(r.events for r in replayed + rest) == 1500


def test_reading_continues_at_a_position(definition: FileSource) -> None:
    found = reads(opened(definition))
    resumed = opened(definition)
    resumed.seek({found[0].partition: found[0].stop})
    assert sum(r.events for r in reads(resumed)) == 1500 - found[0].events


def test_a_finished_partition_is_reported_again_after_a_resume(definition: FileSource) -> None:
    found = reads(opened(definition))
    resumed = opened(definition)
    resumed.seek({r.partition: r.stop for r in found})
    empty = reads(resumed)
    assert [(r.partition, r.rows, r.last, r.start == r.stop) for r in empty] == [
        (0, (None,), True, True),
        (1, (None,), True, True),
    ]
    assert resumed.reread(0, empty[0].start, empty[0].stop) == empty[0]


def test_only_the_requested_columns_are_delivered_in_their_order(definition: FileSource) -> None:
    expected = [{"at": row["at"], "auction": row["auction"]} for row in batch(1000).to_pylist()]
    found = [r for r in reads(opened(definition, ("at", "auction"))) if r.partition == 0]
    assert rows_of(found) == expected
    assert list(rows_of(found)[0]) == ["at", "auction"]


def test_a_read_has_at_most_the_requested_rows(definition: FileSource) -> None:
    found = reads(opened(definition, read_rows=64))
    assert 32 < max(r.events for r in found) <= 64
    assert rows_of([r for r in found if r.partition == 0]) == batch(1000).to_pylist()


def test_instances_divide_the_files(definition: FileSource) -> None:
    first, second = opened(definition, parallelism=2), opened(definition, index=1, parallelism=2)
    assert first.partitions() == second.partitions() == 2
    assert {r.partition for r in reads(first)} == {0}
    assert {r.partition for r in reads(second)} == {1}


def test_the_list_of_files_does_not_change_after_submission(definition: FileSource, tmp_path: Path) -> None:
    shipped = pickle.dumps(definition)
    suffix = Path(definition.files[0].path).suffix
    write(tmp_path / f"0{suffix}", batch(10))
    assert sum(r.events for r in reads(opened(pickle.loads(shipped)))) == 1500
    assert sum(r.events for r in reads(opened(definition))) == 1500


def test_a_changed_list_of_files_is_detected_at_a_resume(definition: FileSource, tmp_path: Path) -> None:
    positions = {r.partition: r.stop for r in reads(opened(definition))[:3]}
    suffix = Path(definition.files[0].path).suffix
    write(tmp_path / f"c{suffix}", batch(10))
    opened(FileSource(str(tmp_path), Bid, suffix[1:])).seek(positions)
    write(tmp_path / f"0{suffix}", batch(10))
    with pytest.raises(SourceError, match="list of inputs has changed"):
        opened(FileSource(str(tmp_path), Bid, suffix[1:])).seek(positions)


def test_a_missing_or_shrunk_file_is_named_in_a_replay(definition: FileSource) -> None:
    (found, *_) = [r for r in reads(opened(definition)) if r.last and r.partition == 0]
    path = Path(definition.files[0].path)
    write(path, batch(20))
    with pytest.raises(SourceError, match=rf"{path} has shrunk"):
        opened(definition).reread(0, found.start, found.stop)
    resumed = opened(FileSource(str(path.parent), Bid, path.suffix[1:]))
    resumed.seek({0: found.stop})
    with pytest.raises(SourceError, match=rf"{path} has shrunk"):
        resumed.poll(0)
    path.unlink()
    with pytest.raises(SourceError, match=rf"{path} is missing.*must stay"):
        opened(definition).reread(0, found.start, found.stop)


def test_a_replaced_file_has_another_checksum(definition: FileSource) -> None:
    (found, *_) = reads(opened(definition))
    path = Path(definition.files[0].path)
    if path.suffix == ".parquet":
        write(path, batch(1001))
    else:
        content = path.read_bytes()
        path.write_bytes(content.replace(b"plain", b"plane", 1))
    assert opened(definition).reread(0, found.start, found.stop).checksum != found.checksum


def test_a_null_in_a_column_that_is_not_nullable_is_named(tmp_path: Path) -> None:
    table = pa.table({"auction": pa.array([1, None], pa.int64()), "price": pa.array([1, 2], pa.decimal128(18, 2))})
    for suffix in ("jsonl", "csv", "parquet"):
        path = tmp_path / f"nulls.{suffix}"
        write(path, table.to_batches()[0])
        schema = pa.schema([pa.field("auction", pa.int64(), nullable=False)])
        with pytest.raises(SourceError, match=rf"{path}.*'auction'"):
            reads(opened(FileSource(str(path), schema, suffix)))


@pytest.mark.parametrize(
    ("suffix", "content", "line", "byte"),
    [
        ("jsonl", b'{"x": 1}\n\n{"x": 2}\n{"x": "three"}\n{"x": 4}\n', 4, 19),
        ("jsonl", b'{"x": 1}\n{"x": 2', 2, 9),
        ("jsonl", b'{"x": 1}\n{"x": 1.5}\n', 2, 9),
        ("jsonl", b"[1]\n", 1, 0),
        ("csv", b"x,y\n1,2\n3,4,5\n", 3, 8),
        ("csv", b"x,y\n1,2\n\nthree,4\n", 4, 9),
        ("csv", b'x,y\n1,"two\nlines"\nz,4\n', 4, 18),
        ("csv", b"x,y\n1,2\n,4\n", 3, 8),
        ("text", b"fine\n\xff\xfe\nfine\n", 2, 5),
    ],
)
def test_a_malformed_record_is_named_by_line_and_byte(
    tmp_path: Path, suffix: str, content: bytes, line: int, byte: int
) -> None:
    path = tmp_path / f"bad.{suffix}"
    path.write_bytes(content)
    schema = None if suffix == "text" else pa.schema([pa.field("x", pa.int64(), nullable=False)])
    with pytest.raises(SourceError, match=rf"{path}, line {line} \(byte {byte}\): malformed record: \S"):
        reads(opened(FileSource(str(path), schema, suffix)))


def test_a_csv_header_without_a_requested_column_is_named(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("a,b\n1,2\n")
    with pytest.raises(SourceError, match=r"x\.csv: the header has no column auction.*it has a, b"):
        reads(opened(FileSource(str(tmp_path / "x.csv"), Bid, "csv"), ("auction",)))


def test_empty_csv_fields_are_null_unless_they_are_text_that_may_not_be(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text('a,b,c\n,,\n"","",3\n')
    found = reads(opened(FileSource(str(tmp_path / "x.csv"), Sparse, "csv")))
    assert rows_of(found) == [{"a": "", "b": None, "c": None}, {"a": "", "b": "", "c": 3}]


def test_a_file_that_is_no_parquet_is_named(tmp_path: Path) -> None:
    (tmp_path / "x.parquet").write_text("nonsense")
    with pytest.raises(SourceError, match=r"x\.parquet: cannot be read"):
        reads(opened(FileSource(str(tmp_path / "x.parquet"), Bid, "parquet")))


def test_a_pattern_without_files_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"none\*: no such file"):
        opened(FileSource(str(tmp_path / "none*")))


def test_a_source_without_the_schema_it_needs_is_refused() -> None:
    with pytest.raises(GraphError, match="csv needs schema="):
        FileSource("x", format="csv")
    with pytest.raises(GraphError, match="unknown format 'xml'"):
        FileSource("x", format="xml")
    with pytest.raises(GraphError, match="one column 'line'"):
        FileSource("x", Bid, "text")
    with pytest.raises(GraphError, match=r"the name 'logs/\*' does not show the format: give format="):
        FileSource("logs/*", Bid)


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet"])
def test_the_format_follows_from_the_name(suffix: str, tmp_path: Path) -> None:
    write(tmp_path / f"x.{suffix}", batch(10))
    assert rows_of(reads(opened(FileSource(str(tmp_path / f"*.{suffix}"), Bid)))) == batch(10).to_pylist()


def test_a_record_longer_than_a_block_is_read_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line_reader, "BLOCK_BYTES", 8)
    (tmp_path / "long.txt").write_text("short\n" + "x" * 1000 + "\nshort")
    assert rows_of(reads(opened(FileSource(str(tmp_path / "long.txt"))))) == [
        {"line": "short"},
        {"line": "x" * 1000},
        {"line": "short"},
    ]
    monkeypatch.setattr(line_reader, "RECORD_BYTES_MAX", 100)
    with pytest.raises(SourceError, match="the record at byte 6 does not end within"):
        reads(opened(FileSource(str(tmp_path / "long.txt"))))


def test_empty_files_end_at_once(tmp_path: Path) -> None:
    (tmp_path / "empty.txt").write_text("")
    assert [(r.rows, r.last) for r in reads(opened(FileSource(str(tmp_path / "empty.txt"))))] == [((None,), True)]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    lines=st.lists(st.text(st.characters(blacklist_characters="\r\n", blacklist_categories=["Cs"]), max_size=12)),
    ending=st.sampled_from(["\n", "\r\n"]),
    closed=st.booleans(),
    block_bytes=st.integers(1, 40),
    read_rows=st.none() | st.integers(1, 5),
)
def test_text_is_read_line_by_line_in_blocks_of_any_size(
    lines: list[str], ending: str, closed: bool, block_bytes: int, read_rows: int | None, tmp_path: Path
) -> None:
    content = ending.join(lines) + (ending if closed and lines else "")
    (tmp_path / "x.txt").write_bytes(content.encode())
    expected = lines if closed or not lines or lines[-1] else lines[:-1]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(line_reader, "BLOCK_BYTES", block_bytes)
        found = reads(opened(FileSource(str(tmp_path / "x.txt")), read_rows=read_rows))
    assert [row["line"] for row in rows_of(found)] == expected


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    values=st.lists(st.tuples(st.text('ab",\n \r', max_size=6), st.integers(-9, 9)), min_size=1, max_size=20),
    block_bytes=st.integers(1, 60),
    read_rows=st.none() | st.integers(1, 5),
)
def test_csv_with_quoted_line_ends_is_read_in_blocks_of_any_size(
    values: list[tuple[str, int]], block_bytes: int, read_rows: int | None, tmp_path: Path
) -> None:
    table = pa.table({"name": [name for name, _ in values], "n": [n for _, n in values]})
    pa_csv.write_csv(table, tmp_path / "x.csv")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(line_reader, "BLOCK_BYTES", block_bytes)
        found = reads(opened(FileSource(str(tmp_path / "x.csv"), table.schema, "csv"), read_rows=read_rows))
    assert rows_of(found) == table.to_pylist()


def test_a_memory_source_deals_rows_to_partitions_in_turn() -> None:
    source = opened(MemorySource(bids(10), partitions=3, batch_rows=2))
    found = reads(source)
    assert [row["auction"] for row in rows_of([r for r in found if r.partition == 1])] == [1, 4, 7]
    assert sorted(row["auction"] for row in rows_of(found)) == list(range(10))
    assert [r.partition for r in found[:3]] == [0, 1, 2]
    assert {r.partition for r in found if r.last} == {0, 1, 2}


def test_a_memory_source_takes_records_tables_and_batches() -> None:
    table = pa.Table.from_batches([batch(5), batch(5)])
    for rows, count in ((bids(5), 5), (table, 10), (batch(5), 5), (table.slice(0, 0), 0)):
        assert sum(r.events for r in reads(opened(MemorySource(rows)))) == count
    assert reads(opened(MemorySource([], schema=Bid)))[0].last
    with pytest.raises(GraphError, match="give a schema"):
        MemorySource([])


@pytest.mark.parametrize("frame_of", [pd.DataFrame, pl.DataFrame, pa.table])
def test_a_memory_source_takes_frames(frame_of: Any) -> None:
    frame = frame_of({"auction": [1, 2], "note": ["a", None]})
    source = MemorySource(frame)
    assert [str(field.type) for field in source.schemas[0]] == ["int64", "string"]
    assert rows_of(reads(opened(source))) == [{"auction": 1, "note": "a"}, {"auction": 2, "note": None}]
    noted = pa.schema([pa.field("note", pa.string(), nullable=False)])
    with pytest.raises(GraphError, match="MemorySource: column 'note' is partly null, declared is string without"):
        MemorySource(frame, schema=noted)


def test_a_memory_source_can_be_reread_and_projected() -> None:
    source = opened(MemorySource(bids(10), batch_rows=4), ("at",), read_rows=3)
    (first, *_) = reads(source)
    assert source.reread(0, first.start, first.stop) == first
    assert rows_of([first]) == [{"at": 0}, {"at": 1000}, {"at": 2000}]
    with pytest.raises(SourceError, match="beyond the 10 rows"):
        source.reread(0, 8, 12)
