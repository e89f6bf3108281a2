"""Iceberg tables as sinks and sources: the contracts, snapshots that follow, and tables that do not fit."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError
from pyiceberg.table import Table

from clonos_py import Record
from clonos_py.connectors import CommitId, IcebergSink, IcebergSource, MemorySource, Secret, overtaken_commits
from clonos_py.connectors.iceberg import sink as iceberg_sink
from clonos_py.model.errors import GraphError, SinkError, SourceError
from clonos_py.testing import check_sink, check_source
from tests.connectors.killed_jobs import ITEMS, Item, copy_with_kills
from tests.tables.reading_tables import numbers, opened, sought, taken

NAME = "sales.orders"
SCHEMA = Item.schema()


@pytest.fixture
def at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The properties of a catalog, one of which is secret."""
    monkeypatch.setenv("CATALOG_URI", f"sqlite:///{tmp_path}/catalog.db")
    return {"type": "sql", "uri": Secret(env="CATALOG_URI"), "warehouse": f"file://{tmp_path}/warehouse"}


@pytest.fixture
def catalog(at: dict[str, Any], tmp_path: Path) -> Catalog:
    found = load_catalog("lake", **{**at, "uri": f"sqlite:///{tmp_path}/catalog.db"})
    found.create_namespace("sales")
    return found


def rows_in(catalog: Catalog) -> list[dict[str, Any]]:
    try:
        return catalog.load_table(NAME).scan().to_arrow().to_pylist()
    except NoSuchTableError:
        return []


def items(*given: int, text: str = "x") -> pa.Table:
    return pa.Table.from_pylist([{"number": number, "text": text} for number in given], SCHEMA)


def sink(at: dict[str, Any], **options: Any) -> IcebergSink:
    return IcebergSink(NAME, "lake", properties=at, **options)


def source(at: dict[str, Any], **options: Any) -> IcebergSource[Item]:
    return IcebergSource(NAME, Item, "lake", properties=at, **options)


@pytest.fixture
def table(catalog: Catalog) -> Table:
    """A table of two snapshots with twenty rows each."""
    made = catalog.create_table(NAME, SCHEMA)
    for start in (0, 20):
        made.append(items(*range(start, start + 20)))
    return made


# ---- the sink


def test_the_sink_keeps_the_contract(at: dict[str, Any], catalog: Catalog) -> None:
    check_sink(sink(at), lambda: rows_in(catalog), deaths=1)


def test_a_snapshot_names_its_checkpoint_and_is_never_committed_again(at: dict[str, Any], catalog: Catalog) -> None:
    for committer in (sink(at).open(SCHEMA), sink(at).open(SCHEMA)):
        committer.commit(CommitId("line/out/0", 4), items(1, 2))
        committer.commit(CommitId("line/out/1", 4), items(3))
    snapshots = catalog.load_table(NAME).metadata.snapshots
    summaries = [one.summary.additional_properties for one in snapshots if one.summary is not None]
    assert [(one["clonos.owner"], one["clonos.checkpoint"]) for one in summaries] == [
        ("line/out/0", "4"),
        ("line/out/1", "4"),
    ]
    assert sorted(row["number"] for row in rows_in(catalog)) == [1, 2, 3]


def test_a_commit_is_found_when_its_snapshot_has_expired(at: dict[str, Any], catalog: Catalog) -> None:
    committer = sink(at).open(SCHEMA)
    committer.commit(CommitId("line/out/0", 4), items(1))
    first = catalog.load_table(NAME).metadata.snapshots[0].snapshot_id
    catalog.load_table(NAME).append(items(9))
    catalog.load_table(NAME).maintenance.expire_snapshots().by_id(first).commit()
    sink(at).open(SCHEMA).commit(CommitId("line/out/0", 4), items(1))
    assert sorted(row["number"] for row in rows_in(catalog)) == [1, 9]


@pytest.mark.parametrize("same", [True, False])
def test_a_commit_that_is_overtaken_looks_again(
    same: bool, at: dict[str, Any], table: Table, catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the same rows, of another process, or by those of another writer."""
    committer, other = sink(at).open(SCHEMA), sink(at).open(SCHEMA)
    opened_table, overtaken = iceberg_sink._IcebergCommitter._opened, list[int]()

    def overtake(self: Any) -> Table:
        found = opened_table(self)
        if not overtaken:
            overtaken.append(1)
            other.commit(CommitId("line/out/0" if same else "line/out/1", 1), items(77))
        return found

    monkeypatch.setattr(iceberg_sink._IcebergCommitter, "_opened", overtake)
    committer.commit(CommitId("line/out/0", 1), items(77))
    assert Counter(row["number"] for row in rows_in(catalog))[77] == (1 if same else 2)
    assert "commit.retry.num-retries" not in catalog.load_table(NAME).properties


def test_commits_that_are_always_overtaken_end_the_job(at: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    def overtaken(*_: Any) -> None:
        raise CommitFailedException("branch main has changed")

    monkeypatch.setattr(overtaken_commits, "_PAUSE_S", 0.0)
    monkeypatch.setattr(iceberg_sink._IcebergCommitter, "_opened", overtaken)
    with pytest.raises(SinkError, match=r"other writers have overtaken 30 commits \(branch main has changed\)"):
        sink(at).open(SCHEMA).commit(CommitId("a/out/0", 1), items(1))


def test_a_table_is_created_with_its_partitions(at: dict[str, Any], catalog: Catalog) -> None:
    committer = sink(at, partition_by="text").open(SCHEMA)
    committer.commit(CommitId("a/out/0", 1), pa.concat_tables([items(1, text="a b"), items(2, text="c")]))
    tasks = catalog.load_table(NAME).scan().plan_files()
    assert sorted(task.file.partition[0] for task in tasks) == ["a b", "c"]


def test_a_table_that_does_not_fit_is_one_line(at: dict[str, Any], catalog: Catalog) -> None:
    catalog.create_table(NAME, pa.schema([pa.field("number", pa.string())]))
    with pytest.raises(SinkError, match=r"sales.orders: cannot be written \(.*Update the schema first") as raised:
        sink(at).open(SCHEMA).commit(CommitId("a/out/0", 1), items(1))
    assert "\n" not in str(raised.value)


# ---- the source


def test_the_source_keeps_the_contract(at: dict[str, Any], table: Table) -> None:
    check_source(source(at, partitions=3), items(*range(40)).to_pylist())


def test_a_followed_table_keeps_the_contract(at: dict[str, Any], table: Table) -> None:
    first = table.metadata.snapshots[0].snapshot_id
    check_source(source(at, snapshot=first, follow=True, partitions=2), items(*range(40)).to_pylist())


def test_snapshots_that_follow_are_read_when_they_come(at: dict[str, Any], table: Table) -> None:
    positions: dict[int, int] = {}
    reading = opened(source(at, follow=True, existing=False))
    assert numbers(reading, positions) == []
    table.append(items(40, 41))
    assert numbers(reading, positions, seconds=2) == [], "snapshots are looked for every five seconds"
    assert numbers(reading, positions, seconds=6) == [40, 41]
    replacement = sought(opened(source(at, follow=True), saved=reading.snapshot()), positions)
    table.append(items(42))
    assert numbers(replacement, positions) == [42]
    table.delete("number = 42")
    with pytest.raises(SourceError, match="has deleted or overwritten rows, which were read before"):
        taken(replacement, positions, seconds=6)


def test_an_empty_table_is_followed(at: dict[str, Any], catalog: Catalog) -> None:
    made = catalog.create_table(NAME, SCHEMA)
    positions: dict[int, int] = {}
    reading = opened(source(at, follow=True))
    assert numbers(reading, positions) == []
    made.append(items(1))
    assert numbers(reading, positions, seconds=6) == [1]


class Wider(Record):
    number: int
    more: float | None


def test_columns_that_were_added_are_null_before(at: dict[str, Any], table: Table) -> None:
    with table.update_schema() as update:
        from pyiceberg.types import DoubleType

        update.add_column("more", DoubleType())
    rows = taken(opened(IcebergSource(NAME, Wider, "lake", properties=at)), {})
    assert {row["more"] for row in rows} == {None}
    assert len(rows) == 40


def test_snapshots_that_have_expired_are_named(at: dict[str, Any], table: Table) -> None:
    first = table.metadata.snapshots[0].snapshot_id
    definition = source(at, snapshot=first)
    definition.resolve()
    table.maintenance.expire_snapshots().by_id(first).commit()
    with pytest.raises(SourceError, match="the snapshot with sequence number 1 has expired: keep snapshots for longer"):
        taken(opened(definition), {})
    with pytest.raises(SourceError, match=rf"has no snapshot {first} in its main branch: it may have expired"):
        source(at, snapshot=first).resolve()


def test_what_is_not_there_is_one_line(at: dict[str, Any], catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SourceError, match=r"lake: sales\.orders: the catalog has no such table: create it, or name"):
        source(at).resolve()
    with pytest.raises(GraphError, match="IcebergSink: partition_by: no column 'x'; there are number, text"):
        sink(at, partition_by="x").create(SCHEMA)
    with pytest.raises(GraphError, match=r"column 'd' is duration\[us\], which Iceberg does not have: cast it"):
        sink(at).create(pa.schema([pa.field("d", pa.duration("us"))]))
    monkeypatch.setitem(sys.modules, "pyiceberg", None)
    for define in (sink, source):
        with pytest.raises(GraphError, match=r"needs pyiceberg: pip install 'clonos-py\[iceberg\]'"):
            define(at)


def test_each_row_is_copied_once_although_tasks_are_killed(
    at: dict[str, Any], catalog: Catalog, tmp_path: Path
) -> None:
    reading = MemorySource(ITEMS, schema=Item, batch_rows=20)
    copy_with_kills(reading, sink(at), tmp_path / "checkpoints", checkpoint_interval="200ms")
    assert Counter(row["number"] for row in rows_in(catalog)) == Counter(range(len(ITEMS)))
    assert Counter(numbers(opened(source(at)), {})) == Counter(range(len(ITEMS)))
