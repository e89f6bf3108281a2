"""The jobs of ``tests/user_jobs.py`` in one process: a task is killed, and every row is that of the oracle."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.often import often
from tests.user_jobs import (
    USER_JOBS,
    enrichment_over_http,
    orders_and_payments_with_timeouts,
    statements_of_customers,
    upserts_into_sqlite,
)

ALWAYS = {orders_and_payments_with_timeouts, enrichment_over_http, upserts_into_sqlite, statements_of_customers}
"""Other tests run the operators of the others with kills, and their jobs without."""


@pytest.mark.parametrize("user_job", often(USER_JOBS, ALWAYS))
def test_every_row_is_right_although_a_task_is_killed(user_job: Callable[[str, Path], None], tmp_path: Path) -> None:
    user_job("local", tmp_path)
