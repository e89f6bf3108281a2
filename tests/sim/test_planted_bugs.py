"""Checks that cannot fail are defects: each protocol bug, planted once, must be found by the simulator."""

from __future__ import annotations

import pytest

from tests.sim.planted.found_by import BUGS, FOUND_BY, problems, tried, without_a_bug


@pytest.mark.parametrize("name", BUGS)
def test_the_simulator_finds(name: str) -> None:
    for made in tried(name):
        if found := problems(name, made):
            not_planted = found[0].startswith(("AttributeError", "KeyError", "NameError", "TypeError"))
            assert not not_planted, f"the patched code has changed: {found[0]}"
            assert not without_a_bug(made), "the engine fails without the planted bug, too"
            return
    pytest.fail(f"neither its seed nor others find it: search with python -m tests.sim.planted.found_by {name}")


def test_every_hint_names_a_planted_bug() -> None:
    assert FOUND_BY.keys() <= BUGS.keys()
