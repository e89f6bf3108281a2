"""A checkpoint protocol is one folder, which imports no other protocol, and it runs under all failures."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from clonos_py import protocols
from clonos_py.model.plan import PhysicalPlan
from clonos_py.protocols.known import KNOWN
from clonos_py.protocols.parts.coordinated import CoordinatedCheckpoints, all_tasks
from clonos_py.runtime.sim.histories import HistoryLedger
from clonos_py.runtime.sim.scenario import ScenarioResult, run_scenario
from clonos_py.runtime.sim.topology import Topology
from tests.protocols import lone
from tests.protocols.lone import LONE
from tests.sim.small_first import small_first

SEEDS, OF = 20, 60
"""The smallest jobs of some seeds."""


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """All simulated jobs use the protocol."""
    plan = Topology.plan

    def chosen(self: Topology, ledger: HistoryLedger) -> PhysicalPlan:
        return replace(plan(self, ledger), protocol=LONE.properties)

    monkeypatch.setattr(Topology, "plan", chosen)
    monkeypatch.setitem(KNOWN, LONE.name, LONE)


def completed(result: ScenarioResult) -> int:
    return sum("checkpoint completed" in line for line in result.story)


@pytest.mark.usefixtures("alone")
def test_a_protocol_in_one_folder_recovers_from_every_failure() -> None:
    results = [run_scenario(scenario) for scenario in small_first(range(OF))[:SEEDS]]
    assert [(result.scenario.seed, result.problems) for result in results if result.problems] == []
    assert sum(sum(result.faults.values()) for result in results) > SEEDS
    given_up = [line for result in results for line in result.story if "the snapshots do not fit together" in line]
    assert given_up, "rows were in flight"
    assert sum(completed(result) > 1 for result in results) > SEEDS // 10, "sometimes no rows were in flight"


@pytest.mark.usefixtures("alone")
def test_the_simulator_finds_snapshots_that_count_although_frames_lie_between_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    always = partial(CoordinatedCheckpoints, triggered=all_tasks)
    monkeypatch.setitem(KNOWN, LONE.name, replace(LONE, job=always))
    assert any(run_scenario(scenario).problems for scenario in small_first(range(OF))[:SEEDS])


PROTOCOL_FOLDERS = sorted(path.parent for path in Path(protocols.__file__).parent.glob("*/__init__.py"))


@pytest.mark.parametrize(
    "folder", [Path(lone.__file__).parent, *(f for f in PROTOCOL_FOLDERS if f.name != "parts")], ids=lambda f: f.name
)
def test_no_protocol_imports_another(folder: Path) -> None:
    """Only its own modules, and the parts that belong to none."""
    others = {other.name for other in PROTOCOL_FOLDERS} - {"parts", folder.name}
    imported = re.compile(r"from clonos_py\.protocols\.(\w+)")
    found = {name for file in folder.glob("*.py") for name in imported.findall(file.read_text())}
    assert found
    assert not found & others
