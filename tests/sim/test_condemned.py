"""Survivors that a protocol condemns go back with the failed tasks, in the processes in which they are (E9)."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from clonos_py.model.ids import TaskId
from clonos_py.protocols.parts.coordinated import CoordinatedCheckpoints
from clonos_py.runtime.sim.generator import Range
from clonos_py.runtime.sim.scenario import run_scenario
from tests.sim.small_first import small_first

WENT_BACK = "its state does not fit"


def every_other(self: CoordinatedCheckpoints, lost: Collection[TaskId]) -> set[TaskId]:
    """Needlessly condemns tasks, as if all of them had failed at once."""
    return set(self.context.plan.tasks[::2]) if lost else set()


SEEDS, ALWAYS = 120, 24


@pytest.mark.parametrize(
    "places", [slice(ALWAYS), pytest.param(slice(ALWAYS, SEEDS), marks=pytest.mark.thorough)], ids=["small", "others"]
)
def test_no_row_is_lost_or_doubled_when_condemned_survivors_go_back(
    places: slice, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CoordinatedCheckpoints, "condemned", every_other)
    went_back = 0
    for scenario in small_first(range(SEEDS), Range(sharing_depth=-1, protocol=None))[places]:
        verdict = run_scenario(scenario)
        assert not verdict.problems, (scenario.seed, verdict.problems, verdict.story)
        assert not verdict.rollbacks
        went_back += sum(WENT_BACK in line for line in verdict.story)
    assert went_back > 10
