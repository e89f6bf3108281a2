"""Top-n of running totals over many rows, tasks killed: right in the end, and as a changelog at every change."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.running_totals import Sales

MANY = pytest.param(
    300_000, ["totals[1]@0.3s", "best[0]@0.6s", "totals[0]@0.9s", "best[1]@1.2s"], marks=pytest.mark.thorough
)


@pytest.mark.parametrize(("rows", "kills"), [(80_000, ["totals[1]@0.1s", "best[0]@0.25s"]), MANY])
def test_the_top_n_of_running_totals_and_its_changes_are_right_while_tasks_are_killed(
    rows: int, kills: list[str], tmp_path: Path
) -> None:
    sales = Sales(rows)
    changes = sales.run(str(tmp_path), "local", kills, interval="2s" if rows > 250_000 else "500ms")
    assert len(changes) > 1_000
    sales.check(changes)


def test_they_are_right_while_tasks_are_killed_whose_standbys_are_fed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No checkpoint is complete before the kills."""
    monkeypatch.setenv("CLONOS_STANDBY_FEED", "10ms")
    sales = Sales(80_000)
    kills = ["totals[1]@0.1s", "best[0]@0.2s", "totals[0]@0.3s"]
    sales.check(sales.run(str(tmp_path), "local", kills, interval="30s"))
