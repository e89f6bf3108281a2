"""How the coordinator tells sources how far they may read: the slowest one decides."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from clonos_py.job.events import ProcessDied
from clonos_py.job.source_alignment import INTERVAL_US
from clonos_py.model.ids import TaskId
from clonos_py.model.messages import AlignSource, SourceReached
from clonos_py.model.operators import EventTime, Source
from clonos_py.model.plan import Edge, Partitioning, PhysicalPlan, SourcePlan, Vertex
from clonos_py.model.times import MAX_TIME, MIN_TIME
from tests.unit.job.stage import MIDDLE, SOURCE, Stage, chain, deployed, sent
from tests.witness import NUMBERS

OTHER = TaskId("other", 0)


def two_sources(ahead: int | None) -> PhysicalPlan:
    """The source with ``ahead``, and another one without."""
    plan = chain()
    first, *rest = plan.vertices
    assert first.source is not None
    first = replace(first, source=replace(first.source, event_time=EventTime(("number",), ahead_us=ahead)))
    source = SourcePlan("other", Source, (NUMBERS,), EventTime(("number",)))
    edge = Edge(2, "other", -1, 0, "middle", 0, 0, Partitioning.FORWARD, (), NUMBERS)
    return replace(plan, vertices=(first, *rest, Vertex("other", 1, source, (), ())), edges=(*plan.edges, edge))


def limits(stage: Stage) -> dict[TaskId, int]:
    """The limits that are sent next."""
    found = {process: message.limit_us for process, message in sent(stage.wait(INTERVAL_US + 1), AlignSource)}
    return {task: found[stage.process(task)] for task in (SOURCE, OTHER) if stage.process(task) in found}


def reached(stage: Stage, **tasks: int) -> None:
    for name, at in tasks.items():
        assert not stage.say(SourceReached(stage.process(TaskId(name, 0)), at))


def test_a_source_may_be_so_far_ahead_of_the_slowest() -> None:
    stage = deployed(two_sources(10))
    assert limits(stage) == {SOURCE: MIN_TIME, OTHER: MAX_TIME}, "nothing is known yet"
    reached(stage, source=70, other=50)
    assert limits(stage) == {SOURCE: 60, OTHER: MAX_TIME}
    reached(stage, source=55)
    assert limits(stage)[SOURCE] == 60
    reached(stage, other=MAX_TIME)
    assert limits(stage)[SOURCE] == 65, "it is the slowest itself: a source that has ended or is idle does not count"
    reached(stage, source=MAX_TIME)
    assert limits(stage)[SOURCE] == MAX_TIME


def test_nothing_is_sent_where_no_source_waits() -> None:
    assert not limits(deployed(two_sources(None)))


def test_sources_are_not_asked_while_a_task_is_replaced() -> None:
    stage = deployed(two_sources(10))
    reached(stage, source=70, other=50)
    stage.say(ProcessDied(stage.process(MIDDLE), "killed"))
    assert not limits(stage)


@pytest.mark.parametrize("message", [AlignSource(5), SourceReached(3, MAX_TIME)])
def test_messages_can_be_sent(message: AlignSource | SourceReached) -> None:
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(message), type=type(message)) == message
