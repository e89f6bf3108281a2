"""The jobs of ``tests/user_jobs.py`` in one process: a task is killed, and every row is that of the oracle."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.user_jobs import USER_JOBS, best_sellers

ELSEWHERE = {best_sellers}
"""``tests/jobs/test_running_totals.py`` runs it, with two kills."""


@pytest.mark.parametrize(
    "user_job", [pytest.param(job, marks=[pytest.mark.thorough] * (job in ELSEWHERE)) for job in USER_JOBS]
)
def test_every_row_is_right_although_a_task_is_killed(user_job: Callable[[str, Path], None], tmp_path: Path) -> None:
    user_job("local", tmp_path)
