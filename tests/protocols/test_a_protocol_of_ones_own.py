"""A checkpoint protocol is one folder: nothing else is touched to add one, and it runs under all failures."""

from __future__ import annotations

from dataclasses import replace

import pytest

from clonos_py.model.errors import SettingError
from clonos_py.model.plan import PhysicalPlan
from clonos_py.model.protocols import ProtocolSides
from clonos_py.runtime.sim.histories import HistoryLedger
from clonos_py.runtime.sim.scenario import ScenarioResult, run_seed
from clonos_py.runtime.sim.topology import Topology
from tests.protocols import lone
from tests.protocols.lone.job import LoneCheckpoints

SEEDS = 20


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """All simulated jobs use the protocol."""
    plan = Topology.plan

    def chosen(self: Topology, ledger: HistoryLedger) -> PhysicalPlan:
        return replace(plan(self, ledger), protocol=lone.__name__)

    monkeypatch.setattr(Topology, "plan", chosen)


def completed(result: ScenarioResult) -> int:
    return sum("checkpoint completed" in line for line in result.story)


@pytest.mark.usefixtures("alone")
def test_a_protocol_in_one_folder_recovers_from_every_failure() -> None:
    results = [run_seed(seed) for seed in range(1, SEEDS + 1)]
    assert [(result.scenario.seed, result.problems) for result in results if result.problems] == []
    assert sum(sum(result.faults.values()) for result in results) > SEEDS
    given_up = [line for result in results for line in result.story if "the snapshots do not fit together" in line]
    assert given_up, "rows were in flight"
    assert sum(completed(result) > 1 for result in results) > SEEDS // 10, "sometimes no rows were in flight"


@pytest.mark.usefixtures("alone")
def test_the_simulator_finds_snapshots_that_count_although_frames_lie_between_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(LoneCheckpoints, "fits", lambda self, handles: True)
    assert any(run_seed(seed).problems for seed in range(1, SEEDS + 1))


def test_an_unknown_protocol_is_named() -> None:
    sides: ProtocolSides[int] = ProtocolSides()
    sides.register("one", 1)
    with pytest.raises(SettingError, match="there is no checkpoint protocol 'two': choose one of one"):
        sides.of("two")
    assert sides.of("one") == 1
