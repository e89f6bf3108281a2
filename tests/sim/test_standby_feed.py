"""Standbys that are fed, under any failures and every protocol. Planted bugs are in ``tests/sim/planted/feed.py``."""

from __future__ import annotations

import os

import pytest

from clonos_py.model.protocols import ProtocolProperties
from clonos_py.runtime.sim.generator import Range
from clonos_py.runtime.sim.invariants import InvariantChecker
from clonos_py.runtime.sim.scenario import run_seed
from clonos_py.settings.protocols import ALIGNED, INDUCED, UNALIGNED, UNCOORDINATED
from tests.often import often
from tests.sim.small_first import small_seeds

SEEDS = int(os.environ.get("SIMULATED_SEEDS", "160")) // 8


@pytest.mark.parametrize(
    "protocol", often([ALIGNED, UNALIGNED, UNCOORDINATED, INDUCED], [ALIGNED, UNCOORDINATED]), ids=lambda p: p.name
)
def test_no_schedule_of_failures_breaks_a_rule(protocol: ProtocolProperties, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also that tasks do start at feed points: at least in every tenth run."""
    made = InvariantChecker.__init__
    checkers: list[InvariantChecker] = []

    def noted(self: InvariantChecker, *given: object) -> None:
        made(self, *given)  # type: ignore[arg-type]
        checkers.append(self)

    monkeypatch.setattr(InvariantChecker, "__init__", noted)
    range_ = Range(sharing_depth=-1, protocol=protocol, fed=True)
    for seed in small_seeds(SEEDS, range_):
        result = run_seed(seed, range_)
        assert not result.problems, (seed, result.problems, result.story[-30:])
    assert sum(checker.starts_at_feed_points for checker in checkers) > SEEDS // 10
