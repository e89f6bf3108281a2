"""Invalid checkpoints from times alone: how many to expect of a failure after 48 s, with checkpoints every 5 s
+-20%."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import mean

import pytest

from clonos_py.bench.checkmate.invalid import Levels, checkpoint_times, invalid_share

INTERVAL_US, FAILURE_US = 5_000_000, 48_000_000


def expected_share(parallelism: int, levels: int, shuffled: bool = True, seeds: int = 40) -> float:
    graph = Levels(parallelism, [shuffled] * (levels - 1))
    return mean(
        invalid_share(checkpoint_times(graph.tasks, INTERVAL_US, FAILURE_US, seed), graph) for seed in range(seeds)
    )


def level_by_level(times: Mapping[int, Sequence[int]], graph: Levels) -> float:
    """Each level goes back to its newest checkpoints that are not later than any on the line of its senders."""
    width, invalid = graph.parallelism, 0
    before = [max(times[task], default=0) for task in range(width)]
    for level, shuffled in enumerate(graph.shuffles, 1):
        bounds = [min(before)] * width if shuffled else before
        before = []
        for task, bound in zip(range(level * width, (level + 1) * width), bounds, strict=True):
            kept = [at for at in times[task] if at <= bound]
            invalid += len(times[task]) - len(kept)
            before.append(max(kept, default=0))
    return invalid / sum(map(len, times.values()))


def test_intervals_vary_by_a_fifth_and_depend_only_on_the_seed() -> None:
    times = checkpoint_times(range(100), INTERVAL_US, FAILURE_US, 7)
    waits = [later - earlier for taken in times.values() for earlier, later in pairwise([0, *taken])]
    assert 4_000_000 <= min(waits) < 4_100_000
    assert 5_900_000 < max(waits) <= 6_000_000
    assert all(FAILURE_US - 6_000_000 <= taken[-1] < FAILURE_US for taken in times.values())
    assert times == checkpoint_times(range(100), INTERVAL_US, FAILURE_US, 7)
    assert times != checkpoint_times(range(100), INTERVAL_US, FAILURE_US, 8)


@pytest.mark.parametrize("shuffles", [(), (True,), (False,), (True, False, True), (True, True, True, True)])
@pytest.mark.parametrize("parallelism", [1, 3, 10])
def test_the_share_equals_that_of_a_level_by_level_computation(parallelism: int, shuffles: tuple[bool, ...]) -> None:
    graph = Levels(parallelism, shuffles)
    for seed in range(10):
        times = checkpoint_times(graph.tasks, INTERVAL_US, FAILURE_US, seed)
        assert invalid_share(times, graph) == level_by_level(times, graph)


def test_a_receiver_ahead_of_its_sender_has_an_invalid_checkpoint() -> None:
    assert invalid_share({0: [4, 9], 1: [5, 10]}, Levels(1, [True])) == 1 / 4
    assert invalid_share({0: [5, 10], 1: [4, 9]}, Levels(1, [True])) == 0
    assert invalid_share({0: [5, 10], 1: [5, 10]}, Levels(1, [True])) == 0


def test_a_shuffle_compares_with_all_senders_and_a_narrow_edge_with_one() -> None:
    times = {0: [10], 1: [4], 2: [5], 3: [3]}
    assert invalid_share(times, Levels(2, [True])) == 1 / 4
    assert invalid_share(times, Levels(2, [False])) == 0


def test_one_level_has_no_invalid_checkpoints() -> None:
    assert expected_share(10, 1) == 0
    assert invalid_share({0: []}, Levels(1, ())) == 0


@pytest.mark.parametrize(
    ("parallelism", "levels", "low", "high"),
    [(1, 2, 0.02, 0.03), (1, 5, 0.10, 0.12), (10, 2, 0.05, 0.06), (10, 5, 0.19, 0.22)],
)
def test_two_to_five_levels_have_2_to_11_percent_and_5_to_21_at_parallelism_10(
    parallelism: int, levels: int, low: float, high: float
) -> None:
    assert low <= expected_share(parallelism, levels) <= high


def test_narrow_edges_have_the_share_of_parallelism_1() -> None:
    assert expected_share(10, 3, shuffled=False) == pytest.approx(expected_share(1, 3, seeds=400), rel=0.1)
