"""Rows of several batches are put together natively with the same bytes as by Arrow."""

from __future__ import annotations

import decimal
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clonos_py.columns import gathering
from clonos_py.columns.compact import compact
from clonos_py.columns.gathering import ChunkColumns, gathered, taken
from clonos_py.columns.kernels.library import without_library
from clonos_py.columns.views import Ints
from tests.unit.columns.native import needs_kernels

pytestmark = needs_kernels


@pytest.fixture(autouse=True, scope="module")
def few_rows() -> Iterator[None]:
    """Kernels work for any number of rows."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gathering, "_ROWS_FOR_EACH_CHUNK", 0)
        yield


TYPES: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "i8": (pa.int8(), st.integers(-128, 127)),
    "u16": (pa.uint16(), st.integers(0, 2**16 - 1)),
    "i32": (pa.int32(), st.integers(-(2**31), 2**31 - 1)),
    "f64": (pa.float64(), st.floats()),
    "time": (pa.timestamp("us"), st.integers(-(2**50), 2**50)),
    "money": (pa.decimal128(20, 2), st.integers(-(10**18), 10**18).map(lambda value: decimal.Decimal(value) / 100)),
    "flag": (pa.bool_(), st.booleans()),
    "text": (pa.string(), st.text(max_size=12)),
    "bytes": (pa.binary(), st.binary(max_size=30)),
    "long": (pa.large_string(), st.text(max_size=5)),
    "list": (pa.list_(pa.int64()), st.lists(st.integers(0, 9), max_size=3)),
    "fixed": (pa.binary(3), st.binary(min_size=3, max_size=3)),
}


@st.composite
def chunks(draw: st.DrawFn) -> list[pa.RecordBatch]:
    """Batches of some columns, some of which have nulls, and some of which are slices."""
    names = draw(st.lists(st.sampled_from(sorted(TYPES)), min_size=1, max_size=4, unique=True))
    found = []
    for _ in range(draw(st.integers(1, 3))):
        rows = draw(st.integers(0, 8))
        nulls = draw(st.booleans())
        columns = {}
        for name in names:
            kind, values = TYPES[name]
            drawn = draw(st.lists(st.none() | values if nulls else values, min_size=rows, max_size=rows))
            columns[name] = pa.array(drawn, kind)
        skipped = draw(st.integers(0, rows))
        found.append(pa.record_batch(columns).slice(skipped))
    return found


def starts_of(batches: list[pa.RecordBatch]) -> Ints:
    return np.cumsum([0, *(batch.num_rows for batch in batches)])


def assert_same_bytes(batches: list[pa.RecordBatch], numbers: Ints, known: ChunkColumns | None = None) -> None:
    found = gathered(batches, starts_of(batches), numbers, known=known)
    expected = taken(batches, starts_of(batches), numbers)
    found.validate(full=True)
    assert found.schema.equals(expected.schema)
    assert compact(found).serialize().equals(compact(expected).serialize())


@given(chunks(), st.lists(st.integers(0, 100), max_size=20))
def test_rows_of_any_columns_have_the_same_bytes(batches: list[pa.RecordBatch], drawn: list[int]) -> None:
    rows = int(starts_of(batches)[-1])
    assert_same_bytes(batches, np.array([number % rows for number in drawn] if rows else [], np.int64))


@given(chunks(), st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.booleans()), max_size=6), st.data())
def test_chunks_that_come_and_go_have_the_same_bytes(
    batches: list[pa.RecordBatch], steps: list[tuple[int, int, bool]], data: st.DataObject
) -> None:
    known, there = ChunkColumns(), list(batches)
    for start, count, forgotten in steps:
        added = [batch.slice(data.draw(st.integers(0, batch.num_rows))) for batch in batches[:count]]
        there[start : start + count] = added
        if forgotten:
            known.forget()
        rows = int(starts_of(there)[-1]) if there else 0
        drawn = data.draw(st.lists(st.integers(0, rows - 1), max_size=6)) if rows else []
        if there:
            assert_same_bytes(there, np.array(drawn, np.int64), known)


def test_the_memory_of_dropped_chunks_is_not_held() -> None:
    known = ChunkColumns()
    batches = [pa.record_batch({"a": np.arange(1_000) + number}) for number in range(3)]
    gathered(batches, starts_of(batches), np.arange(3_000), known=known)
    counts = [list(map(sys.getrefcount, batches))]
    gathered(batches[:2], starts_of(batches[:2]), np.arange(2_000), known=known)
    counts.append(list(map(sys.getrefcount, batches)))
    known.forget()
    counts.append(list(map(sys.getrefcount, batches)))
    assert counts == [[3, 3, 3], [3, 3, 2], [2, 2, 2]]


@pytest.mark.parametrize("batches", [1, 7])
def test_many_rows_have_the_same_bytes(batches: int) -> None:
    random = np.random.default_rng(batches)
    whole = [
        pa.record_batch(
            {
                "a": random.integers(0, 1 << 60, 900),
                "b": pa.array([f"{'x' * int(size)}" for size in random.integers(0, 40, 900)]),
                "c": pa.array(random.integers(0, 99, 900), mask=random.random(900) < 0.3),
                "d": pa.array(random.random(900) < 0.5, mask=random.random(900) < 0.3),
                "e": pa.array([None if size < 9 else "y" * int(size) for size in random.integers(0, 40, 900)]),
            }
        )
        for _ in range(batches)
    ]
    assert_same_bytes(whole, random.integers(0, 900 * batches, 2_000))
    assert_same_bytes(whole, np.arange(0, 900 * batches, 2)[::-1])


def test_what_lies_in_the_places_of_nulls_is_not_copied() -> None:
    whole = pa.record_batch({"a": ["abc", "d", "efg"], "b": [1, 2, 3], "c": [True, True, False]})
    missing = pa.py_buffer(bytes([0b101]))
    hidden = [pa.Array.from_buffers(c.type, 3, [missing, *c.buffers()[1:]]) for c in whole.columns]
    batches = [whole, pa.RecordBatch.from_arrays(hidden, schema=whole.schema)]
    assert_same_bytes(batches, np.array([4, 3, 1, 4, 5, 2]))


def test_a_row_that_is_not_there_is_refused() -> None:
    batches = [pa.record_batch({"a": [1, 2]}), pa.record_batch({"a": [3]})]
    for wrong in (3, -1, 2**40):
        with pytest.raises(IndexError, match=f"there is no row {wrong}: there are 3"):
            gathered(batches, starts_of(batches), np.array([0, wrong]))


@pytest.mark.parametrize(("bounds", "value"), [([0, 9, 6], 0), ([0, 5, 3], 1), ([0, -2, 6], 1)])
def test_a_text_that_does_not_lie_in_the_bytes_of_its_column_is_refused(bounds: list[int], value: int) -> None:
    buffers = [None, pa.py_buffer(np.array(bounds, np.int32).tobytes()), pa.py_buffer(b"abcdef")]
    column: Any = pa.Array.from_buffers(pa.string(), 2, buffers)
    batches = [pa.record_batch({"a": column})]
    with pytest.raises(ValueError, match="a text of a column does not lie in the column's bytes"):
        gathered(batches, starts_of(batches), np.array([value]))


def test_texts_with_more_bytes_than_an_array_holds_are_left_to_arrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gathering, "_MOST_BYTES", 5)
    batches = [pa.record_batch({"a": ["abc", "def"], "b": [1, 2]})]
    assert_same_bytes(batches, np.array([1, 0]))


def test_only_named_columns_are_there_and_each_once() -> None:
    batches = [pa.record_batch({"a": [1], "b": ["x"], "c": [[1]]}), pa.record_batch({"a": [2], "b": ["y"], "c": [[2]]})]
    for named in (["c", "a", "c"], ["b"], ["c"], []):
        found = gathered(batches, starts_of(batches), np.array([1, 0]), named)
        assert found.equals(taken(batches, starts_of(batches), np.array([1, 0]), named))
        assert found.num_rows == 2
        assert found.schema.names == list(dict.fromkeys(named))


def test_arrow_does_the_work_where_there_is_no_library() -> None:
    batches = [pa.record_batch({"a": [1, 2]}), pa.record_batch({"a": [3]})]
    with without_library():
        assert gathered(batches, starts_of(batches), np.array([2, 0])).column("a").to_pylist() == [3, 1]
