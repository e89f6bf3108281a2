"""The index of hashes: every pair, in order, for any batches."""

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clonos_py.columns import index as module
from clonos_py.columns.index import SortedIndex, expand, in_order
from clonos_py.columns.views import Words


@pytest.fixture(params=["searched", "by directory"], scope="module", autouse=True)
def runs(request: pytest.FixtureRequest) -> Iterator[None]:
    """The way of searching a run, which depends on its length; here it is fixed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_CACHED", 0 if request.param == "by directory" else 1 << 40)
        yield


HASHES = st.lists(st.integers(0, 12), max_size=30)


def spread(values: list[int]) -> Words:
    """Hashes whose upper halves differ as the values do."""
    return (np.array(values, np.uint64) << np.uint64(33)) | np.uint64(0x12345)


def pairs(index: SortedIndex, values: list[int]) -> list[tuple[int, int]]:
    positions, rows = index.probe(spread(values))
    return list(zip(positions.tolist(), rows.tolist(), strict=True))


@given(st.lists(HASHES, max_size=12), HASHES)
def test_a_probe_finds_every_row_with_the_hash_in_order(batches: list[list[int]], probe: list[int]) -> None:
    index = SortedIndex()
    for batch in batches:
        index.append(spread(batch))
    everything = [value for batch in batches for value in batch]
    expected = [(i, row) for i, value in enumerate(probe) for row, other in enumerate(everything) if other == value]
    assert pairs(index, probe) == expected
    assert index.rows == len(everything)


@given(st.lists(HASHES, max_size=8), HASHES, st.randoms(use_true_random=False), HASHES)
def test_compaction_renumbers_the_kept_rows(
    batches: list[list[int]], probe: list[int], random: object, later: list[int]
) -> None:
    index = SortedIndex()
    for batch in batches:
        index.append(spread(batch))
    everything = [value for batch in batches for value in batch]
    keep = [random.random() < 0.5 for _ in everything]  # type: ignore[attr-defined]
    index.compact(np.array(keep, bool))
    index.append(spread(later))
    kept = [value for value, k in zip(everything, keep, strict=True) if k] + later
    assert pairs(index, probe) == [
        (i, row) for i, value in enumerate(probe) for row, other in enumerate(kept) if other == value
    ]


@given(st.lists(HASHES, max_size=8), HASHES, st.data(), HASHES)
def test_the_first_rows_are_dropped_and_the_others_renumbered(
    batches: list[list[int]], probe: list[int], data: st.DataObject, later: list[int]
) -> None:
    index = SortedIndex()
    for batch in batches:
        index.append(spread(batch))
    everything = [value for batch in batches for value in batch]
    dropped = data.draw(st.integers(0, len(everything)))
    index.drop_first(dropped)
    index.append(spread(later))
    kept = everything[dropped:] + later
    assert index.rows == len(kept)
    assert pairs(index, probe) == [
        (i, row) for i, value in enumerate(probe) for row, other in enumerate(kept) if other == value
    ]


@pytest.mark.parametrize("narrow", [0, 10, 25])
def test_rows_are_found_in_any_range_of_hashes(narrow: int) -> None:
    random = np.random.default_rng(narrow)
    hashes = (random.integers(0, 1 << 64, 20_000, dtype=np.uint64) >> np.uint64(narrow)) + np.uint64(1 << 60)
    hashes[5_000:5_100] = hashes[7]
    index = SortedIndex()
    for part in np.split(hashes[:15_000], range(700, 15_000, 700)):
        index.append(part)
    asked = hashes[4_000::3]
    found = {(i, row) for i, row in zip(*(a.tolist() for a in index.probe(asked)), strict=True)}
    halves = (hashes >> np.uint64(32)).tolist()
    rows_of: dict[int, list[int]] = {}
    for row, half in enumerate(halves[:15_000]):
        rows_of.setdefault(half, []).append(row)
    assert found == {(i, row) for i, half in enumerate(halves[4_000::3]) for row in rows_of.get(half, ())}


def test_an_index_has_few_runs() -> None:
    index = SortedIndex()
    for i in range(1_000):
        index.append(spread([i % 7]))
    assert len(index._runs) < 6


def test_ranges_are_expanded_to_positions_and_places() -> None:
    positions, places = expand(np.array([5, 0, 9]), np.array([2, 0, 1]))
    assert positions.tolist() == [0, 0, 2]
    assert places.tolist() == [5, 6, 9]


def test_pairs_beyond_32_bits_are_ordered() -> None:
    left, right = in_order(np.array([1 << 40, 0, 1 << 40]), np.array([7, 1, 3]))
    assert left.tolist() == [0, 1 << 40, 1 << 40]
    assert right.tolist() == [1, 3, 7]
