"""Rollback recovery on real actors (E2, E9).

SIGKILL of a task, of neighbours at once, of a task while the job goes back already, and of all tasks. Both witnesses
must agree on every record, and survivors must begin in the processes that they are in.
"""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from clonos_py.bench import witnesses
from clonos_py.bench.fault_injector import FaultInjector, InjectedFault
from clonos_py.model.coordinator_events import CheckpointCompleted, Deployed, RolledBack
from clonos_py.observe.events import Event, Progress
from clonos_py.runtime.launch import run_job
from clonos_py.runtime.ray.cluster import Cluster
from clonos_py.settings.resolution import resolve

pytestmark = pytest.mark.ray

FRAMES_AT_LEAST = 20
FAULTS: tuple[tuple[InjectedFault, tuple[str, ...]], ...] = (
    (InjectedFault.TASK, ("enrich[0]",)),
    (InjectedFault.NEIGHBOURS, ("enrich[1]", "rank[0]")),
    (InjectedFault.DURING, ("rank[1]", "numbers[0]")),
    (InjectedFault.NEIGHBOURS, witnesses.TASKS),
)
SURVIVORS = ("left[0]", "left[1]", "numbers[1]")
"""Until all are killed."""
_AFTER_CHECKPOINT_US = 300_000


class Killer:
    """Does harm some while after each checkpoint, as soon as all that are to die have enough to lose."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.harm = FaultInjector("witnesses")
        self.pids: list[list[int]] = []
        """Of the survivors, before each fault."""
        self._left = list(FAULTS)
        self._ready_us: int | None = None

    def __call__(self, at_us: int, event: Event) -> None:
        self.events.append(event)
        match event:
            case CheckpointCompleted():
                self._ready_us = at_us + _AFTER_CHECKPOINT_US
            case Progress() if self._left and self._ready_us is not None and at_us >= self._ready_us:
                _, victims = self._left[0]
                stakes = {str(task): frames for task, frames in event.frames_at_stake.items()}
                if all(stakes.get(victim, 0) >= FRAMES_AT_LEAST for victim in victims):
                    self._ready_us = None
                    threading.Thread(target=self._do, args=self._left.pop(0), daemon=True).start()

    def _do(self, fault: InjectedFault, victims: tuple[str, ...]) -> None:
        self.pids.append(self.harm.pids(SURVIVORS))
        self.harm.do(fault, victims)


def test_both_witnesses_agree_on_every_record_however_often_the_job_goes_back(cluster: Cluster, tmp_path: Path) -> None:
    total, rate = 3_000, 150
    killer = Killer()
    settings = resolve(
        command_line={
            "guarantee": "exactly-once",
            "sharing_depth": "0",
            "checkpoint_interval": "1s",
            "parallelism": 2,
            "standbys": 0,
        }
    )
    with witnesses.oracle() as server:
        run_job(witnesses.witnesses(server, str(tmp_path), total, rate, causal=False), settings, killer)

    happened = [type(event) for event in killer.events]
    assert sum(killer.harm.done.faults.values()) == len(FAULTS)
    assert happened.count(RolledBack) >= len(FAULTS)
    assert happened.count(Deployed) >= len(FAULTS) + 1
    assert len(killer.pids) == len(FAULTS)
    assert len(set(map(tuple, killer.pids))) == 1, "survivors are in other processes than before"
    assert witnesses.wrong(str(tmp_path), total) is None
