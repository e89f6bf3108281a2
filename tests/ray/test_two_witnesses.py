"""Exactly once, nondeterminism included, on real actors.

SIGKILL of every task in turn, of neighbours at once, of a task while another recovers, of a standby and of the
coordinator; a task that hangs and wakes up as a zombie: both witnesses must agree on every record. The long form, over
several nodes, is ``python -m clonos_py.bench soak``.
"""

from __future__ import annotations

import threading
from collections import Counter
from pathlib import Path

import pytest

from clonos_py.bench import witnesses
from clonos_py.bench.fault_injector import FaultInjector, InjectedFault
from clonos_py.bench.soak import soak
from clonos_py.model.coordinator_events import (
    CheckpointCompleted,
    CoordinatorReplaced,
    Deployed,
    Replayed,
    RolledBack,
    StandbyActivated,
)
from clonos_py.observe.events import Event, Progress, TaskFailed
from clonos_py.runtime.launch import run_job
from clonos_py.runtime.ray.cluster import Cluster
from clonos_py.settings.resolution import resolve

pytestmark = pytest.mark.ray

FRAMES_AT_LEAST = 20
FAULTS = (
    *((InjectedFault.TASK, task, "") for task in witnesses.TASKS),
    (InjectedFault.NEIGHBOURS, "enrich[0]", "rank[0]"),
    (InjectedFault.COORDINATOR, "", ""),
    (InjectedFault.DURING, "enrich[1]", "numbers[0]"),
    (InjectedFault.SLEEP, "rank[1]", ""),
)
_AFTER_CHECKPOINT_US = 500_000


class Killer:
    """Does harm some while after each checkpoint, as soon as everybody who is to die has enough to lose."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.harm = FaultInjector("witnesses")
        self._left = list(FAULTS)
        self._ready_us: int | None = None

    def __call__(self, at_us: int, event: Event) -> None:
        self.events.append(event)
        match event:
            case Deployed():
                self._do(InjectedFault.STANDBY, "left[1]", "")
            case CheckpointCompleted():
                self._ready_us = at_us + _AFTER_CHECKPOINT_US
            case Progress() if self._left and self._ready_us is not None and at_us >= self._ready_us:
                _, *victims = self._left[0]
                stakes = {str(task): frames for task, frames in event.frames_at_stake.items()}
                if all(stakes.get(victim, 0) >= FRAMES_AT_LEAST for victim in victims if victim):
                    self._do(*self._left.pop(0))
                    self._ready_us = None

    def _do(self, fault: InjectedFault, *victims: str) -> None:
        threading.Thread(target=self.harm.do, args=(fault, victims), daemon=True).start()


def test_both_witnesses_agree_on_every_record_whatever_dies(cluster: Cluster, tmp_path: Path) -> None:
    total, rate = 12_000, 150
    killer = Killer()
    settings = resolve(command_line={"checkpoint_interval": "1s", "parallelism": 2})
    with witnesses.oracle() as server:
        run_job(witnesses.witnesses(server, str(tmp_path), total, rate), settings, killer)

    events, failing = killer.events, [task for _, *tasks in FAULTS for task in tasks if task]
    failed = [event for event in events if isinstance(event, TaskFailed)]
    activated = [event.task for event in events if isinstance(event, StandbyActivated)]
    assert sum(killer.harm.done.faults.values()) == len(FAULTS) + 1
    assert [event for event in events if isinstance(event, RolledBack)] == []
    assert len([event for event in events if isinstance(event, CoordinatorReplaced)]) == 1
    harmed, found = Counter(failing), Counter(str(event.task) for event in failed)
    suspected = Counter(str(event.task) for event in failed if event.how.startswith("silent"))
    assert not harmed - found
    assert found - harmed <= suspected, f"on a busy machine somebody may be taken for dead, but these died: {failed}"
    assert sorted(activated) == sorted(event.task for event in failed), "attempts changed of others than the killed"
    killed = [event for event in failed if not event.how.startswith("silent")]
    idle = [f"{event.task}: {event.frames_at_stake}" for event in killed if event.frames_at_stake < FRAMES_AT_LEAST]
    assert not idle, f"these kills had too little to lose to prove anything: {idle}"
    assert sum(event.rows > 0 for event in events if isinstance(event, Replayed)) >= len(failing) - 2
    assert witnesses.wrong(str(tmp_path), total) is None


@pytest.mark.thorough
def test_a_short_soak_leaves_right_results(cluster: Cluster) -> None:
    finding = soak("q5", seed=4, seconds=10)
    assert finding.wrong is None
    assert finding.done.kills >= 4
