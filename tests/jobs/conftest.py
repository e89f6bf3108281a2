"""Where jobs run in tests: in a folder of their own, or on a disk that is really full or read-only; and how often
simulated ones take checkpoints."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from clonos_py.job.events import JobPolicy
from clonos_py.model.operators import Sink
from clonos_py.model.plan import PhysicalPlan
from clonos_py.model.state import OperatorState
from clonos_py.process.contract import ORDER_TABLE
from clonos_py.runtime.sim.run import SimulatedRun, simulate_plan
from clonos_py.task.chain import Chain
from tests.disks import small_disk

__all__ = ["small_disk"]

SAME_IN_ALL_JOBS = ("keys", "values.", ORDER_TABLE)
"""Tables of process functions, of distinct values by type, and of the order of input: their columns do not depend on
the job."""


@pytest.fixture
def in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The working folder of a user who has not asked for tracebacks."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CLONOS_DEBUG", raising=False)


@pytest.fixture(autouse=True)
def snapshots_have_the_planned_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    """The plan tells the columns of state tables, by which a checkpoint is compared with a changed job: each snapshot
    of each test has exactly these."""
    take = Chain.snapshot

    def checked(chain: Chain, *given: Any) -> dict[str, OperatorState]:
        states = take(chain, *given)
        for stage in chain._stages:
            if stage.name in states and not isinstance(stage.operator, Sink):
                for table, chunks in states[stage.name].tables.items():
                    if not table.startswith(SAME_IN_ALL_JOBS):
                        planned = stage.tables[table]
                        assert all(chunk.rows.schema.equals(planned) for chunk in chunks), f"{stage.name}.{table}"
        return states

    monkeypatch.setattr(Chain, "snapshot", checked)


@pytest.fixture(autouse=True)
def frequent_checkpoints(monkeypatch: pytest.MonkeyPatch) -> None:
    """The jobs of ``testing.run`` last for some milliseconds: with the intervals that the simulator draws, most of them
    end before a checkpoint is complete, and no replacement would restore any state."""

    def simulated(plan: PhysicalPlan, seed: int, *given: Any, **named: Any) -> SimulatedRun:
        policy = JobPolicy(checkpoint_interval_us=(4_000, 1_000, 2_000)[seed % 3])
        return simulate_plan(plan, seed, *given, **{"policy": policy, **named})

    monkeypatch.setattr("clonos_py.testing.jobs.simulate_plan", simulated)
