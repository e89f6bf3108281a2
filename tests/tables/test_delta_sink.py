"""Delta tables as sinks: the contract, the version of each checkpoint, and tables that do not fit."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError

from clonos_py import Record
from clonos_py.connectors import CommitId, DeltaSink, MemorySource, overtaken_commits
from clonos_py.connectors.delta import sink as delta_sink
from clonos_py.model.errors import GraphError, SinkError
from clonos_py.testing import check_sink
from tests.connectors.killed_jobs import ITEMS, Item, copy_with_kills

SCHEMA = Item.schema()
CHANGES = pa.schema([*SCHEMA, pa.field("_change", pa.string(), nullable=False)])


def rows_of(table: Path) -> list[dict[str, Any]]:
    if not DeltaTable.is_deltatable(str(table)):
        return []
    return DeltaTable(table).to_pyarrow_table().to_pylist()


def items(*numbers: int, text: str = "x") -> pa.Table:
    return pa.Table.from_pylist([{"number": number, "text": text} for number in numbers], SCHEMA)


def changes(*rows: tuple[int, str, str]) -> pa.Table:
    return pa.Table.from_pylist([{"number": n, "text": text, "_change": change} for n, text, change in rows], CHANGES)


def later(number: int) -> Item:
    return Item(number, "later")


def test_the_sink_keeps_the_contract(tmp_path: Path) -> None:
    check_sink(DeltaSink(tmp_path / "t", partition_by="text"), lambda: rows_of(tmp_path / "t"), deaths=3)


def test_the_sink_of_a_table_keeps_the_contract(tmp_path: Path) -> None:
    sink = DeltaSink(tmp_path / "t", key="number")
    check_sink(sink, lambda: rows_of(tmp_path / "t"), row=lambda n: Item(n, "x"), later=later, deaths=3)


def test_a_version_names_its_checkpoint_and_is_never_committed_again(tmp_path: Path) -> None:
    committer = DeltaSink(tmp_path / "t").open(SCHEMA)
    other = DeltaSink(tmp_path / "t").open(SCHEMA)
    committer.commit(CommitId("line/out/0", 4), items(1, 2))
    other.commit(CommitId("line/out/0", 4), items(1, 2))
    other.commit(CommitId("line/out/1", 4), items(3))
    table = DeltaTable(tmp_path / "t")
    assert table.version() == 2, "created, and one for each task"
    assert [table.transaction_version(f"line/out/{task}") for task in (0, 1)] == [4, 4]
    assert sorted(row["number"] for row in rows_of(tmp_path / "t")) == [1, 2, 3]


def test_of_the_rows_of_a_key_the_last_one_stays(tmp_path: Path) -> None:
    committer = DeltaSink(tmp_path / "t", key="number").open(CHANGES)
    committer.commit(
        CommitId("a/out/0", 1),
        changes((1, "a", "insert"), (2, "b", "insert"), (1, "c", "update"), (3, "d", "insert"), (3, "d", "delete")),
    )
    committer.commit(CommitId("a/out/0", 2), changes((2, "b", "delete"), (4, "e", "insert"), (1, "f", "update")))
    assert sorted(rows_of(tmp_path / "t"), key=lambda row: row["number"]) == [
        {"number": 1, "text": "f"},
        {"number": 4, "text": "e"},
    ]


class Keyed(Record):
    key: str | None
    value: int


def test_a_key_may_be_null(tmp_path: Path) -> None:
    schema = pa.schema([*Keyed.schema(), pa.field("_change", pa.string(), nullable=False)])
    committer = DeltaSink(tmp_path / "t", key="key").open(schema)
    for checkpoint, value in enumerate((5, 7), 1):
        rows = pa.Table.from_pylist([{"key": None, "value": value, "_change": "update"}], schema)
        committer.commit(CommitId("a/out/0", checkpoint), rows)
    assert rows_of(tmp_path / "t") == [{"key": None, "value": 7}]


def test_a_commit_that_another_writer_overtakes_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "t"
    committer = DeltaSink(place, key="number").open(CHANGES)
    committer.commit(CommitId("a/out/0", 1), changes((1, "a", "insert")))
    merge = delta_sink._DeltaCommitter._merge
    overtaken: list[int] = []

    def overtake(self: Any, table: DeltaTable, *more: Any) -> None:
        if len(overtaken) < 2:
            DeltaTable(place).update({"text": f"'by another {len(overtaken)}'"})
            overtaken.append(table.version())
        merge(self, table, *more)

    monkeypatch.setattr(delta_sink._DeltaCommitter, "_merge", overtake)
    committer.commit(CommitId("a/out/0", 2), changes((1, "b", "update")))
    assert overtaken == [1, 2]
    assert rows_of(place) == [{"number": 1, "text": "b"}]


def test_commits_that_are_always_overtaken_end_the_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def overtaken(*_: Any) -> None:
        raise CommitFailedError("Failed to commit transaction: concurrent delete")

    monkeypatch.setattr(overtaken_commits, "_PAUSE_S", 0.0)
    monkeypatch.setattr(delta_sink._DeltaCommitter, "_commit", overtaken)
    committer = DeltaSink(tmp_path / "t").open(SCHEMA)
    with pytest.raises(SinkError, match=r"other writers have overtaken 30 commits \(Failed to commit transaction"):
        committer.commit(CommitId("a/out/0", 1), items(1))


MISFITS = {
    "no column": (pa.table({"number": [1]}), r"has no column 'text'; it has number: add it to the table, or leave"),
    "another type": (
        pa.table({"number": ["1"], "text": ["a"]}),
        r"column 'number' is .*string.* in the table and .*long.* in the job: cast it before",
    ),
}


@pytest.mark.parametrize("name", MISFITS)
def test_a_table_that_does_not_fit_is_one_line(name: str, tmp_path: Path) -> None:
    rows, line = MISFITS[name]
    write_deltalake(tmp_path / "t", rows)
    with pytest.raises(SinkError, match=line) as raised:
        DeltaSink(tmp_path / "t").open(SCHEMA).commit(CommitId("a/out/0", 1), items(1))
    assert "\n" not in str(raised.value)
    assert DeltaTable(tmp_path / "t").version() == 0


def test_another_partitioning_is_one_line(tmp_path: Path) -> None:
    DeltaSink(tmp_path / "t").open(SCHEMA).commit(CommitId("a/out/0", 1), items(1))
    with pytest.raises(SinkError, match=r"is partitioned by nothing: omit partition_by, or name these columns"):
        DeltaSink(tmp_path / "t", partition_by="text").open(SCHEMA).commit(CommitId("a/out/0", 2), items(1))


@pytest.mark.parametrize("key", [(), ("Mixed Key",)])
def test_columns_that_the_rows_lack_are_null(key: tuple[str, ...], tmp_path: Path) -> None:
    write_deltalake(tmp_path / "t", pa.table({"Mixed Key": [1], "more": [2.5], "text": ["a"]}))
    types: dict[str, pa.DataType] = {"text": pa.string(), "Mixed Key": pa.int64()}
    schema = pa.schema(types)
    rows = pa.table({"text": ["b", "c"], "Mixed Key": [1, 2]}, schema)
    given = rows.append_column("_change", pa.array(["update", "insert"])) if key else rows
    DeltaSink(tmp_path / "t", key=key).open(given.schema).commit(CommitId("a/out/0", 1), given)
    found = sorted((row["Mixed Key"], row["text"], row["more"] or 0) for row in rows_of(tmp_path / "t"))
    assert found == ([(1, "b", 2.5), (2, "c", 0)] if key else [(1, "a", 2.5), (1, "b", 0), (2, "c", 0)])


def test_small_files_are_put_together_beside_the_commits(tmp_path: Path) -> None:
    committer = DeltaSink(tmp_path / "t", compact="0s").open(SCHEMA)
    for checkpoint in range(1, 4):
        committer.commit(CommitId("a/out/0", checkpoint), items(checkpoint))
        committer.close()
    operations = [one["operation"] for one in DeltaTable(tmp_path / "t").history()]
    assert "OPTIMIZE" in operations
    assert sorted(row["number"] for row in rows_of(tmp_path / "t")) == [1, 2, 3]


def test_mistakes_are_found_when_the_job_is_defined(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(GraphError, match="DeltaSink: key: no column 'x'; there are number, text"):
        DeltaSink(tmp_path, key="x").create(CHANGES)
    with pytest.raises(GraphError, match=r"DeltaSink: column 'd' is duration\[us\]: .*Invalid data type"):
        DeltaSink(tmp_path).create(pa.schema([pa.field("d", pa.duration("us"))]))
    monkeypatch.setitem(sys.modules, "deltalake", None)
    with pytest.raises(GraphError, match=r"DeltaSink needs deltalake: pip install 'clonos-py\[delta\]'"):
        DeltaSink(tmp_path)


def test_each_row_is_written_once_although_tasks_are_killed(tmp_path: Path) -> None:
    source = MemorySource(ITEMS, schema=Item, batch_rows=20)
    copy_with_kills(source, DeltaSink(tmp_path / "t"), tmp_path / "checkpoints")
    assert Counter(row["number"] for row in rows_of(tmp_path / "t")) == Counter(range(len(ITEMS)))
