"""Rollback recovery on real actors (E2, E9).

SIGKILL of each task, of neighbours at once, of a task while the job goes back already, and of all tasks. Both witnesses
must agree on every record, and survivors must begin in the processes that they are in. Where tasks take snapshots
alone, those before a failed one go on.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from pathlib import Path

import pytest

from clonos_py.bench import witnesses
from clonos_py.bench.fault_injector import InjectedFault
from clonos_py.model.coordinator_events import Deployed, RolledBack, WentBack
from clonos_py.observe.events import TaskFailed
from clonos_py.runtime.launch import run_job
from clonos_py.runtime.ray.cluster import Cluster
from clonos_py.settings.protocols import ALIGNED, INDUCED, UNALIGNED, UNCOORDINATED
from clonos_py.settings.resolution import resolve
from tests.ray.killing import RATE, ROWS_MAX, Killer, PlannedFault

pytestmark = pytest.mark.ray

FAULTS: tuple[PlannedFault, ...] = (
    (InjectedFault.TASK, ("enrich[0]",)),
    (InjectedFault.NEIGHBOURS, ("enrich[1]", "rank[0]")),
    (InjectedFault.DURING, ("rank[1]", "numbers[0]")),
    (InjectedFault.NEIGHBOURS, witnesses.TASKS),
)
FEWER = FAULTS[1:3]
SURVIVORS = ("left[0]", "left[1]", "numbers[1]")
"""None of the faults but the last is a kill of one of these."""


def run_with_kills(folder: Path, protocol: str, faults: Sequence[PlannedFault], killer: Killer) -> None:
    settings = resolve(
        command_line={
            "guarantee": "exactly-once",
            "sharing_depth": "0",
            "protocol": protocol,
            "checkpoint_interval": "1s",
            "parallelism": 2,
            "standbys": 0,
        }
    )
    with witnesses.answer_server() as server:
        job = witnesses.witnesses(server, str(folder), ROWS_MAX, RATE, causal=False, unpaced=str(folder / "unpaced"))
        run_job(job, settings, killer)
    assert sum(killer.injector.counts.faults.values()) == len(faults)
    assert killer.total is not None
    assert witnesses.wrong(str(folder), killer.total) is None


@pytest.mark.parametrize(
    ("protocol", "faults"),
    [
        (ALIGNED.name, FEWER),
        *(pytest.param(other, FAULTS, marks=pytest.mark.thorough) for other in (ALIGNED.name, UNALIGNED.name)),
    ],
)
def test_both_witnesses_agree_on_every_record_however_often_the_job_rolls_back(
    protocol: str, faults: Sequence[PlannedFault], cluster: Cluster, tmp_path: Path
) -> None:
    pids: list[list[int]] = []  # of the survivors, before each fault
    killer = Killer(
        faults, tmp_path / "unpaced", None, 300_000, before_each=lambda injector: pids.append(injector.pids(SURVIVORS))
    )
    run_with_kills(tmp_path, protocol, faults, killer)
    happened = [type(event) for event in killer.events]
    assert happened.count(RolledBack) >= len(faults)
    assert happened.count(Deployed) >= len(faults) + 1
    assert len(pids) == len(faults)
    assert len(set(map(tuple, pids))) == 1, "survivors must stay in their processes"


@pytest.mark.thorough
@pytest.mark.parametrize("protocol", [UNCOORDINATED.name, INDUCED.name])
def test_both_witnesses_agree_when_tasks_go_back_to_the_recovery_line(
    protocol: str, cluster: Cluster, tmp_path: Path
) -> None:
    after_us = 1_000_000  # manifests are written while tasks are still going back
    killer = Killer(FAULTS, tmp_path / "unpaced", None, after_us)
    run_with_kills(tmp_path, protocol, FAULTS, killer)
    happened = [type(event) for event in killer.events]
    assert RolledBack not in happened
    assert happened.count(WentBack) >= len(FAULTS)
    until_then = takewhile(lambda event: not isinstance(event, WentBack), killer.events)
    first = [event.task for event in until_then if isinstance(event, TaskFailed)]
    assert first
    assert "numbers" not in {task.vertex for task in first}, "upstream tasks went back, too"
