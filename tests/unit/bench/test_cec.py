"""The benchmark of continuous eventual checkpoints: each run rebuilds the state, and a second call repeats nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from clonos_py.bench import cec

SMALL = ["--keys", "300", "--batch", "100", "--rows", "5k", "--pairs", "1"]


def test_all_runs_are_measured_once_and_shown_beside_the_paper(tmp_path: Path) -> None:
    out = tmp_path / "cec.jsonl"
    first = CliRunner().invoke(cec.command, [*SMALL, "--out", str(out)], catch_exceptions=False)
    assert first.exit_code == 0
    assert out.read_text().count("\n") == 1 + 13 + 4
    assert "error" not in out.read_text(), "every rebuilt operator has the windows of its predecessor"
    again = CliRunner().invoke(cec.command, [*SMALL, "--out", str(out)], catch_exceptions=False)
    assert again.stdout == first.stdout
    assert out.read_text().count("\n") == 1 + 13 + 4
    assert "extent 500k" in first.stdout


@pytest.mark.parametrize("target", ["1x open", "8x open"])
def test_a_higher_target_leaves_a_longer_extent(target: str) -> None:
    policy = cec.policy_of("Q", target, 90_000)
    assert policy is not None
    assert policy.extent_max == int(target[0]) * 90_000
