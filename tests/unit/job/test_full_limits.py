"""When sources may end before all is read: their rows have no effect, and no task can go back to where they had."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from clonos_py.job.events import JobInstruction, JobPolicy, ManifestWritten, ProcessDied, WriteManifest
from clonos_py.job.full_limits import sources_without_effect
from clonos_py.model.messages import EndSource, Satisfied, TriggerCheckpoint
from clonos_py.model.operators import EventTime, Operator, Source
from clonos_py.model.plan import Edge, OperatorPlan, Partitioning, PhysicalPlan, SourcePlan, Vertex
from tests.unit.job.stage import MIDDLE, SINK, SOURCE, Stage, chain, deployed, of, receivers, sent
from tests.witness import NUMBERS


def with_other_sink(plan: PhysicalPlan) -> PhysicalPlan:
    """The rows of the source also go to a sink by another way."""
    other = Vertex("other", 1, None, (OperatorPlan("other", "sink", Operator, (), sink=True),), ())
    edge = Edge(2, "source", -1, 0, "other", 0, 0, Partitioning.FORWARD, (), NUMBERS)
    return replace(plan, vertices=(*plan.vertices, other), edges=(*plan.edges, edge))


def with_other_source(plan: PhysicalPlan) -> PhysicalPlan:
    """Rows of another source reach the sink by another way."""
    other = Vertex("other", 1, SourcePlan("other", Source, (NUMBERS,), EventTime((None,))), (), ())
    edge = Edge(2, "other", -1, 0, "sink", 0, 0, Partitioning.FORWARD, (), NUMBERS)
    return replace(plan, vertices=(*plan.vertices, other), edges=(*plan.edges, edge))


def test_a_source_whose_rows_all_lead_to_full_limits_has_no_effect() -> None:
    assert sources_without_effect(chain(), []) == set()
    assert sources_without_effect(chain(), ["middle"]) == {"source"}
    assert sources_without_effect(with_other_sink(chain()), ["middle"]) == set()
    assert sources_without_effect(with_other_sink(chain()), ["middle", "other"]) == {"source"}
    assert sources_without_effect(with_other_source(chain()), ["middle"]) == {"source"}


def completed(stage: Stage, checkpoint: int) -> list[JobInstruction]:
    (manifest,) = of(stage.snapshot(SOURCE, MIDDLE, SINK, checkpoint=checkpoint), WriteManifest)
    return stage.say(ManifestWritten(manifest.manifest.checkpoint))


def test_the_source_ends_when_a_checkpoint_has_the_full_limit() -> None:
    stage = deployed(policy=JobPolicy(checkpoint_interval_us=0))
    full = stage.say(Satisfied(stage.process(MIDDLE), 0))
    assert receivers(full, TriggerCheckpoint) == {stage.process(SOURCE)}
    assert not sent(full, EndSource)
    assert not stage.say(Satisfied(stage.process(MIDDLE), 0)), "the checkpoint is under way"
    assert receivers(completed(stage, 1), EndSource) == {stage.process(SOURCE)}
    assert receivers(stage.say(Satisfied(stage.process(MIDDLE), 1)), EndSource) == {stage.process(SOURCE)}


def test_a_limit_that_is_lost_with_its_task_does_not_count() -> None:
    stage = deployed(policy=JobPolicy(checkpoint_interval_us=0))
    stage.say(Satisfied(stage.process(MIDDLE), 0))
    stage.say(ProcessDied(stage.process(MIDDLE), "killed"))
    assert not stage.machine._full_limits.full


@pytest.mark.parametrize("message", [EndSource(), Satisfied(3, 4)])
def test_messages_can_be_sent(message: EndSource | Satisfied) -> None:
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(message), type=type(message)) == message
