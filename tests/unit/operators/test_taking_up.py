"""A standby loads one snapshot after the other: lookups are right, and rows it already has are not indexed again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clonos_py.columns.hash_index import Index, new_index
from clonos_py.columns.keys import hash_rows
from clonos_py.model.state import Chunk, OperatorState
from clonos_py.operators import keyed_rows
from clonos_py.operators.history import History
from clonos_py.operators.keyed_chunks import with_groups
from clonos_py.operators.keyed_rows import KeyedRows

GROUPS = range(8)


def rows_of(keys: list[int], first: int) -> pa.RecordBatch:
    rows = pa.record_batch({"k": pa.array(keys, pa.int64()), "n": pa.array(range(first, first + len(keys)))})
    return with_groups(rows, ["k"], len(GROUPS))


def found(index: Any, take: Callable[[Any], pa.RecordBatch], keys: range) -> list[tuple[int, Any]]:
    positions, numbers = index(rows_of(list(keys), 0))
    if not len(numbers):
        return []
    taken = take(numbers)
    asked = [(keys[position], n) for position, n in zip(positions.tolist(), taken["n"].to_pylist(), strict=True)]
    return [pair for pair, key in zip(asked, taken["k"].to_pylist(), strict=True) if pair[0] == key]


@pytest.fixture(scope="module", params=["small chunks", "one chunk"])
def smallest_chunks(request: pytest.FixtureRequest) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "small chunks":
            patch.setattr(keyed_rows, "_CHUNK_ROWS", 4)
            patch.setattr(keyed_rows, "_DEAD_ROWS", 0)
        yield


STEPS = st.lists(
    st.tuples(st.lists(st.integers(0, 5), max_size=40), st.lists(st.integers(0, 5), max_size=2), st.booleans()),
    min_size=1,
    max_size=12,
)


@pytest.mark.usefixtures("smallest_chunks")
@given(STEPS)
def test_keyed_rows_are_those_of_each_snapshot(steps: list[tuple[list[int], list[int], bool]]) -> None:
    task, standby, count = KeyedRows(["k"]), KeyedRows(["k"]), 0
    for keys, removed, snapshot in steps:
        if keys:
            task.append(rows_of(keys, count))
            count += len(keys)
        if removed and task.rows:
            task.remove(task.distinct(np.sort(task.find(rows_of(sorted(set(removed)), 0))[1])))
            task.compact()
        if snapshot:
            standby.restore([task.snapshot({})], GROUPS)
            assert standby.live_row_count == task.live_row_count
            assert found(standby.find, standby.take, range(6)) == found(task.find, task.take, range(6))


def test_rows_that_died_after_a_snapshot_are_restored_by_a_rollback() -> None:
    rows = KeyedRows(["k"])
    rows.append(rows_of(list(range(40)), 0))
    before = rows.snapshot({})
    for new in range(50, 53):
        _, numbers = rows.find(rows_of([1, 2, 3], 0))
        rows.remove(numbers)
        rows.append(rows_of([new] * 10, 0))
    assert len(rows._indexes[("k",)].probe(hash_rows(rows_of([1], 0), ["k"]))[1]) == 0, "the test shows nothing"
    rows.restore([before], GROUPS)
    assert found(rows.find, rows.take, range(60)) == [(key, key) for key in range(40)]


def test_a_key_that_changed_often_has_few_candidates_in_the_index() -> None:
    rows = KeyedRows(["k"])
    rows.append(rows_of(list(range(100_000)), 0))
    hot = rows_of([1, 2, 3], 0)
    for _ in range(1_000):
        _, numbers = rows.find(hot)
        rows.remove(numbers)
        rows.append(hot)
        assert rows.compact() is None, "the test shows nothing"
    _, candidates = rows._indexes[("k",)].probe(hash_rows(hot, ["k"]))
    assert len(candidates) < 10
    assert len(rows.find(hot)[1]) == 3


@given(STEPS)
def test_history_is_that_of_each_snapshot(steps: list[tuple[list[int], list[int], bool]]) -> None:
    task, standby, count = History(["k"]), History(["k"]), 0

    def probe(history: History) -> Callable[[pa.RecordBatch], Any]:
        return lambda rows: history.probe(hash_rows(rows, ["k"]))

    for keys, _, snapshot in steps:
        rows = rows_of(keys, count)
        task.append(rows, hash_rows(rows, ["k"]))
        count += len(keys)
        if snapshot:
            standby.load(task.chunks())
            assert standby.rows == task.rows == count
            assert found(probe(standby), standby.take, range(6)) == found(probe(task), task.take, range(6))


@pytest.fixture
def indexed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of rows of all additions to an index."""
    counts: list[int] = []
    kind: Any = type(new_index())
    append = kind.append

    def counted(self: Index, hashes: Any, alive: Any = None) -> None:
        counts.append(len(hashes))
        append(self, hashes, alive)

    monkeypatch.setattr(kind, "append", counted)
    return counts


def test_only_new_chunks_are_indexed(indexed: list[int]) -> None:
    chunks = [Chunk(rows_of(list(range(size)), 0), f"c{size}") for size in (1_000, 500, 20)]
    history, rows = History(["k"]), KeyedRows(["k"])
    for kept in (chunks[:2], chunks, [*chunks[:2], Chunk(rows_of([1], 0), "other")], chunks[:1]):
        history.load(kept)
        dead = np.packbits(np.zeros(sum(c.rows.num_rows for c in kept), bool)).tobytes()
        rows.restore([OperatorState({"rows": kept}, {"rows.dead": dead})], GROUPS)
        assert history.rows == rows.rows == sum(chunk.rows.num_rows for chunk in kept)
    assert indexed == [1_000, 500] * 2 + [20] * 2 + [1] * 2


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keyed_rows, "_CHUNK_ROWS", 10)
    monkeypatch.setattr(keyed_rows, "_DEAD_ROWS", 4)


@pytest.mark.usefixtures("small_chunks")
def test_the_oldest_rows_are_removed_without_a_copy_of_the_others(indexed: list[int]) -> None:
    task, standby = KeyedRows(["k"]), KeyedRows(["k"])
    for first in range(0, 100, 10):
        task.append(rows_of(list(range(first, first + 10)), first))
    standby.restore([task.snapshot({})], GROUPS)
    before = task.snapshot({}).tables["rows"]
    task.remove(np.arange(7))
    assert task.compact() is None, "the first chunk has live rows"
    task.remove(np.arange(7, 25))
    kept = task.compact()
    assert kept is not None
    assert np.flatnonzero(kept).tolist() == list(range(20, 100))
    after = task.snapshot({}).tables["rows"]
    assert all(chunk is other for chunk, other in zip(after, before[2:], strict=True))
    del indexed[:]
    standby.restore([task.snapshot({})], GROUPS)
    assert not indexed, "nothing is indexed again"
    for rows in (task, standby):
        assert found(rows.find, rows.take, range(100)) == [(key, key) for key in range(25, 100)]
        assert rows.all_numbers().tolist() == list(range(5, 80))


@pytest.mark.usefixtures("small_chunks")
def test_a_compaction_keeps_chunks_without_dead_rows() -> None:
    rows = KeyedRows(["k"])
    for first in range(0, 60, 10):
        rows.append(rows_of(list(range(first, first + 10)), first))
    before = rows.snapshot({}).tables["rows"]
    rows.remove(np.arange(10, 45))
    assert rows.compact() is not None
    after = rows.snapshot({}).tables["rows"]
    assert [chunk.rows.num_rows for chunk in after] == [10, 15]
    assert after[0] is before[0]
    assert found(rows.find, rows.take, range(60)) == [(key, key) for key in (*range(10), *range(45, 60))]


@given(st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=30), min_size=1, max_size=8), st.data())
def test_a_truncated_index_has_the_first_rows(batches: list[list[int]], data: st.DataObject) -> None:
    whole = [rows_of(batch, 0) for batch in batches]
    hashes = [hash_rows(batch, ["k"]) for batch in whole]
    index = new_index()
    for batch in hashes:
        index.append(batch)
    kept = data.draw(st.integers(0, index.rows))
    index.truncate(kept)
    index.append(hashes[0])
    again = new_index()
    again.append(np.concatenate(hashes)[:kept])
    again.append(hashes[0])
    asked = hash_rows(rows_of(list(range(10)), 0), ["k"])
    assert index.rows == again.rows
    assert [part.tolist() for part in index.probe(asked)] == [part.tolist() for part in again.probe(asked)]
