"""When the simulator expects a rollback: by what survivors depend on, not by their reports."""

from __future__ import annotations

from collections.abc import Collection

from clonos_py.model.ids import TaskId
from clonos_py.model.plan import Partitioning, PhysicalPlan
from clonos_py.runtime.sim.histories import HistoryLedger
from clonos_py.runtime.sim.origin import Volume
from clonos_py.runtime.sim.orphans import Extent, Survivor, called_for, may_hold, must_hold, orphan
from clonos_py.runtime.sim.steps import StepKind
from clonos_py.runtime.sim.topology import InputEdge, SimulatedVertex, Topology

TASKS = SOURCE, FIRST, SECOND, SINK = TaskId("source0", 0), TaskId("step1", 0), TaskId("step2", 0), TaskId("sink3", 0)
L0, L1, L2, _ = (task.log_id for task in TASKS)
NOTHING_STABLE = dict.fromkeys((task.log_id for task in TASKS), 0)


def chain(sharing_depth: int, also_directly: bool = False) -> PhysicalPlan:
    """source0 -> step1 -> step2 -> sink3, and from source0 to sink3 if ``also_directly``."""

    def node(*sources: int) -> SimulatedVertex:
        feeds = tuple(InputEdge(source, Partitioning.FORWARD, 4, 0) for source in sources)
        return SimulatedVertex(1, feeds, (StepKind.PLAIN,))

    source = SimulatedVertex(1, (), (), Volume(8, 1, 1, 1_000, None))
    last = node(2, 0) if also_directly else node(2)
    return Topology((source, node(0), node(1), last), sharing_depth).plan(HistoryLedger())


def survivor(task: TaskId, depends: Extent, holds: Extent, received_from: Collection[TaskId] = ()) -> Survivor:
    return Survivor(task, depends, holds, received_from)


def test_a_survivor_that_depends_on_more_than_is_replayed_is_an_orphan() -> None:
    plan = chain(1)
    sink = survivor(SINK, {L0: 7, L1: 5, L2: 3}, {L2: 3})
    assert orphan(plan, {L0: 6}, NOTHING_STABLE, [sink]) == (SINK, SOURCE)
    assert orphan(plan, {L0: 7}, NOTHING_STABLE, [sink]) is None
    assert orphan(plan, {L0: 6}, {**NOTHING_STABLE, L0: 7}, [sink]) is None


def test_a_survivor_with_enough_of_the_log_prevents_orphans() -> None:
    plan = chain(1)
    sink = survivor(SINK, {L0: 7, L1: 5, L2: 3}, {L2: 3}, (SECOND,))
    second = survivor(SECOND, {L0: 7, L1: 5}, {L1: 5}, (FIRST,))
    assert not called_for(plan, {FIRST}, NOTHING_STABLE, [second, sink])
    assert called_for(plan, {SOURCE, FIRST}, NOTHING_STABLE, [second, sink])


def test_a_path_longer_than_the_depth_counts_only_if_frames_passed_it() -> None:
    plan = chain(1)
    assert not called_for(plan, {SOURCE, FIRST}, NOTHING_STABLE, [survivor(SECOND, {}, {})])
    assert called_for(plan, {SOURCE, FIRST}, NOTHING_STABLE, [survivor(SECOND, {}, {}, (FIRST,))])


def test_at_full_depth_no_rollback_is_expected() -> None:
    sink = survivor(SINK, {L0: 7, L1: 5, L2: 3}, {L0: 7, L1: 5, L2: 3}, (SECOND,))
    assert not called_for(chain(-1), {SOURCE, FIRST, SECOND}, NOTHING_STABLE, [sink])


def test_logs_may_be_held_within_the_depth_and_must_be_on_every_path_within_it() -> None:
    assert may_hold(chain(2))[SINK] == {L1, L2}
    assert must_hold(chain(2))[SINK] == {L1, L2}
    assert may_hold(chain(1, also_directly=True))[SINK] == {L0, L2}
    assert must_hold(chain(1, also_directly=True))[SINK] == {L2}
    assert must_hold(chain(-1, also_directly=True))[SINK] == {L0, L1, L2}
