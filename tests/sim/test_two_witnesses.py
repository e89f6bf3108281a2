"""The two-witness job under thousands of seeded schedules of delays and failures."""

from __future__ import annotations

import pytest

from tests.chunks import chunks
from tests.sim.points import described
from tests.witness import WitnessJob, simulate

SIZE = 25
SHORT = WitnessJob(total=60)
"""Long enough for several checkpoints and failures."""


@pytest.mark.parametrize("seeds", chunks(1_000, SIZE, always=SIZE))
def test_witnesses_agree_on_every_record_whatever_dies(seeds: range) -> None:
    at_stake = 0
    for seed in seeds:
        outcome = simulate(seed, SHORT, kills=6)
        assert not outcome.problems, described(seed, outcome)
        at_stake += outcome.kills_at_stake
    assert at_stake > SIZE // 3, "too few kills had anything to lose: the test proves little"


def test_no_attempt_changes_without_a_failure() -> None:
    for seed in range(3):
        outcome = simulate(seed, SHORT, kills=0)
        assert not outcome.problems, described(seed, outcome)
        assert not any("attempt" in line for line in outcome.story)


def test_only_killed_tasks_change_their_attempt() -> None:
    for seed in range(4):
        outcome = simulate(seed, SHORT, kills=3)
        killed = {line.split(", ")[1] for line in outcome.story if "killed process" in line and "standby" not in line}
        promoted = {
            line.split("standby promoted ")[1].split(",")[0] for line in outcome.story if "standby promoted" in line
        }
        assert promoted <= killed, described(seed, outcome)


def test_chains_of_parallelism_1_and_3_recover() -> None:
    for parallelism in (1, 3):
        for seed in range(2):
            outcome = simulate(seed, WitnessJob(100, parallelism=parallelism, partitions=3), kills=4)
            assert not outcome.problems, described(seed, outcome)


def test_the_same_seed_gives_the_same_story() -> None:
    assert simulate(7, SHORT, kills=6).story == simulate(7, SHORT, kills=6).story
