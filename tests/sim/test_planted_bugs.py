"""Checks that cannot fail are defects: each protocol bug, planted once, must be found by the simulator."""

from __future__ import annotations

import pytest

from clonos_py.runtime.sim.scenario import run_seed
from tests.sim.planted import bounds, checkpoints, logs, outputs, recovery

SEEDS_MAX = 2_000
"""Most bugs are found by the first seeds; those that need one failure at one moment of another take some hundred."""
BUGS = {**logs.BUGS, **recovery.BUGS, **checkpoints.BUGS, **outputs.BUGS, **bounds.BUGS}


SELDOM = {
    "the_acknowledgement_of_an_earlier_checkpoint_counts",
    "the_first_log_of_an_epoch_lacks_the_end_of_the_one_before",
    "large_answers_are_kept_under_an_epoch_that_is_too_low",
    "frames_behind_a_barrier_overtake_it",
    "checkpoints_of_which_only_logs_speak_are_numbered_again",
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
