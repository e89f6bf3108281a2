"""State that is saved in parts, under any failures. Planted bugs are in ``tests/sim/planted/parts.py``."""

from __future__ import annotations

import os
from typing import Any

import pytest

from clonos_py.runtime.sim.generator import Range
from clonos_py.runtime.sim.scenario import run_seed
from clonos_py.settings.protocols import CONTINUOUS
from clonos_py.task.partwise import PartwiseState
from tests.sim.small_first import small_seeds

SEEDS = int(os.environ.get("SIMULATED_SEEDS", "160")) // 16


def test_no_schedule_of_failures_breaks_a_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also that tasks do take input again for a rebuild: at least in every tenth run."""
    finish, rebuilt = PartwiseState.finish, []

    def noted(self: PartwiseState, *given: Any) -> None:
        if len(self._marks):
            rebuilt.append(self.taken)
        finish(self, *given)

    monkeypatch.setattr(PartwiseState, "finish", noted)
    range_ = Range(protocol=CONTINUOUS, recovery="causal")
    for seed in small_seeds(SEEDS, range_):
        result = run_seed(seed, range_)
        assert not result.problems, (seed, result.problems, result.story[-30:])
    assert len(rebuilt) > SEEDS // 10
