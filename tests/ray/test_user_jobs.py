"""Jobs of ``tests/user_jobs.py`` on real actors: one gets a SIGKILL, and every row is that of the oracle.

All run in one process, with the same kills. Here are those that differ on Ray: they send a model, a client, or a
sink of their own to other processes.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from clonos_py.runtime.ray.cluster import Cluster
from tests.user_jobs import (
    USER_JOBS,
    best_sellers,
)

pytestmark = pytest.mark.ray


@pytest.mark.thorough
@pytest.mark.parametrize("user_job", [job for job in USER_JOBS if job is not best_sellers])
def test_every_row_is_right_although_a_task_is_killed(
    cluster: Cluster, user_job: Callable[[str, Path], None], tmp_path: Path
) -> None:
    user_job("ray", tmp_path)
