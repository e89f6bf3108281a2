"""How the coordinator ends loops: which tasks it probes when, how it uses the answers, and when it ends the heads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import msgspec

from clonos_py.job.events import JobInstruction, JobPolicy, ManifestWritten, ProcessDied, WriteManifest
from clonos_py.model.ids import TaskId
from clonos_py.model.messages import (
    Drained,
    EndLoop,
    Probe,
    Probed,
    RequestCheckpoint,
    Sever,
    Snapshotted,
    TriggerCheckpoint,
)
from clonos_py.model.operators import EventTime, Source
from clonos_py.model.plan import Edge, Partitioning, PhysicalPlan, SourcePlan, Vertex
from clonos_py.model.snapshots import TaskHandle
from clonos_py.process.contract import InputProgress, TaskProgress
from clonos_py.settings.protocols import UNCOORDINATED
from tests.unit.job.stage import Stage, deployed, of, receivers, sent
from tests.unit.task.loops import BODY, FEED, HEAD, OUT, looping
from tests.witness import NUMBERS

CUT = {HEAD: [5], BODY: [3, 4]}
TAKEN = {HEAD: [2, 3], BODY: [5]}
"""Of the channel from the head to the body 5 frames, of the one that leads back 3: none is on its way."""


class Loop(Stage):
    """feed -> head <-> body -> out, with checkpoints only on request."""

    def __init__(self) -> None:
        super().__init__(looping(), JobPolicy(checkpoint_interval_us=0))
        self.start_up()

    def probed(self) -> list[tuple[int, Probe]]:
        return sent(self.instructions, Probe)

    def drained(self, *tasks: TaskId) -> list[JobInstruction]:
        since = len(self.instructions)
        for task in tasks:
            self.say(Drained(self.process(task)))
        return self.instructions[since:]

    def counted(self, passive: bool = True, epoch: int = 0, **changed: list[int]) -> list[JobInstruction]:
        """Both tasks answer the last probe. ``changed``: the frames that the body has taken."""
        since, number = len(self.instructions), self.probed()[-1][1].number
        for task in (HEAD, BODY):
            taken = changed.get("taken", TAKEN[task]) if task == BODY else TAKEN[task]
            self.say(Probed(self.process(task), number, passive, epoch, CUT[task], taken))
        return self.instructions[since:]

    def completed(self, checkpoint: int, tasks: Sequence[TaskId] = (FEED, HEAD, BODY, OUT)) -> list[JobInstruction]:
        """All tasks take their snapshots, and the manifest is written."""
        since = len(self.instructions)
        for task in tasks:
            self.say(Snapshotted(self.process(task), TaskHandle(task, checkpoint, {}, b"", {})))
        (manifest,) = of(self.instructions[since:], WriteManifest)
        self.say(ManifestWritten(manifest.manifest.checkpoint))
        return self.instructions[since:]


def quiet() -> Loop:
    """A stage whose loop has just been found empty."""
    stage = Loop()
    stage.drained(FEED)
    stage.counted()
    return stage


def test_tasks_of_a_loop_are_probed_when_all_its_inputs_have_ended() -> None:
    stage = Loop()
    assert not stage.probed()
    assert receivers(stage.drained(FEED), Probe) == {stage.process(HEAD), stage.process(BODY)}


def test_a_job_without_a_loop_probes_no_task() -> None:
    assert not sent(deployed().drain(), Probe)


def test_tasks_of_a_loop_are_probed_again_later_while_frames_are_in_flight() -> None:
    stage = Loop()
    stage.drained(FEED)
    assert not sent(stage.counted(taken=[4]), Probe)
    assert len(sent(stage.wait(20_000), Probe)) == 2
    stage.counted(taken=[4])
    assert not sent(stage.wait(15_000), Probe), "the pause grows"
    assert len(sent(stage.wait(10_000), Probe)) == 2


def test_tasks_of_a_loop_are_probed_again_while_one_is_not_passive() -> None:
    stage = Loop()
    stage.drained(FEED)
    assert not sent(stage.counted(passive=False), TriggerCheckpoint)
    assert sent(stage.wait(20_000), Probe)


def test_an_answer_to_an_earlier_probe_does_not_count() -> None:
    stage = Loop()
    stage.drained(FEED)
    stage.counted(taken=[4])
    first = stage.probed()[0][1].number
    stage.wait(20_000)
    for task in (HEAD, BODY):
        assert not stage.say(Probed(stage.process(task), first, True, 0, CUT[task], TAKEN[task]))


def test_an_empty_loop_ends_after_a_checkpoint() -> None:
    stage = Loop()
    stage.drained(FEED)
    caused = stage.counted()
    assert receivers(caused, TriggerCheckpoint) == {stage.process(FEED)}
    assert not sent(caused, EndLoop)
    assert receivers(stage.completed(1), EndLoop) == {stage.process(HEAD)}


def test_a_checkpoint_from_before_the_answers_does_not_end_the_loop() -> None:
    stage = Loop()
    stage.say(RequestCheckpoint(stage.process(FEED)))
    stage.drained(FEED)
    stage.counted(epoch=1)
    caused = stage.completed(1)
    assert not sent(caused, EndLoop)
    assert sent(caused, TriggerCheckpoint), "a second checkpoint"
    assert sent(stage.completed(2), EndLoop)


def test_a_loop_ends_with_a_checkpoint_that_was_already_under_way() -> None:
    stage = Loop()
    stage.say(RequestCheckpoint(stage.process(FEED)))
    stage.drained(FEED)
    assert not sent(stage.counted(), TriggerCheckpoint)
    assert sent(stage.completed(1), EndLoop)


def test_loop_heads_are_ended_once() -> None:
    stage = quiet()
    stage.completed(1)
    assert not sent(stage.wait(10_000_000), EndLoop)


def test_a_failure_invalidates_all_answers_to_probes() -> None:
    stage = quiet()
    caused = stage.say(ProcessDied(stage.process(BODY), "killed"))
    stage.answer(sent(caused, Sever))
    assert not sent(stage.instructions, EndLoop)
    assert len(stage.probed()) == 4, "both are asked again when the round is over"
    stage.counted()
    assert receivers(stage.completed(2), EndLoop) == {stage.process(HEAD)}


def test_loop_heads_are_ended_again_after_a_failure() -> None:
    stage = quiet()
    stage.completed(1)
    caused = stage.say(ProcessDied(stage.process(HEAD), "killed"))
    stage.answer(sent(caused, Sever))
    stage.counted(epoch=1)
    assert receivers(stage.completed(2), EndLoop) == {stage.process(HEAD)}


def test_a_loop_whose_heads_have_ended_is_not_probed() -> None:
    stage = Loop()
    assert not sent(stage.drained(HEAD, FEED), Probe)


def test_numbers_of_probes_differ_from_those_of_an_earlier_coordinator() -> None:
    stage = Loop()
    stage.drained(FEED)
    later = Stage(looping(), generation=2, roster={n: t for t, (n, _) in stage.attempts.items()})
    assert later.machine.generation == 2
    assert later.machine._loops._context.generation * (1 << 32) > stage.probed()[0][1].number


def test_messages_of_loops_can_be_encoded() -> None:
    message = Probed(1, 2, True, 3, [4], [5])
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(message), type=Probed) == message


SIDE = TaskId("side", 0)


def with_side() -> PhysicalPlan:
    """A plan with side -> body, besides the loop."""
    plan = looping()
    side = Vertex("side", 1, SourcePlan("side", Source, (NUMBERS,), EventTime((None,))), (), ())
    edges = (*plan.edges, Edge(4, "side", -1, 0, "body", 0, 0, Partitioning.REBALANCE, (), plan.edges[1].schema))
    vertices = (plan.vertices[0], side, *plan.vertices[1:])
    return replace(plan, vertices=vertices, edges=edges, protocol=UNCOORDINATED, sharing_depth=0, rollback=True)


def snap(stage: Stage, task: TaskId, epoch: int, taken: list[int], cut: list[int]) -> None:
    progress = TaskProgress([InputProgress(n) for n in taken], cut, [], [], False, 0, [], [], [], {})
    stage.say(Snapshotted(stage.process(task), TaskHandle(task, epoch, {}, msgspec.msgpack.encode(progress), {})))


def test_a_loop_ends_only_when_the_recovery_line_has_passed_the_answers() -> None:
    """The body has taken frames of the side since its snapshot on the line; the next time it may produce other rows."""
    stage = Stage(with_side(), JobPolicy(checkpoint_interval_us=0))
    stage.start_up()
    snap(stage, FEED, 1, [], [2])
    snap(stage, SIDE, 1, [], [1])
    snap(stage, HEAD, 2, [2, 3], [5])
    snap(stage, BODY, 3, [5, 1], [3, 4])
    snap(stage, OUT, 4, [4], [])
    stage.now_us += 1
    (write,) = of(stage.wait(10), WriteManifest)
    stage.say(ManifestWritten(write.manifest.checkpoint))
    stage.say(Drained(stage.process(FEED)))
    stage.say(Drained(stage.process(SIDE)))
    number = sent(stage.instructions, Probe)[-1][1].number
    stage.say(Probed(stage.process(HEAD), number, True, 2, [5], [2, 3]))
    stage.say(Probed(stage.process(BODY), number, True, 3, [3, 5], [5, 3]))
    snap(stage, HEAD, 20, [2, 3], [5])
    snap(stage, BODY, 21, [5, 3], [3, 5])
    (*_, write) = of(stage.wait(10), WriteManifest)
    caused = stage.say(ManifestWritten(write.manifest.checkpoint))
    assert not sent(caused, EndLoop)
    snap(stage, SIDE, 40, [], [3])
    (*_, write) = of(stage.wait(10), WriteManifest)
    assert sent(stage.say(ManifestWritten(write.manifest.checkpoint)), EndLoop)
