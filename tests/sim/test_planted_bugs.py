"""Checks that cannot fail are defects: each protocol bug, planted once, must be found by the simulator."""

from __future__ import annotations

from functools import cache

import pytest

from clonos_py.runtime.sim.generator import Range
from clonos_py.runtime.sim.scenario import run_seed
from tests.sim.planted.found_by import BUGS, FOUND_BY, TRIED, problems


@cache
def of_the_engine(seed: int, range_: Range) -> list[str]:
    """What a seed finds without a planted bug."""
    return run_seed(seed, range_).problems


@pytest.mark.parametrize("name", BUGS)
def test_the_simulator_finds(name: str) -> None:
    for seed in (FOUND_BY.get(name, 0), *range(TRIED)):
        if found := problems(name, seed):
            not_planted = found[0].startswith(("AttributeError", "KeyError", "NameError", "TypeError"))
            assert not not_planted, f"the patched code has changed: {found[0]}"
            assert not of_the_engine(seed, BUGS[name].range), "the engine fails without the planted bug, too"
            return
    pytest.fail(f"neither its seed nor {TRIED} others find it: search with python -m tests.sim.planted.found_by {name}")


def test_every_hint_names_a_planted_bug() -> None:
    assert FOUND_BY.keys() <= BUGS.keys()
