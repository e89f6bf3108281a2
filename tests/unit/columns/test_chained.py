"""The running checksum of rows: equal for equal rows, whatever their buffers hold besides."""

from __future__ import annotations

import datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clonos_py.columns.chained import _BUFFERS, RunningChecksum, _ColumnSum, chained

COLUMNS: list[tuple[Any, list[Any]]] = [
    (pa.int64(), [3, -1, 2**62, 0]),
    (pa.float64(), [0.5, float("inf"), -0.0, 1e300]),
    (pa.bool_(), [True, False, True, True]),
    (pa.string(), ["", "a", "bcd", "\u00e9"]),
    (pa.binary(), [b"\0", b"", b"abc", b"d"]),
    (pa.timestamp("us", "UTC"), [0, 1, -5, 10**15]),
    (pa.date32(), [datetime.date(2020, 1, 1), datetime.date(1960, 1, 1), datetime.date(1970, 1, 1), None]),
    (pa.decimal128(20, 3), [None, 1, 2, 3]),
    (pa.list_(pa.int64()), [[1, 2], [], [3], [4, None]]),
    (pa.struct([("a", pa.int64()), ("b", pa.string())]), [{"a": 1, "b": "x"}, {"a": None, "b": ""}, None, None]),
]


def batch(*columns: Any) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(list(columns), names=[f"c{n}" for n in range(len(columns))])


@pytest.mark.parametrize(("kind", "values"), COLUMNS, ids=[str(kind) for kind, _ in COLUMNS])
def test_a_slice_has_the_checksum_of_its_rows(kind: Any, values: list[Any]) -> None:
    whole = batch(pa.array(values[2:] + values + values[:2], kind))
    assert chained(7, whole.slice(2, 4)) == chained(7, batch(pa.array(values, kind)))


@pytest.mark.parametrize(("kind", "values"), COLUMNS, ids=[str(kind) for kind, _ in COLUMNS])
def test_other_rows_have_another_checksum(kind: Any, values: list[Any]) -> None:
    rows = batch(pa.array(values, kind))
    assert chained(7, rows) != chained(8, rows), "of what was before"
    assert chained(7, rows) != chained(7, rows.slice(0, 3)), "of fewer rows"
    assert chained(7, rows) != chained(7, rows.take(pa.array([1, 0, 2, 3]))), "of another order"
    nulls = pa.array([values[0], None, values[2], values[3]], kind)
    assert chained(7, rows) != chained(7, batch(nulls)), "of nulls"


@pytest.mark.parametrize(("kind", "values"), COLUMNS, ids=[str(kind) for kind, _ in COLUMNS])
def test_columns_beside_others_are_found(kind: Any, values: list[Any]) -> None:
    """Also behind one of another kind, which may have any number of buffers."""
    rest = [pa.array(values[2:] + values + values[:2], kind), pa.array(range(8)), pa.array(range(8), pa.int16())]
    whole = pa.concat_batches([batch(*rest).slice(2, 4)])  # type: ignore[attr-defined]
    assert chained(7, batch(*rest).slice(2, 4)) == chained(7, whole)
    other = whole.set_column(1, whole.field(1), pa.array([2, 3, 4, 6]))
    assert chained(7, other) != chained(7, whole)


@pytest.mark.parametrize("kind", [kind for kind, _ in COLUMNS if kind.id in _BUFFERS], ids=str)
def test_an_array_has_as_many_buffers_as_its_kind(kind: Any) -> None:
    assert len(pa.array([None], kind).buffers()) == _BUFFERS[kind.id]


def test_no_column_is_looked_at_whose_buffers_are_its_values(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_at: list[Any] = []
    monkeypatch.setattr(_ColumnSum, "add", lambda self, column: looked_at.append(column.to_pylist()))
    rows = batch(pa.array(["a", "b"]), pa.array([0.5, 1.5]), pa.array([1, 2]), pa.array([1, None]))
    RunningChecksum()._add(rows)
    assert looked_at == [["a", "b"], [1, None]]


def test_a_validity_buffer_without_nulls_does_not_count() -> None:
    values = pa.array([1, 2, 3], pa.int64())
    marked = pa.Array.from_buffers(pa.int64(), 3, [pa.py_buffer(b"\xff"), values.buffers()[1]])
    assert marked.buffers()[0] is not None
    assert chained(0, batch(marked)) == chained(0, batch(values))


def test_values_in_the_place_of_nulls_do_not_count() -> None:
    def with_hidden(hidden: int) -> pa.RecordBatch:
        content = pa.py_buffer(np.array([1, hidden, 3], np.int64).tobytes())
        return batch(pa.Array.from_buffers(pa.int64(), 3, [pa.py_buffer(b"\x05"), content]))

    assert chained(0, with_hidden(8)) == chained(0, with_hidden(9)) == chained(0, batch(pa.array([1, None, 3])))


def test_unused_bits_of_booleans_do_not_count() -> None:
    def with_rest(rest: bytes) -> pa.RecordBatch:
        return batch(pa.Array.from_buffers(pa.bool_(), 3, [None, pa.py_buffer(rest)]))

    assert chained(0, with_rest(b"\x05")) == chained(0, with_rest(b"\xf5"))


def test_nulls_of_one_column_are_not_those_of_another() -> None:
    some, none = pa.array([1, None]), pa.array([1, 2])
    empty = pa.array([None, None], pa.int64())
    found = {chained(0, batch(*columns)) for columns in ([some, none], [none, some], [some, some], [empty, none])}
    assert len(found) == 4


def test_a_batch_without_columns_counts_its_rows() -> None:
    rows = batch(pa.array([1, 2, 3])).select([])
    assert chained(0, rows) != chained(0, rows.slice(0, 2))


def test_the_checksum_is_the_same_in_every_version() -> None:
    """It is stored in checkpoints: another value would look like a replay that diverges."""
    assert chained(0, batch(pa.array([1, None, 3]), pa.array(["a", "b", ""]))) == 9_606_083_105_539_201_674


@given(st.lists(st.lists(st.one_of(st.none(), st.integers(-5, 5)), max_size=5), max_size=4))
def test_the_order_of_batches_counts(parts: list[list[int | None]]) -> None:
    def of(order: list[list[int | None]]) -> int:
        found = 0
        for part in order:
            found = chained(found, batch(pa.array(part, pa.int64())))
        return found

    assert (of(parts) == of(parts[::-1])) == (parts == parts[::-1])


@given(st.lists(st.lists(st.integers(-5, 5), min_size=1, max_size=5), max_size=8), st.integers(0, 8))
def test_a_running_checksum_depends_on_where_it_is_settled_and_not_on_batches(
    parts: list[list[int]], settled: int
) -> None:
    def of(order: list[list[int]]) -> RunningChecksum:
        running = RunningChecksum()
        for part in order:
            running.add(batch(pa.array(part, pa.int64())))
            assert running.value == running.value
        return running

    first = of(parts[:settled])
    first.settle()
    again = RunningChecksum(first.value)
    rest = [value for part in parts[settled:] for value in part]
    for part in parts[settled:]:
        first.add(batch(pa.array(part, pa.int64())))
    if rest:
        again.add(batch(pa.array(rest, pa.int64())))
    assert first.value == again.value


def test_a_running_checksum_keeps_few_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("clonos_py.columns.chained._SMALL_PLAIN_ROWS", 3)
    monkeypatch.setattr("clonos_py.columns.chained._GATHERED_ROWS", 4)
    added: list[int] = []
    monkeypatch.setattr(RunningChecksum, "_add", lambda self, rows: added.append(rows.num_rows))
    running = RunningChecksum()
    for rows in (2, 2, 1, 3, 4, 2, 2):
        running.add(batch(pa.array(range(rows))))
    assert added == [4, 1, 3, 4, 4], "small ones together, large ones alone, in order"


_NESTED = (pa.list_(pa.struct([("a", pa.string())])), [[{"a": "x"}], [], [None], [{"a": None}]])


@pytest.mark.parametrize(("kind", "values"), [*COLUMNS, _NESTED], ids=str)
@given(st.lists(st.integers(0, 4), max_size=12), st.lists(st.integers(0, 5), max_size=12), st.integers(0, 4))
def test_batches_do_not_count(kind: Any, values: list[Any], picked: list[int], sizes: list[int], small: int) -> None:
    """However they are cut, and whichever of them are small."""
    rows = [[*values, None][number] for number in [*picked, 0]]
    whole = batch(pa.array(rows, kind), pa.array(range(len(rows))))
    running, at = RunningChecksum(3), 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("clonos_py.columns.chained._SMALL_ROWS", small)
        patch.setattr("clonos_py.columns.chained._SMALL_PLAIN_ROWS", small)
        patch.setattr("clonos_py.columns.chained._GATHERED_ROWS", 4)
        for size in [*sizes, len(rows)]:
            running.add(whole.slice(at, size))
            at += size
    assert running.value == chained(3, whole)
