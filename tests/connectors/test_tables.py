"""Upsert sinks: of each key the last row is visible, at any parallelism."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from clonos_py.columns.views import concat
from clonos_py.connectors import FileSink, UpsertFileSink, UpsertMemorySink, read_results
from clonos_py.model.connectors import SinkDefinition
from tests.connectors.hot import Hot, hot, prepared, start


@pytest.fixture(params=["files", "memory"])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[SinkDefinition, Callable[[], dict[int, str]]]:
    """An upsert sink, and a function that returns its prices by auction."""
    if request.param == "memory":
        memory = UpsertMemorySink("auction")
        return memory, lambda: {row.auction: str(row.price) for row in memory.rows(Hot)}
    folder = str(tmp_path / "out")
    return UpsertFileSink(folder, "auction"), lambda: {r["auction"]: r["price"] for r in read_results(folder)}


def test_the_last_row_of_a_key_is_visible(table: tuple[SinkDefinition, Callable[[], dict[int, str]]]) -> None:
    definition, prices = table
    sink = start(definition)
    sink.on_rows(hot(1, 2, price=1), 0)
    sink.on_rows(hot(2, price=2), 0)
    assert prices() == {}
    sink.commit(prepared(sink, 1))
    assert prices() == {1: "1.00", 2: "2.00"}
    sink.on_rows(hot(1, 3, price=3), 0)
    aborted = sink.prepare(2)
    sink.on_rows(hot(3, price=4), 0)
    assert aborted is not None
    for committable in (aborted, prepared(sink, 3), aborted):
        sink.commit(committable)
    assert prices() == {1: "3.00", 2: "2.00", 3: "4.00"}


def changed(*rows: tuple[str, int, int]) -> pa.RecordBatch:
    """Kinds of changes, auctions, and their prices."""
    kinds, auctions, prices = zip(*rows, strict=True)
    batch = concat([hot(auction, price=price) for auction, price in zip(auctions, prices, strict=True)])
    return batch.append_column(pa.field("_change", pa.string(), nullable=False), pa.array(kinds))


def test_a_deleted_row_is_not_visible(table: tuple[SinkDefinition, Callable[[], dict[int, str]]]) -> None:
    definition, prices = table
    schema = changed(("insert", 1, 1)).schema
    sink = start(definition, schema=schema)
    sink.on_rows(changed(("insert", 1, 1), ("insert", 2, 2), ("update", 1, 3), ("delete", 2, 2)), 0)
    sink.on_rows(changed(("insert", 3, 4), ("delete", 1, 3)), 0)
    sink.commit(prepared(sink, 1))
    assert prices() == {3: "4.00"}
    successor = start(definition, schema=schema)
    successor.restore([sink.snapshot()])
    successor.on_rows(changed(("delete", 3, 4), ("insert", 1, 5)), 0)
    successor.commit(prepared(successor, 2))
    assert prices() == {1: "5.00"}


def test_a_table_moves_to_another_parallelism(table: tuple[SinkDefinition, Callable[[], dict[int, str]]]) -> None:
    definition, prices = table
    old = start(definition)
    old.on_rows(hot(*range(100), price=1), 0)
    old.commit(prepared(old, 1))
    sinks = [start(definition, index=index, parallelism=2) for index in (0, 1)]
    second = []
    for sink in sinks:
        sink.restore([old.snapshot()])
        second.append(prepared(sink, 2))
        sink.commit(second[-1])
    expected = dict.fromkeys(range(100), "1.00")
    assert prices() == expected
    assert all(len(sink.snapshot().tables["latest"][0].rows) < 100 for sink in sinks)
    back = start(definition)
    back.loaded([sink.snapshot() for sink in sinks])
    back.commit_all(second)
    assert prices() == expected, "rows of a former task stay until other tasks have written them"
    back.restore([sink.snapshot() for sink in sinks])
    back.on_rows(hot(7, price=2), 0)
    back.commit(prepared(back, 3))
    assert prices() == expected | {7: "2.00"}


def test_tables_of_former_tasks_are_removed_even_after_a_death_midway(tmp_path: Path) -> None:
    wide = [start(UpsertFileSink(str(tmp_path), "auction"), index=index, parallelism=4) for index in range(4)]
    for sink in wide:
        sink.on_rows(hot(sink.ctx.task.index), 0)
        sink.commit(prepared(sink, 1))
    (tmp_path / "out-1.latest.jsonl").unlink()  # as the process did before it died
    others = ["another-3.latest.jsonl", "out-3.latest.csv", "probe-x.latest.jsonl"]
    for name in others:
        (tmp_path / name).touch()
    narrow = start(UpsertFileSink(str(tmp_path), "auction"))
    narrow.restore([sink.snapshot() for sink in wide])
    narrow.commit(prepared(narrow, 2))
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_file()) == sorted([*others, "out-0.latest.jsonl"])


def test_an_unchanged_table_is_not_written_again(tmp_path: Path) -> None:
    sink = start(UpsertFileSink(str(tmp_path), "auction"))
    sink.on_rows(hot(1), 0)
    sink.commit(prepared(sink, 1))
    before = sink.snapshot().tables["latest"]
    assert sink.prepare(2) is None
    assert sink.snapshot().tables["latest"][0] is before[0]


def test_results_of_a_task_are_read_in_the_order_of_writing(tmp_path: Path) -> None:
    sink = start(FileSink(str(tmp_path)))
    for checkpoint in range(1, 12):
        sink.on_rows(hot(checkpoint), 0)
        sink.commit(prepared(sink, checkpoint))
    assert [row["auction"] for row in read_results(str(tmp_path))] == list(range(1, 12))
