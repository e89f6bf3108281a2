"""Checks that cannot fail are defects: each protocol bug, planted once, must be found by the simulator."""

from __future__ import annotations

import pytest

from tests.sim.planted.found_by import BUGS, FOUND_BY, SEEDS_MAX, problems


@pytest.mark.parametrize("name", BUGS)
def test_the_simulator_finds(name: str) -> None:
    for seed in (FOUND_BY.get(name, 0), *range(SEEDS_MAX)):
        if found := problems(name, seed):
            not_planted = found[0].startswith(("AttributeError", "NameError", "TypeError"))
            assert not not_planted, f"the patched code has changed: {found[0]}"
            return
    pytest.fail(f"{SEEDS_MAX} seeds did not find it")


def test_every_hint_names_a_planted_bug() -> None:
    assert FOUND_BY.keys() <= BUGS.keys()
