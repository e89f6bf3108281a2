"""Whether tasks find room on nodes, before anything starts."""

from __future__ import annotations

import threading

from hypothesis import given
from hypothesis import strategies as st

from clonos_py import Job
from clonos_py.job.events import StartProcess
from clonos_py.model.ids import TaskId
from clonos_py.model.plan import PhysicalPlan
from clonos_py.model.resources import NO_RESOURCES, Resources
from clonos_py.plan.physical import plan
from clonos_py.runtime.ray.cluster import NodeResources
from clonos_py.runtime.ray.room import first_without_room, lacking_text
from clonos_py.runtime.ray.room_waits import RoomWaits
from tests.unit.dsl.connectors import Nowhere, bids
from tests.waiting import WAIT_S_MAX


def asking(cpus: list[int]) -> PhysicalPlan:
    """A plan with an operator of its own for each number of processors, behind a source that needs nothing."""
    job = Job("test")
    rows = bids(job).named("bids")
    for number, amount in enumerate(cpus):
        rows = rows.rebalance().filter(lambda bid: True).named(f"filter-{number}")
        if amount:
            rows.resources(cpus=amount)
    rows.sink(Nowhere()).named("out").parallelism(2)
    return plan(job)


@given(st.lists(st.integers(0, 4), min_size=1, max_size=5), st.integers(1, 4), st.integers(1, 4))
def test_tasks_that_find_room_fit_and_those_that_find_none_do_not_fit_everywhere(
    cpus: list[int], first: int, second: int
) -> None:
    free = {"a": Resources(first), "b": Resources(second)}
    without = first_without_room(asking(cpus), free)
    if without is None:
        assert sum(cpus) <= first + second
    else:
        assert sum(cpus) > first + second - 2 * max(cpus), "else one node would have enough left"


def test_large_tasks_are_placed_before_small_ones() -> None:
    assert first_without_room(asking([1, 1, 4]), {"a": Resources(4), "b": Resources(2)}) is None
    assert first_without_room(asking([0, 0]), {"a": Resources(-1)}) is None


def test_what_nodes_lack_is_told_in_the_kinds_that_are_needed() -> None:
    nodes = [NodeResources(f"n{i}", Resources(8, 1 << 30), Resources(i, 3 << 29)) for i in range(5)]
    assert lacking_text(Resources(9), nodes) == (
        "it needs 9 cpus, and nodes have left: n0 nothing; n1 1 cpu; n2 2 cpus; and 2 more"
    )
    assert lacking_text(Resources(0.5, 2 << 30, 1), nodes[1:2]) == (
        "it needs 0.5 cpus, 2GiB memory, 1 gpu, and nodes have left: n1 1 cpu, 1.5GiB memory"
    )
    assert NO_RESOURCES.fits_in(Resources(-1))


def test_a_process_without_room_is_tried_until_there_is_some() -> None:
    tries: list[int] = []
    done = threading.Event()

    def try_start(request: StartProcess) -> bool:
        tries.append(request.process)
        if len(tries) == 3:
            done.set()
        return len(tries) >= 3

    waits = RoomWaits(try_start, again_s=0.01)
    waits.add(StartProcess(7, TaskId("map", 0)))
    assert done.wait(WAIT_S_MAX)
    done.clear()
    tries.clear()
    waits.add(StartProcess(8, TaskId("map", 0)))
    assert done.wait(WAIT_S_MAX), "another thread, if the first one has ended"
    waits.close()
