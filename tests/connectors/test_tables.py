"""Upsert sinks: of each key the last row is visible, at any parallelism."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from clonos_py.connectors import UpsertFileSink, UpsertMemorySink, read_results
from clonos_py.model.connectors import SinkDefinition
from tests.connectors.hot import Hot, hot, prepared, start


@pytest.fixture(params=["files", "memory"])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[SinkDefinition, Callable[[], dict[int, str]]]:
    """An upsert sink, and how to see its prices by auction."""
    if request.param == "memory":
        memory = UpsertMemorySink("auction")
        return memory, lambda: {row.auction: str(row.price) for row in memory.rows(Hot)}
    folder = str(tmp_path / "out")
    return UpsertFileSink(folder, "auction"), lambda: {r["auction"]: r["price"] for r in read_results(folder)}


def test_the_last_row_of_a_key_wins(table: tuple[SinkDefinition, Callable[[], dict[int, str]]]) -> None:
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


def test_a_table_moves_to_another_parallelism(table: tuple[SinkDefinition, Callable[[], dict[int, str]]]) -> None:
    definition, prices = table
    old = start(definition)
    old.on_rows(hot(*range(100), price=1), 0)
    old.commit(prepared(old, 1))
    sinks = [start(definition, index=index, parallelism=2) for index in (0, 1)]
    for sink in sinks:
        sink.restore([old.snapshot()])
        sink.commit(prepared(sink, 2))
    expected = dict.fromkeys(range(100), "1.00")
    assert prices() == expected
    assert all(len(sink.snapshot().tables["latest"][0].rows) < 100 for sink in sinks)
    back = start(definition)
    back.restore([sink.snapshot() for sink in sinks])
    back.on_rows(hot(7, price=2), 0)
    back.commit(prepared(back, 3))
    assert prices() == expected | {7: "2.00"}


def test_an_unchanged_table_is_not_written_again(tmp_path: Path) -> None:
    sink = start(UpsertFileSink(str(tmp_path), "auction"))
    sink.on_rows(hot(1), 0)
    sink.commit(prepared(sink, 1))
    before = sink.snapshot().tables["latest"]
    assert sink.prepare(2) is None
    assert sink.snapshot().tables["latest"][0] is before[0]
