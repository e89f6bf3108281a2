"""Native kernels give the same bits as NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clonos_py.columns.distinct import first_rows, reference_first_rows
from clonos_py.columns.grouping import Groups, group, group_integers, numbered_integers
from clonos_py.columns.kernels.library import MAX_ROWS, check_rows, made, without_library
from clonos_py.columns.keys import hash_array, hash_rows, mix
from clonos_py.columns.offsets import SPARE_SLOTS
from clonos_py.columns.ordering import sorted_rows, stable_order
from clonos_py.columns.views import Ints
from tests.unit.columns.native import needs_kernels

pytestmark = needs_kernels

LEAST, GREATEST = -(2**63), 2**63 - 1
INTEGERS = st.one_of(
    st.integers(-3, 3), st.integers(0, 100_000), st.sampled_from([LEAST, LEAST + 1, GREATEST, 0, 2**32, 2**40])
)
"""A few close to each other, some farther apart, and extremes."""


@st.composite
def arrays(draw: st.DrawFn) -> Ints:
    """Integers with duplicates, or a part of an array that is not contiguous."""
    values = np.array(draw(st.lists(INTEGERS, max_size=60)), np.int64)
    return values[::2] if draw(st.booleans()) else values


LARGE = [
    np.random.default_rng(number).integers(low, high, rows)
    for number, (low, high, rows) in enumerate(
        [
            (0, 9, 5_000), (0, 60_000, 5_000), (-(2**20), 2**20, 5_000), (-(2**31), 2**31, 5_000),
            (-(2**40), 2**40, 5_000), (LEAST, GREATEST, 5_000), (0, 2, 1_000), (5, 6, 70_000), (0, 2**14, 70_000),
        ]
    )
]  # fmt: skip
LARGE += [np.sort(LARGE[2]), np.repeat(LARGE[5][:100], 40), np.sort(LARGE[5])[::-1].copy()]


def assert_same(found: Groups, expected: Groups) -> None:
    assert found.size == expected.size
    assert found.ids.dtype == found.first.dtype == np.int64
    assert found.ids.tolist() == expected.ids.tolist()
    assert found.first.tolist() == expected.first.tolist()


@given(arrays())
def test_equal_integers_get_the_same_numbers(values: Ints) -> None:
    assert_same(group_integers(values), numbered_integers(values))


@pytest.mark.parametrize("values", LARGE)
def test_equal_integers_of_a_large_batch_get_the_same_numbers(values: Ints) -> None:
    assert_same(group_integers(values), numbered_integers(values))
    other = np.arange(len(values)) // 7 % 50
    found = group([values, other, pa.array(values[::-1])], len(values))
    with without_library():
        assert_same(found, group([values, other, pa.array(values[::-1])], len(values)))


@pytest.mark.parametrize("beyond", [-1, 0, 1])
def test_integers_at_the_limit_of_a_narrow_range_get_the_same_numbers(beyond: int) -> None:
    widest = 4 * 3 + SPARE_SLOTS - 1
    values = np.array([widest + beyond, 0, 5])
    assert_same(group_integers(values), numbered_integers(values))


@given(arrays(), st.integers(1, 5))
def test_rows_that_are_equal_in_several_columns_get_the_same_numbers(values: Ints, parts: int) -> None:
    columns = [values, np.arange(len(values)) % parts, values % 3]
    found = group(columns, len(values))
    with without_library():
        assert_same(found, group(columns, len(values)))


@given(arrays())
def test_rows_have_the_same_order(values: Ints) -> None:
    assert stable_order(values).tolist() == sorted_rows(values).tolist()


@pytest.mark.parametrize("values", LARGE)
def test_rows_of_a_large_batch_have_the_same_order(values: Ints) -> None:
    found = stable_order(values)
    assert found.dtype == np.int64
    assert np.array_equal(found, np.argsort(values, kind="stable"))
    assert np.array_equal(found, sorted_rows(values))


VALUES: dict[pa.DataType, st.SearchStrategy[object]] = {
    pa.int64(): st.sampled_from([LEAST, -1, 0, 1, 5, GREATEST]),
    pa.int16(): st.integers(-2, 2),
    pa.uint64(): st.sampled_from([0, 1, 2**64 - 1]),
    pa.timestamp("us"): st.integers(0, 3),
    pa.string(): st.sampled_from(["", "a", "b", "ab"]),
    pa.float64(): st.sampled_from([0.0, -0.0, 1.5, float("nan")]),
}


@given(st.data(), st.sampled_from(list(VALUES)))
def test_distinct_values_of_groups_are_those_of_the_same_rows(data: st.DataObject, kind: pa.DataType) -> None:
    pairs = data.draw(st.lists(st.tuples(st.integers(0, 60), st.none() | VALUES[kind]), max_size=40))
    ids = np.array([pair[0] for pair in pairs], np.int64)
    assert_same_rows(ids, 61, pa.array([pair[1] for pair in pairs], kind))


def test_distinct_values_of_many_rows_are_those_of_the_same_rows() -> None:
    random = np.random.default_rng(1)
    drawn = random.integers(0, 1 << 60, 500)[random.integers(0, 500, 20_000)]
    assert_same_rows(random.integers(0, 300, 20_000), 300, pa.array(drawn, mask=random.random(20_000) < 0.3))


def test_every_two_groups_with_the_same_value_have_it() -> None:
    """However close to each other a hash table puts them."""
    for one in range(20):
        for other in range(20):
            assert_same_rows(np.array([one, other]), 20, pa.array([7, 7]))


def assert_same_rows(ids: Ints, size: int, values: Any) -> None:
    found, expected = first_rows(ids, size, values), reference_first_rows(ids, size, values)
    assert found[0].tolist() == expected[0].tolist()
    assert found[1].tolist() == expected[1].tolist()


@pytest.mark.parametrize("wrong", [-1, 2, 2**40])
def test_a_group_that_is_out_of_range_is_refused(wrong: int) -> None:
    with pytest.raises(IndexError, match="a row has a group that is not one of 2"):
        first_rows(np.array([0, wrong]), 2, pa.array([1, 2]))


TEXTS = st.lists(st.none() | st.binary(max_size=40), max_size=30)


@given(TEXTS, st.integers(0, 3), st.sampled_from([pa.binary(), pa.large_binary()]))
def test_texts_have_the_same_hash(texts: list[bytes | None], skipped: int, kind: pa.DataType) -> None:
    column: Any = pa.array(texts, kind).slice(skipped)
    found = hash_array(column)
    with without_library():
        assert found.tolist() == hash_array(column).tolist()


@given(arrays(), TEXTS)
def test_rows_of_several_columns_have_the_same_hash(values: Ints, texts: list[bytes | None]) -> None:
    rows = min(len(values), len(texts))
    batch = pa.record_batch(
        {"a": pa.array(values[:rows]), "b": pa.array(texts[:rows], pa.binary()), "c": values[:rows] * 0.5}
    )
    found = hash_rows(batch, ["a", "b", "c"])
    with without_library():
        assert found.tolist() == hash_rows(batch, ["a", "b", "c"]).tolist()


def test_words_that_are_not_contiguous_are_mixed_in_place() -> None:
    words = np.arange(10, dtype=np.uint64)
    expected = mix(words[::2].copy())
    mix(words[::2])
    assert words[::2].tolist() == expected.tolist()
    assert words[1::2].tolist() == [1, 3, 5, 7, 9]


@pytest.mark.parametrize(("bounds", "value"), [([0, 9, 6], 0), ([0, 5, 3], 1), ([0, -2, 6], 0)])
def test_a_text_that_does_not_lie_in_the_bytes_of_its_column_is_refused(bounds: list[int], value: int) -> None:
    buffers = [None, pa.py_buffer(np.array(bounds, np.int32).tobytes()), pa.py_buffer(b"abcdef")]
    column: Any = pa.Array.from_buffers(pa.string(), 2, buffers)
    with pytest.raises(
        ValueError, match=f"value {value} of a column of type string does not lie in the column's bytes"
    ):
        hash_array(column)


def test_too_many_rows_are_refused_before_a_kernel_is_called() -> None:
    check_rows(MAX_ROWS)
    with pytest.raises(OverflowError, match="4294967295 rows in one batch: kernels number at most 4294967294"):
        check_rows(MAX_ROWS + 1)


def test_a_kernel_without_memory_is_an_error() -> None:
    assert made(0) == 0
    with pytest.raises(MemoryError, match="a native kernel needs more memory than there is"):
        made(-1)
