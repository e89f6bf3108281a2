"""Delta tables as sources: the contract, versions that follow, and what cannot be read."""

from __future__ import annotations

import os
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from clonos_py import Record
from clonos_py.connectors import DeltaSource, FileSink, read_results
from clonos_py.model.errors import GraphError, SourceError
from clonos_py.testing import check_source
from tests.connectors.killed_jobs import ITEMS, Item, copy_with_kills
from tests.tables.reading_tables import numbers, opened, sought, taken


def table_of(*given: int, text: str | None = None) -> pa.Table:
    rows = [{"number": n, "text": text or f"item {n % 3}"} for n in given]
    return pa.Table.from_pylist(rows, Item.schema())


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Three versions, the first two with twenty rows each, the last one with what they have in fewer files."""
    place = tmp_path / "t"
    write_deltalake(place, table_of(*range(20)), partition_by="text")
    write_deltalake(place, table_of(*range(20, 40)), mode="append")
    DeltaTable(place).optimize.compact()
    return place


@pytest.mark.parametrize("version", [1, 2])
def test_the_source_keeps_the_contract(place: Path, version: int) -> None:
    rows = table_of(*range(40)).to_pylist()
    check_source(DeltaSource(place, Item, version=version, partitions=3), rows)


def test_a_followed_table_keeps_the_contract(place: Path) -> None:
    source = DeltaSource(place, Item, version=0, follow=True, partitions=2)
    check_source(source, table_of(*range(40)).to_pylist())


def test_a_version_is_named_by_number_or_time(place: Path) -> None:
    later = datetime.now(UTC) + timedelta(days=1)
    for version, count in ((None, 40), (0, 20), (later, 40)):
        assert len(taken(opened(DeltaSource(place, Item, version=version)), {})) == count


def test_a_version_does_not_change_while_it_is_read(place: Path) -> None:
    definition = DeltaSource(place, Item)
    definition.resolve()
    write_deltalake(place, table_of(40), mode="append")
    assert numbers(opened(definition), {}) == list(range(40))


def test_columns_that_are_not_read_are_left_out(place: Path) -> None:
    for columns in (("number",), ("text",), ("text", "number")):
        source = DeltaSource(place, Item).create((columns,))
        source.open(0, 1)
        rows = taken(source, {})
        assert len(rows) == 40
        assert {tuple(row) for row in rows} == {columns}


def test_versions_that_follow_are_read_when_they_come(place: Path) -> None:
    positions: dict[int, int] = {}
    source = opened(DeltaSource(place, Item, follow=True, existing=False))
    assert numbers(source, positions) == []
    write_deltalake(place, table_of(40, 41), mode="append")
    assert numbers(source, positions) == [], "versions are looked for every second"
    assert numbers(source, positions, seconds=2) == [40, 41]
    DeltaTable(place).optimize.compact()
    write_deltalake(place, table_of(42), mode="append")
    assert numbers(source, positions, seconds=4) == [42]
    replacement = sought(opened(DeltaSource(place, Item, follow=True), saved=source.snapshot()), positions)
    write_deltalake(place, table_of(43), mode="append")
    assert numbers(replacement, positions) == [43]


def test_a_run_that_resumes_reads_the_versions_since(place: Path) -> None:
    """Also those partitions that had no row before."""
    positions: dict[int, int] = {}
    source = opened(DeltaSource(place, Item, version=0, partitions=8))
    assert numbers(source, positions) == list(range(20))
    known = {number: position for number, position in positions.items() if position}
    write_deltalake(place, table_of(40), mode="append")
    resumed = sought(opened(DeltaSource(place, Item, partitions=8), saved=source.snapshot()), known)
    assert numbers(resumed, {}) == list(range(20, 41))


class Wider(Record):
    number: int
    text: str
    more: float | None


def test_columns_that_were_added_are_null_before(place: Path) -> None:
    write_deltalake(place, pa.table({"number": [40], "text": ["x"], "more": [1.5]}), mode="append", schema_mode="merge")
    rows = {row["number"]: row["more"] for row in taken(opened(DeltaSource(place, Wider)), {})}
    assert rows == {**dict.fromkeys(range(40)), 40: 1.5}


class Changed(Record):
    number: int
    kind: str
    text: str | None = None


@pytest.mark.parametrize("fed", [True, False])
def test_changes_are_read_with_their_kind(fed: bool, tmp_path: Path) -> None:
    configuration = {"delta.enableChangeDataFeed": "true"} if fed else None
    write_deltalake(tmp_path / "t", table_of(1, 2, 3, text="x"), configuration=configuration)
    source = opened(DeltaSource(tmp_path / "t", Changed, version=0, follow=True, changes="kind"))
    positions: dict[int, int] = {}
    assert {(row["number"], row["kind"]) for row in taken(source, positions)} == {(n, "insert") for n in (1, 2, 3)}
    DeltaTable(tmp_path / "t").delete("number = 1")
    DeltaTable(tmp_path / "t").update({"text": "'y'"}, predicate="number = 2")
    net: Counter[tuple[int, str | None]] = Counter()
    kinds = set()
    for row in taken(source, positions, seconds=2):
        kinds.add(row["kind"])
        net[row["number"], row["text"]] += 1 if row["kind"] in ("insert", "update_postimage") else -1
    assert {key: count for key, count in net.items() if count} == {(1, "x"): -1, (2, "x"): -1, (2, "y"): 1}
    assert kinds == ({"delete", "update_preimage", "update_postimage"} if fed else {"delete", "insert"})


def test_versions_that_take_rows_back_end_the_job(place: Path) -> None:
    source = opened(DeltaSource(place, Item, follow=True))
    assert len(taken(source, {})) == 40
    DeltaTable(place).delete("number = 1")
    with pytest.raises(SourceError, match=r"version 3 has changed or deleted rows \(DELETE\), which were read before"):
        source.poll(2_000_000)


def test_files_that_were_vacuumed_are_named(place: Path) -> None:
    source = opened(DeltaSource(place, Item, version=1))
    DeltaTable(place).vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)
    with pytest.raises(SourceError, match=r"\.parquet is gone, since the table was vacuumed or its old versions"):
        taken(source, {})


def test_logs_that_are_gone_are_named(place: Path) -> None:
    source = opened(DeltaSource(place, Item, version=0, follow=True))
    DeltaTable(place).create_checkpoint()
    os.remove(place / "_delta_log" / f"{1:020d}.json")
    with pytest.raises(SourceError, match=r"the log of version 1 is gone: keep it for longer than the job may lag"):
        taken(source, {})


class Strict(Record):
    number: int
    text: str
    none: int


MISTAKES: dict[str, tuple[dict[str, Any], str]] = {
    "existing": ({"existing": False}, "existing= is for a table that is followed: set follow=True"),
    "changes of one version": ({"changes": "text"}, "changes= is for a table that is followed: set follow=True"),
    "changes": ({"follow": True, "changes": "kind"}, "changes='kind' is no column of the rows"),
    "partitions": ({"partitions": 0}, "partitions=0: it must be at least 1"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_found_when_the_job_is_defined(name: str, tmp_path: Path) -> None:
    options, line = MISTAKES[name]
    with pytest.raises(GraphError, match=line):
        DeltaSource(tmp_path, Item, **options)


def test_what_is_not_there_is_one_line(place: Path, tmp_path: Path) -> None:
    for source, line in (
        (DeltaSource(tmp_path / "none", Item), r"none: there is no Delta table: name the folder that has _delta_log"),
        (DeltaSource(place, Item, version=7), r"has no version 7: the newest one is 2"),
    ):
        with pytest.raises(SourceError, match=line):
            source.resolve()
    with pytest.raises(SourceError, match=r"\.parquet has no column none; it has number"):
        taken(opened(DeltaSource(place, Strict)), {})


def test_each_row_is_read_once_although_tasks_are_killed(tmp_path: Path) -> None:
    for start in range(0, len(ITEMS), 250):
        write_deltalake(tmp_path / "t", table_of(*range(start, start + 250), text="x"), mode="append")
    copy_with_kills(DeltaSource(tmp_path / "t", Item), FileSink(tmp_path / "out"), tmp_path / "checkpoints")
    assert Counter(row["number"] for row in read_results(tmp_path / "out")) == Counter(range(len(ITEMS)))
