"""Outputs of causal sinks in rounds: a process that takes one over reports its logs before any process replays."""

from __future__ import annotations

from dataclasses import replace

from clonos_py.causal.codec import encode
from clonos_py.causal.determinants import Abort, InputOrder, Trigger
from clonos_py.job.completed import CompletedCheckpoint
from clonos_py.job.context import CoordinatorContext
from clonos_py.job.events import JobPolicy, OpenGeneration, ProcessDied
from clonos_py.job.recovery import newest_epoch_named
from clonos_py.job.states import JobState
from clonos_py.model.ids import TaskId
from clonos_py.model.messages import Failed, HeldLogsReport, Promote, Replay, RequestCheckpoint, Sever
from clonos_py.model.messages import TriggerCheckpoint as TriggerMessage
from clonos_py.model.plan import PhysicalPlan
from clonos_py.model.purposes import Purpose
from clonos_py.model.segments import LogSegment
from clonos_py.protocols.parts.coordinated import CoordinatedCheckpoints
from tests.unit.job.stage import MIDDLE, SINK, SOURCE, Stage, chain, of, receivers, sent


def causal() -> PhysicalPlan:
    """source -> middle -> sink, a causal one."""
    plan = chain()
    (sink,) = plan.vertices[2].operators
    vertex = replace(plan.vertices[2], operators=(replace(sink, causal=True),))
    return replace(plan, vertices=(*plan.vertices[:2], vertex))


def held(task: TaskId, *, start: int = 0, checkpoint: int = 1) -> LogSegment:
    return LogSegment(task.log_id, 0, 0, start, 2, encode([InputOrder(0, 1), Trigger(checkpoint)]))


def deployed() -> Stage:
    stage = Stage(causal())
    stage.answer(sent(stage.start_up(), Sever))
    stage.start_up()
    return stage


def test_a_deployment_waits_for_the_logs_in_the_outputs_of_causal_sinks() -> None:
    stage = Stage(causal())
    instructions = stage.start_up()
    ((process, sever),) = sent(instructions, Sever)
    assert process == stage.process(SINK)
    assert sent(instructions, Replay) == []
    logs = {task: held(task) for task in (SOURCE, MIDDLE, SINK)}
    replays = dict(sent(stage.say(HeldLogsReport(process, sever.round, list(logs.values()), [])), Replay))
    assert {p: r.log for p, r in replays.items()} == {stage.process(task): [log] for task, log in logs.items()}
    assert replays[stage.process(SINK)].upstream == [logs[SOURCE], logs[MIDDLE]]
    assert stage.machine.state is JobState.RUNNING


def test_a_replaced_causal_sink_is_asked_together_with_the_survivors() -> None:
    stage = deployed()
    standby = stage.standby(SINK)
    instructions = stage.say(ProcessDied(stage.process(SINK), "killed"))
    assert receivers(instructions, Promote) == {standby}
    severs = dict(sent(instructions, Sever))
    assert set(severs) == {stage.process(SOURCE), stage.process(MIDDLE), standby}
    assert severs[standby].replacements == []
    stage.answer([(p, s) for p, s in severs.items() if p != standby])
    log = [held(SINK)]
    ((process, replay),) = sent(stage.say(HeldLogsReport(standby, severs[standby].round, log, [])), Replay)
    assert (process, replay.log) == (standby, log)


def test_logs_of_upstream_tasks_that_failed_with_the_sink_come_from_its_output() -> None:
    stage = deployed()
    stage.say(ProcessDied(stage.process(MIDDLE), "killed"))
    instructions = stage.say(ProcessDied(stage.process(SINK), "killed"))
    severs = dict(sent(stage.instructions, Sever))
    sink = stage.process(SINK)
    stage.answer([(stage.process(task), severs[stage.process(task)]) for task in (SOURCE, MIDDLE)])
    assert sent(instructions, Replay) == []
    logs = [held(MIDDLE), held(SINK)]
    replays = dict(sent(stage.say(HeldLogsReport(sink, severs[sink].round, logs, [])), Replay))
    assert replays[stage.process(MIDDLE)].log == [held(MIDDLE)]
    assert replays[sink].upstream == [held(MIDDLE)]


def test_after_a_rollback_outputs_are_asked_again() -> None:
    stage = deployed()
    instructions = stage.say(Failed(stage.process(MIDDLE), "DivergenceError", "frame 4 differs"))
    assert of(instructions, OpenGeneration)
    assert receivers(stage.start_up(), Sever) == {stage.process(SINK)}


def test_checkpoints_named_in_held_logs_are_void_and_their_numbers_are_not_used_again() -> None:
    stage = Stage(causal())
    ((process, sever),) = sent(stage.start_up(), Sever)
    replays = sent(stage.say(HeldLogsReport(process, sever.round, [held(SOURCE, checkpoint=3)], [])), Replay)
    assert all(replay.aborted == [1, 2, 3] for _, replay in replays)
    stage.start_up()
    triggers = [message.checkpoint for _, message in sent(stage.say(RequestCheckpoint(process)), TriggerMessage)]
    assert triggers == [4]


def test_the_newest_epoch_that_a_log_names_is_found_at_any_place() -> None:
    named = LogSegment(MIDDLE.log_id, 4, 10, 10, 2, encode([InputOrder(0, 1), Abort(7)]))
    later = LogSegment(MIDDLE.log_id, 9, 10, 10, 1, encode([InputOrder(0, 1)]))

    def newest(*logs: LogSegment) -> int:
        return newest_epoch_named(chain(), [HeldLogsReport(n, 1, [log], []) for n, log in enumerate(logs)], lambda _: 0)

    assert newest() == 0
    assert newest(held(SOURCE, checkpoint=3), named) == 7
    assert newest(later) == 9


def test_a_checkpoint_that_is_already_pending_does_not_become_void() -> None:
    completed = CompletedCheckpoint(chain(), None, "", "")
    checkpoints = CoordinatedCheckpoints(CoordinatorContext(chain(), JobPolicy(), completed, 1))
    checkpoints.trigger(Purpose.PERIODIC)
    checkpoints.skip_to(1)
    assert checkpoints.void == []
