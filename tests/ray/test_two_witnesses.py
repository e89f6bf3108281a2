"""Exactly once, nondeterminism included, on real actors.

SIGKILL of a task of each operator in turn, of neighbours at once, of a task while another recovers, of a standby and
of the coordinator; a task that hangs and wakes up as a zombie: both witnesses must agree on every record. The long
form, over several nodes, is ``python -m clonos_py.bench soak``.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from clonos_py.bench import witnesses
from clonos_py.bench.fault_injector import InjectedFault
from clonos_py.bench.soak import soak
from clonos_py.model.coordinator_events import (
    CoordinatorReplaced,
    Replayed,
    RolledBack,
    StandbyActivated,
)
from clonos_py.observe.events import TaskFailed
from clonos_py.runtime.launch import run_job
from clonos_py.runtime.ray.cluster import Cluster
from clonos_py.settings.resolution import resolve
from tests.ray.killing import FRAMES_AT_LEAST, RATE, ROWS_MAX, Killer, PlannedFault

pytestmark = pytest.mark.ray

ONE_BY_ONE = tuple((InjectedFault.TASK, (task,)) for task in witnesses.FIRST_TASKS)
FAULTS = (
    (InjectedFault.TASK, ("left[0]",)),
    (InjectedFault.NEIGHBOURS, ("enrich[0]", "rank[0]")),
    (InjectedFault.COORDINATOR, ()),
    (InjectedFault.DURING, ("enrich[1]", "numbers[0]")),
    (InjectedFault.SLEEP, ("rank[1]",)),
)
"""A task of each operator dies, alone or with others."""


@pytest.mark.parametrize(
    ("faults", "feed"),
    [(FAULTS, "100ms"), *(pytest.param(f, "off", marks=pytest.mark.thorough) for f in (FAULTS, ONE_BY_ONE))],
    ids=["fed", "any", "tasks"],
)
def test_both_witnesses_agree_on_every_record_under_any_failures(
    faults: tuple[PlannedFault, ...], feed: str, cluster: Cluster, tmp_path: Path
) -> None:
    """``feed``: how standbys are fed. Fed ones start where less is known for certain, so they stand for both."""
    unpaced = tmp_path / "unpaced"
    killer = Killer(faults, unpaced, first=(InjectedFault.STANDBY, ("left[1]",)))
    given = {"checkpoint_interval": "1s", "parallelism": 2, "standbys_per_process": 1, "standby_feed": feed}
    settings = resolve(command_line=given)
    with witnesses.answer_server() as server:
        run_job(witnesses.witnesses(server, str(tmp_path), ROWS_MAX, RATE, unpaced=str(unpaced)), settings, killer)

    events, failing = killer.events, [task for _, tasks in faults for task in tasks]
    failed = [event for event in events if isinstance(event, TaskFailed)]
    activated = [event.task for event in events if isinstance(event, StandbyActivated)]
    assert sum(killer.injector.counts.faults.values()) == len(faults) + 1
    assert [event for event in events if isinstance(event, RolledBack)] == []
    assert len([event for event in events if isinstance(event, CoordinatorReplaced)]) == (faults is FAULTS)
    harmed, found = Counter(failing), Counter(str(event.task) for event in failed)
    suspected = Counter(str(event.task) for event in failed if event.how.startswith("silent"))
    assert not harmed - found
    assert found - harmed <= suspected, f"on a busy machine a task may be declared dead, but these died: {failed}"
    assert sorted(activated) == sorted(event.task for event in failed), (
        "attempts of other tasks than the killed ones changed"
    )
    killed = [event for event in failed if not event.how.startswith("silent")]
    idle = [f"{event.task}: {event.frames_at_stake}" for event in killed if event.frames_at_stake < FRAMES_AT_LEAST]
    assert not idle, f"these kills lost too little to prove anything: {idle}"
    assert sum(event.rows > 0 for event in events if isinstance(event, Replayed)) >= len(failing) - 2
    assert killer.total is not None
    assert witnesses.wrong(str(tmp_path), killer.total) is None


@pytest.mark.thorough
def test_a_short_soak_has_right_results(cluster: Cluster) -> None:
    finding = soak("q5", seed=4, seconds=10)
    assert finding.wrong is None
    assert finding.counts.kills >= 4
