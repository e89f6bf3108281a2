"""Top-n of running totals on real actors, with real SIGKILLs."""

from __future__ import annotations

from pathlib import Path

import pytest

from clonos_py.runtime.ray.cluster import Cluster
from tests.running_totals import Sales

pytestmark = pytest.mark.ray


@pytest.mark.thorough
def test_the_top_n_of_running_totals_and_its_changes_are_right_while_tasks_are_killed(
    cluster: Cluster, tmp_path: Path
) -> None:
    sales = Sales(800_000)
    changes = sales.run(str(tmp_path), "ray", ["totals[1]@0.5s", "best[0]@1s"])
    assert len(changes) > 1_000
    sales.check(changes)
