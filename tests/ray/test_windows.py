"""Windows on real actors, saved one by one: each has just its rows, whatever is killed in which order."""

from __future__ import annotations

from pathlib import Path

import pytest

from clonos_py.bench import windowed_witnesses as windows
from clonos_py.bench.fault_injector import InjectedFault
from clonos_py.bench.witnesses import answer_server
from clonos_py.model.coordinator_events import RolledBack, StandbyActivated
from clonos_py.observe.events import TaskFailed
from clonos_py.runtime.launch import run_job
from clonos_py.runtime.ray.cluster import Cluster
from clonos_py.settings.protocols import ALIGNED, CONTINUOUS
from clonos_py.settings.resolution import resolve
from tests.ray.killing import RATE, ROWS_MAX, Killer

pytestmark = pytest.mark.ray

FAULTS = (
    (InjectedFault.TASK, ("tens[0]",)),
    (InjectedFault.NEIGHBOURS, ("enrich[0]", "hops[0]", "tens[1]")),
    (InjectedFault.DURING, ("enrich[1]", "hops[1]")),
    (InjectedFault.AGAIN, ("tens[0]",)),
    (InjectedFault.NEIGHBOURS, windows.TASKS),
)
"""A standby, then its task; a task alone; tasks and those before them at once, and one after the other; a replacement;
the whole job."""


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("protocol", "feed"), [(CONTINUOUS.name, "off"), (CONTINUOUS.name, "100ms"), (ALIGNED.name, "100ms")]
)
def test_windows_have_just_their_rows_whatever_is_killed(
    protocol: str, feed: str, cluster: Cluster, tmp_path: Path
) -> None:
    unpaced = tmp_path / "unpaced"
    killer = Killer(FAULTS, unpaced, first=(InjectedFault.STANDBY, ("tens[0]",)))
    given = {"checkpoint_interval": "1s", "parallelism": 2, "protocol": protocol, "standby_feed": feed}
    with answer_server() as server:
        job = windows.windowed(server, str(tmp_path), ROWS_MAX, RATE, str(unpaced))
        run_job(job, resolve(command_line=given), killer)
    failures = [event for event in killer.events if isinstance(event, TaskFailed)]
    assert sum(killer.injector.counts.faults.values()) == len(FAULTS) + 1
    assert not [event for event in killer.events if isinstance(event, RolledBack)]
    killed = [task for fault, tasks in FAULTS for task in tasks * (1 + (fault is InjectedFault.AGAIN))]
    assert len(failures) >= len(killed)
    activated = {event.task for event in killer.events if isinstance(event, StandbyActivated)}
    assert activated == {event.task for event in failures}
    assert killer.total is not None
    assert windows.wrong(str(tmp_path), killer.total) is None
