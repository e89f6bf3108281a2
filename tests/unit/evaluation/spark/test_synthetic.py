"""Synthetic workloads: ranges have the same rows in any pieces, and deletions follow their additions."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

from clonos_py.evaluation.spark.synthetic import WORKLOADS, Synthetic, synthetic_of
from clonos_py.model.errors import SettingError


@pytest.mark.parametrize("workload", WORKLOADS)
def test_a_range_has_the_same_rows_whole_or_in_two_pieces(workload: str) -> None:
    made = Synthetic(rows=200_000, workload=workload)
    whole = made.batch(49_000, 101_000)
    assert [*made.batch(49_000, 77_777).to_pylist(), *made.batch(77_777, 101_000).to_pylist()] == whole.to_pylist()
    assert whole.schema == WORKLOADS[workload].schema
    whole.validate(full=True)


def test_keys_have_the_requested_skew() -> None:
    rows = Synthetic(rows=50_000, keys=1_000, skew=0.3, payload_bytes=40).batch(0, 50_000)
    share = Counter(rows["key"].to_pylist())
    assert share[0] / 50_000 == pytest.approx(0.3 + 0.7 / 1_000, abs=0.01)
    assert len(share) == 1_000
    assert np.mean([len(str(text)) for text in rows["payload"].to_pylist()]) == pytest.approx(40, rel=0.03)


def test_of_twenty_commands_twelve_add_links_three_sources_four_and_one_delete_them() -> None:
    rows = Synthetic(rows=100_000, workload="reachability").batch(50_000, 70_000).to_pylist()
    kinds = Counter((row["added"], row["target"] is not None) for row in rows)
    assert kinds == {(True, True): 12_000, (True, False): 3_000, (False, True): 4_000, (False, False): 1_000}


def test_each_deleted_item_was_added_before_and_is_deleted_once() -> None:
    there: Counter[tuple[Any, Any]] = Counter()
    deleted = 0
    for row in Synthetic(rows=100_000, workload="reachability").batch(0, 100_000).to_pylist():
        what = row["node"], row["target"]
        there[what] += 1 if row["added"] else -1
        deleted += not row["added"]
        assert there[what] >= 0
    assert deleted == (5_000 - 100) * 5


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"rows": 0}, "rows is 0"),
        ({"rows": 5, "workload": "other"}, "choose one of keyed, reachability"),
        ({"rows": 5, "skew": "2"}, "skew is from 0 to 1"),
        ({"rows": 5, "size": 2}, "there is no option 'size'"),
        ({"rows": "x"}, "an option of the workload is wrong"),
    ],
)
def test_impossible_options_are_refused(options: dict[str, object], said: str) -> None:
    with pytest.raises(SettingError, match=said):
        synthetic_of(options)
