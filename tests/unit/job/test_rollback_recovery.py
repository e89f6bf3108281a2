"""Rollback recovery: nothing is logged, and a failure sends all tasks back in their processes (E2, E9)."""

from __future__ import annotations

from dataclasses import replace

from clonos_py.job.events import (
    EndJob,
    JobInstruction,
    JobPolicy,
    KillProcess,
    ManifestWritten,
    OpenGeneration,
    ProcessDied,
    StartProcess,
    WriteManifest,
)
from clonos_py.model.coordinator_events import (
    Deployed,
    Deploying,
    Restarted,
    RolledBack,
    StandbyActivated,
    StandbyLost,
    StandbyPromoted,
    TaskLost,
)
from clonos_py.model.ids import Attempt
from clonos_py.model.messages import Drained, Failed, NewEffect, Promote, Replay, Sever, Started, TriggerCheckpoint
from clonos_py.model.plan import PhysicalPlan
from tests.unit.job.stage import (
    MIDDLE,
    SECOND_US,
    SINK,
    SOURCE,
    Stage,
    chain,
    deployed,
    happened,
    of,
    receivers,
    reported,
    sent,
)
from tests.unit.job.test_takeover import ROSTER, all_well, answer


def plan() -> PhysicalPlan:
    return replace(chain(sharing_depth=0), rollback=True)


def asked_for(instructions: list[JobInstruction]) -> dict[int | None, StartProcess]:
    """The requested processes, by the process whose place they take."""
    return {wish.reuse: wish for wish in of(instructions, StartProcess)}


def gone_back_but_for_the_sink(stage: Stage) -> int:
    """All tasks but the sink have restarted; returns the process that takes the place of the sink's."""
    wishes = asked_for(stage.say(ProcessDied(stage.process(MIDDLE), "killed")))
    awaited = wishes[stage.process(SINK)].process
    for wish in wishes.values():
        if wish.process != awaited:
            stage.say(Started(wish.process, "somewhere"))
    return awaited


def test_one_failure_sends_all_tasks_back_and_asks_no_survivor() -> None:
    stage = deployed(plan())
    source, middle, sink = (stage.process(task) for task in (SOURCE, MIDDLE, SINK))
    standby = stage.standby(MIDDLE)
    instructions = stage.say(ProcessDied(middle, "killed"))
    assert happened(instructions) == [TaskLost, RolledBack]
    assert reported(instructions)[1] == RolledBack(0, "middle[0] failed, and nothing is logged")
    assert sent(instructions, Sever) == []
    assert of(instructions, OpenGeneration) == [OpenGeneration(2)]
    wishes = asked_for(instructions)
    assert (wishes[source].task, wishes[sink].task) == (SOURCE, SINK)
    assert of(instructions, KillProcess) == [], "survivors and standbys stay"
    up = stage.start_up()
    recovered = [event for event in happened(up) if event is not Deploying]
    assert recovered == [StandbyPromoted, StandbyActivated, Deployed], "of the task that failed"
    assert receivers(up, Promote) == {wishes[source].process, wishes[sink].process, standby}
    assert {promote.attempt for _, promote in sent(up, Promote)} == {Attempt(2, 1)}
    assert all(not replay.log for _, replay in sent(up, Replay))


def test_the_restart_is_reported_once_all_tasks_have_had_an_effect() -> None:
    stage = deployed(plan())
    stage.say(ProcessDied(stage.process(MIDDLE), "killed"))
    stage.start_up()
    assert happened(stage.say(NewEffect(stage.process(SOURCE)))) == []
    assert happened(stage.say(NewEffect(stage.process(SINK)))) == []
    assert reported(stage.say(NewEffect(stage.process(MIDDLE)))) == [Restarted(3)]
    assert happened(stage.say(NewEffect(stage.process(SOURCE)))) == []


def test_messages_of_a_process_that_was_a_task_before_the_rollback_are_ignored() -> None:
    stage = deployed(plan())
    source = stage.process(SOURCE)
    stage.say(ProcessDied(stage.process(MIDDLE), "killed"))
    assert stage.say(Drained(source)) == []
    assert stage.say(Failed(source, "ProtocolError", "too late")) == []
    assert stage.say(ProcessDied(source, "it has stopped")) == []


def test_a_task_that_cannot_restart_in_its_process_is_replaced_by_its_standby() -> None:
    stage = deployed(plan())
    standby = stage.standby(SINK)
    begins = gone_back_but_for_the_sink(stage)
    instructions = stage.say(ProcessDied(begins, "its host process had died"))
    assert happened(instructions)[0] is StandbyLost
    assert standby in receivers(instructions, Promote)
    assert Deployed in happened(instructions)


def test_a_silent_host_process_is_given_up_earlier_than_one_that_starts() -> None:
    policy = JobPolicy(checkpoint_interval_us=0, heartbeat_timeout_us=2 * SECOND_US, heartbeat_us=0)
    stage = deployed(plan(), policy)
    standby = stage.standby(SINK)
    silent = gone_back_but_for_the_sink(stage)
    assert of(stage.stand_still(6 * SECOND_US - 1), KillProcess) == []
    instructions = stage.stand_still(1)
    assert of(instructions, KillProcess) == [KillProcess(silent)]
    assert of(instructions, EndJob) == []
    assert standby in receivers(instructions, Promote)


def test_failures_do_not_count_towards_the_limit_of_rollbacks() -> None:
    stage = deployed(plan(), JobPolicy(rollbacks_max=2))
    for _ in range(5):
        assert of(stage.say(ProcessDied(stage.process(MIDDLE), "killed")), EndJob) == []
        stage.start_up()


def test_violations_of_the_protocol_count_towards_it() -> None:
    stage = deployed(plan(), JobPolicy(rollbacks_max=2))
    for _ in range(2):
        assert of(stage.say(Failed(stage.process(SINK), "ProtocolError", "a gap")), EndJob) == []
        stage.start_up()
    (end,) = of(stage.say(Failed(stage.process(SINK), "ProtocolError", "a gap")), EndJob)
    assert end.message == "given up after 2 rollbacks without a completed checkpoint: a gap (its task runs sink)"


def test_a_rollback_waits_for_the_manifest_that_is_being_written() -> None:
    stage = deployed(plan(), JobPolicy(checkpoint_interval_us=SECOND_US))
    assert sent(stage.wait(2 * SECOND_US), TriggerCheckpoint)
    (write,) = of(stage.snapshot(SOURCE, MIDDLE, SINK, checkpoint=1), WriteManifest)
    assert RolledBack not in happened(stage.say(ProcessDied(stage.process(MIDDLE), "killed")))
    instructions = stage.say(ManifestWritten(write.manifest.checkpoint))
    assert RolledBack in happened(instructions)
    assert {promote.restore.checkpoint for _, promote in sent(stage.start_up(), Promote)} == {1}


def test_a_new_coordinator_rolls_back_for_a_task_that_died_before_the_takeover() -> None:
    stage = Stage(plan(), generation=2, roster=ROSTER)
    stage.say(ProcessDied(2, "killed"))
    instructions = answer(stage, *[present for present in all_well() if present.process != 2])
    assert RolledBack in happened(instructions)
    assert sent(instructions, Sever) == []
    assert {wish.task for reuse, wish in asked_for(instructions).items() if reuse in (1, 3)} == {SOURCE, SINK}


def test_a_standby_in_a_shared_host_process_is_promoted_before_a_process_that_has_to_start() -> None:
    stage = Stage(plan())
    for wish in of(stage.instructions, StartProcess):
        stage.say(Started(wish.process, "somewhere", host_process=9 if wish.shares else 0))
    instructions = stage.say(ProcessDied(stage.process(MIDDLE), "killed"))
    survivors = [wish for reuse, wish in asked_for(instructions).items() if reuse is not None]
    since = len(stage.instructions)
    for wish in survivors:
        stage.say(Started(wish.process, "somewhere"))
    assert Deployed in happened(stage.instructions[since:])
