"""How skew shares rows: by remainder one task has all hot sellers, by hash they move from task to task."""

from __future__ import annotations

import numpy as np
import pytest

from clonos_py.bench.checkmate.skew import busiest, by_hash, by_remainder, keys_of, sent_by_remainder, zipf_busiest
from clonos_py.columns.keys import key_groups
from clonos_py.evaluation.nexmark.generator import Generator
from clonos_py.evaluation.nexmark.model import Model
from clonos_py.model.ids import TaskId
from tests.unit.task.plans import three

EVENTS, SECONDS = 240_000, 10


def test_keys_by_hash_go_to_the_tasks_of_the_plan() -> None:
    plan = three((3, 5, 3))
    rows = Generator().block(0).auction
    tasks = by_hash(rows["seller"].to_numpy(), 5, plan.key_groups)
    groups = key_groups(rows, ["seller"], plan.key_groups)
    vertex = next(vertex for vertex in plan.vertices if vertex.parallelism == 5)
    for index in range(5):
        owned = plan.groups(TaskId(vertex.name, index))
        assert ((groups >= owned.start) & (groups < owned.stop)).tolist() == (tasks == index).tolist()


@pytest.mark.parametrize("skew", [0, 0.1, 0.2, 0.3])
@pytest.mark.parametrize("column", ["seller", "bidder"])
def test_by_remainder_one_of_ten_tasks_has_all_hot_keys(column: str, skew: float) -> None:
    found = busiest(by_remainder(keys_of(column, skew, EVENTS), 10), 10, SECONDS)
    assert found.overall == pytest.approx(10 * (skew + (1 - skew) / 10), rel=0.06)
    assert found.in_a_window == pytest.approx(found.overall, rel=0.12)


@pytest.mark.parametrize("column", ["seller", "bidder"])
def test_by_hash_the_hot_keys_move_from_task_to_task(column: str) -> None:
    """24,000 events a second: five hot sellers follow each other in each second."""
    shares = [busiest(by_hash(keys_of(column, skew, EVENTS), 10), 10, SECONDS) for skew in (0, 0.1, 0.3)]
    windows = [found.in_a_window for found in shares]
    assert windows == sorted(windows)
    assert 1.5 < windows[-1] < 2.2
    assert all(found.overall < 1.3 for found in shares)


def test_equal_shares_have_factor_1_and_one_task_for_all_has_their_number() -> None:
    assert busiest(np.arange(100) % 4, 4, 5) == (1, 1)
    assert busiest(np.zeros(100, np.int64), 4, 5) == (4, 4)
    assert busiest(np.arange(100) // 25, 4, 4) == (1, 4)


def test_the_busiest_task_under_zipf_keys_has_the_expected_load() -> None:
    assert zipf_busiest(0, 1_000_000, 10) == pytest.approx(1, abs=0.03)
    assert zipf_busiest(1, 1_000, 10) == pytest.approx(1.93, abs=0.01)
    assert zipf_busiest(1, 1_000, 1) == 1


def test_skew_is_off_by_default() -> None:
    assert Generator(model=Model(skew=None)).block(1) == Generator().block(1)
    assert Generator(model=Model(skew=0.3)).block(1).auction != Generator().block(1).auction


@pytest.mark.parametrize("parallelism", [1, 2, 3, 10, 50, 100, 128])
def test_substitute_keys_go_by_hash_where_the_original_ones_go_by_remainder(parallelism: int) -> None:
    keys = np.concatenate([np.arange(5_000, dtype=np.int64), np.array([2**31 + 7, 2**35 + 1], dtype=np.int64)])
    others = sent_by_remainder(keys, parallelism)
    assert len(np.unique(others)) == len(keys)
    assert (by_hash(others, parallelism) == by_remainder(keys, parallelism)).all()
