"""The native index of hashes finds what the sorted one finds, in the same order."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clonos_py.columns.hash_index import HashIndex, Index, new_index
from clonos_py.columns.index import SortedIndex
from clonos_py.columns.kernels.library import MAX_ROWS, without_library
from clonos_py.columns.views import Bools, Words
from tests.unit.columns.native import kernels, needs_kernels

pytestmark = needs_kernels

ROUNDS = st.lists(
    st.tuples(
        st.lists(st.integers(0, 12), max_size=30),
        st.lists(st.integers(0, 400), max_size=10),
        st.booleans(),
        st.sampled_from(["compact", "drop first", "truncate", "neither"]),
        st.integers(0, 400),
    ),
    min_size=2,
    max_size=8,
)
"""Of each: what is appended, which rows are removed, whether all keys are then looked up, what is dropped, and how many
rows are left if it is truncated, or dropped from the start."""
EVERY = list(range(13))
WHOLE = (1 << 64) - 1


def spread(values: list[int]) -> Words:
    """Hashes whose upper halves differ as the values do, with the least and the greatest half among them."""
    found = (np.array(values, np.uint64) << np.uint64(33)) | np.uint64(0x12345)
    found[found >> np.uint64(33) == 12] = WHOLE
    return found


def pairs(index: Index, hashes: Words, kept: Bools | None) -> list[tuple[int, int]]:
    """What a probe finds, as pairs of kept rows."""
    positions, rows = index.probe(hashes, kept)
    assert positions.dtype == rows.dtype == np.int64
    return list(zip(positions.tolist(), rows.tolist(), strict=True))


@given(ROUNDS)
def test_any_steps_give_the_same_pairs_as_the_sorted_index(
    rounds: list[tuple[list[int], list[int], bool, str, int]],
) -> None:
    native, sorted_index = HashIndex(kernels()), SortedIndex()
    both: tuple[Index, Index] = (native, sorted_index)
    live = np.ones(0, bool)
    for appended, removed, asked, dropping, left in rounds:
        live = np.append(live, np.ones(len(appended), bool))
        for index in both:
            index.append(spread(appended), None if live.all() else live)
        if len(live):
            live[[number % len(live) for number in removed]] = False
        if asked:
            kept = None if live.all() else live
            assert pairs(native, spread(EVERY), kept) == pairs(sorted_index, spread(EVERY), kept)
        if dropping == "compact":
            for index in both:
                index.compact(live)
            live = np.ones(int(live.sum()), bool)
        elif dropping == "truncate":
            for index in both:
                index.truncate(left % (len(live) + 1))
            live = live[: left % (len(live) + 1)]
        elif dropping == "drop first":
            for index in both:
                index.drop_first(left % (len(live) + 1))
            live = live[left % (len(live) + 1) :]
        assert native.rows == sorted_index.rows == len(live)
    assert pairs(native, spread(EVERY), live) == pairs(sorted_index, spread(EVERY), live)


@pytest.mark.parametrize("narrow", [0, 12, 20])
def test_a_table_of_many_segments_gives_the_same_pairs(narrow: int) -> None:
    random = np.random.default_rng(narrow)
    hashes = (random.integers(0, 1 << 64, 90_000, dtype=np.uint64) >> np.uint64(narrow)) + np.uint64(1 << 59)
    hashes[5_000:5_100] = hashes[7]
    native, sorted_index = HashIndex(kernels()), SortedIndex()
    both: tuple[Index, Index] = (native, sorted_index)
    live = np.ones(len(hashes), bool)
    for part in np.split(np.arange(70_000), range(11_000, 70_000, 11_000)):
        for index in both:
            index.append(hashes[part], live)
        live[random.integers(0, part[-1], 2_000)] = False
        asked = hashes[random.integers(0, 90_000, 5_000)]
        assert pairs(native, asked, live) == pairs(sorted_index, asked, live)
    for index in both:
        index.truncate(30_011)
        index.append(hashes[70_000:])
        index.compact(live[:50_011])
    asked = hashes[::3]
    assert pairs(native, asked, None) == pairs(sorted_index, asked, None)
    assert native.rows == sorted_index.rows


def test_a_probe_with_more_pairs_than_keys_finds_all() -> None:
    native = HashIndex(kernels())
    native.append(spread([1] * 1_000))
    positions, rows = native.probe(spread([1, 2, 1]))
    assert positions.tolist() == [0] * 1_000 + [2] * 1_000
    assert rows.tolist() == [*range(1_000), *range(1_000)]


def test_rows_that_are_not_kept_are_dropped_when_they_are_met() -> None:
    native = HashIndex(kernels())
    live = np.ones(0, bool)
    for number in range(100):
        live = np.append(live, True)
        native.append(spread([1]), live)
        live[number] = number == 0  # the oldest stays
        native.probe(spread([1]), live)
    assert native.probe(spread([1]))[1].tolist() == [0]
    native.probe(spread([1]), np.zeros(100, bool))
    assert native.probe(spread([1]))[1].tolist() == []


def test_rows_at_the_beginning_that_are_not_kept_are_dropped_when_one_is_appended() -> None:
    native = HashIndex(kernels())
    for number in range(100):
        native.append(spread([1, 2]), np.arange(2 * number + 2) >= 2 * number)
    assert native.probe(spread([1, 2]))[1].tolist() == [198, 199]


def test_rows_that_are_dropped_from_the_start_leave_the_memory() -> None:
    native = HashIndex(kernels())
    most = 0
    for number in range(200):
        native.append(spread(list(range(1_000 * number, 1_000 * number + 1_000))))
        if number >= 20:
            native.drop_first(1_000)
        if number == 40:
            most = native.size_bytes
    assert native.rows == 20_000
    assert native.size_bytes <= most
    assert native.probe(spread([179_999, 180_000, 199_999]))[1].tolist() == [0, 19_999]


def test_the_memory_of_a_table_is_bounded() -> None:
    native = HashIndex(kernels())
    random = np.random.default_rng(3)
    for _ in range(12):
        native.append(random.integers(0, 1 << 64, 20_000, dtype=np.uint64))
        assert native.size_bytes < 40 * native.rows, native.rows
    before = native.size_bytes
    native.compact(np.arange(native.rows) < 1_000)
    assert native.size_bytes < before / 2
    assert HashIndex(kernels()).size_bytes < 1_000


def test_too_many_rows_and_arrays_of_another_form_are_refused_before_the_kernel_is_called() -> None:
    native = HashIndex(kernels())
    native.append(spread([1, 2, 3]))
    for index in (native, SortedIndex()):
        index.rows = MAX_ROWS - 1
        with pytest.raises(OverflowError, match=f"kernels number at most {MAX_ROWS}"):
            index.append(spread([1, 2]))
    native.rows = 3
    too_short = np.ones(2, bool)
    with pytest.raises(ValueError, match="a kernel takes 3 contiguous values of type bool"):
        native.probe(spread([1]), too_short)
    with pytest.raises(ValueError, match="a kernel takes 3 contiguous values of type bool"):
        native.compact(too_short)
    with pytest.raises(ValueError, match="of type uint64"):
        native.append(np.zeros(3, np.int64))
    assert native.probe(spread([1, 2, 3])[::2])[1].tolist() == [0, 2]


def test_an_index_is_not_copied() -> None:
    native = HashIndex(kernels())
    for copied in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="make it again from the rows"):
            copied(native)


def test_numpy_does_the_work_where_there_is_no_library() -> None:
    assert isinstance(new_index(), HashIndex)
    with without_library():
        assert isinstance(new_index(), SortedIndex)
