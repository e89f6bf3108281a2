"""Checks that cannot fail are defects: each protocol bug, planted once, must be found by the simulator."""

from __future__ import annotations

import pytest

from clonos_py.runtime.sim.scenario import run_seed
from tests.sim.planted import checkpoints, logs, outputs, recovery

SEEDS_MAX = 2_000
"""Most bugs are found by the first seeds; those that need one failure at one moment of another take some hundred."""
BUGS = {**logs.BUGS, **recovery.BUGS, **checkpoints.BUGS, **outputs.BUGS}


SELDOM = {
    "the_first_log_of_an_epoch_is_not_complete",
    "the_acknowledgement_of_an_earlier_checkpoint_counts",
    "timers_are_lost_with_the_task",
    "watermarks_of_inputs_are_not_restored",
    "the_first_log_of_an_epoch_lacks_the_end_of_the_one_before",
}
"""Found after hundreds of seeds."""


@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.thorough] * (n in SELDOM)) for n in BUGS])
def test_the_simulator_finds(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    bug = BUGS[name]
    bug.plant(monkeypatch)
    for seed in range(SEEDS_MAX):
        for problem in run_seed(seed, bug.range).problems:
            not_planted = problem.startswith(("AttributeError", "NameError"))
            assert not not_planted, f"what it patches has another name now: {problem}"
            return
    pytest.fail(f"{SEEDS_MAX} seeds did not find it")
