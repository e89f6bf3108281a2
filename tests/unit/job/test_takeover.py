"""A coordinator in the place of a lost one: what it asks, and how it uses the answers."""

from __future__ import annotations

from typing import Any

import pytest

from clonos_py.job.events import (
    EndJob,
    JobInstruction,
    JobPolicy,
    KillProcess,
    ManifestWritten,
    ProcessDied,
    StartProcess,
    WriteManifest,
)
from clonos_py.job.states import JobState
from clonos_py.model.coordinator_events import (
    CheckpointCompleted,
    CoordinatorReplaced,
    Deployed,
    RestartedWithoutLog,
    RolledBack,
    TaskLost,
)
from clonos_py.model.ids import Attempt, TaskId
from clonos_py.model.messages import (
    AbortCheckpoint,
    Complete,
    Drained,
    Failed,
    HeldLogsReport,
    Pong,
    Prepare,
    Promote,
    Replay,
    Sever,
    Snapshotted,
    Started,
    StatusReport,
    StatusRequest,
    TriggerCheckpoint,
)
from clonos_py.model.segments import Incarnation
from clonos_py.model.snapshots import Manifest, TaskHandle
from tests.unit.job.stage import MIDDLE, SECOND_US, SINK, SOURCE, Stage, chain, happened, of, receivers, sent

ROSTER = {1: SOURCE, 2: MIDDLE, 3: SINK, 4: SOURCE, 5: MIDDLE, 6: SINK}
"""1 to 3 are the tasks, 4 to 6 their standbys."""
FIRST = Attempt(1, 1)


def manifest(checkpoint: int) -> Manifest:
    handles = [TaskHandle(task, checkpoint, {}, b"", {}) for task in (SOURCE, MIDDLE, SINK)]
    return Manifest("stage", checkpoint, 1, 128, {"source": 1, "middle": 1, "sink": 1}, handles)


def taking_over(roster: dict[int, TaskId] | None = None, checkpoint: int = 0, policy: JobPolicy | None = None) -> Stage:
    roster = ROSTER if roster is None else roster
    return Stage(None, policy, manifest(checkpoint) if checkpoint else None, generation=2, roster=roster)


def answer(stage: Stage, *answers: StatusReport) -> list[JobInstruction]:
    """Each process starts and sends its status; all instructions after that."""
    since = len(stage.instructions)
    for present in answers:
        stage.say(Started(present.process, f"host:{present.process}"))
        stage.say(present)
    return stage.instructions[since:]


def task(number: int, attempt: Attempt = FIRST, **more: Any) -> StatusReport:
    return StatusReport(number, attempt, begun=True, **more)


def all_well(**more: Any) -> list[StatusReport]:
    return [task(n, **more) for n in (1, 2, 3)] + [StatusReport(n) for n in (4, 5, 6)]


def test_all_processes_are_asked_and_nothing_happens_before_all_have_answered() -> None:
    stage = taking_over()
    assert receivers(stage.instructions, StatusRequest) == set(ROSTER)
    answer(stage, *all_well()[:5])
    assert len(stage.instructions) == len(ROSTER)
    assert stage.machine.state is JobState.TAKING_OVER


def test_a_healthy_job_continues_without_changes() -> None:
    stage = taking_over()
    instructions = answer(stage, *all_well())
    assert happened(instructions) == [CoordinatorReplaced]
    assert stage.machine.state is JobState.RUNNING
    for kind in (Promote, Sever, Replay, Prepare):
        assert sent(instructions, kind) == []
    assert of(instructions, StartProcess) == []


def test_checkpoints_of_the_lost_coordinator_are_void_and_their_numbers_are_not_used_again() -> None:
    policy = JobPolicy(checkpoint_interval_us=SECOND_US, heartbeat_timeout_us=100 * SECOND_US)
    stage = taking_over(checkpoint=4, policy=policy)
    instructions = answer(stage, *all_well(checkpoint=5, restore=3))
    caused = sent(instructions, AbortCheckpoint)
    void = {message.checkpoint for _, message in caused}
    assert {process for process, _ in caused} == {1, 2, 3}
    assert 5 in void
    assert receivers(instructions, Complete) == {1, 2, 3}
    assert {m.restore.checkpoint for _, m in sent(instructions, Prepare)} == {4}
    assert stage.say(Snapshotted(1, TaskHandle(SOURCE, 5, {}, b"", {}))) == [], "too late to count"
    ((_, trigger),) = sent(stage.wait(SECOND_US), TriggerCheckpoint)
    assert trigger.checkpoint > max(void)


def test_a_manifest_of_the_new_coordinator_has_its_generation() -> None:
    policy = JobPolicy(checkpoint_interval_us=SECOND_US, heartbeat_timeout_us=100 * SECOND_US)
    stage = taking_over(policy=policy)
    answer(stage, *all_well())
    ((_, trigger),) = sent(stage.wait(SECOND_US), TriggerCheckpoint)
    for number in (1, 2, 3):
        caused = stage.say(Snapshotted(number, TaskHandle(ROSTER[number], trigger.checkpoint, {}, b"", {})))
    (write,) = of(caused, WriteManifest)
    assert write.manifest.generation == 2
    assert CheckpointCompleted in happened(stage.say(ManifestWritten(trigger.checkpoint)))


def test_a_task_that_died_before_the_takeover_is_replaced() -> None:
    stage = taking_over()
    stage.say(ProcessDied(2, "killed"))
    instructions = answer(stage, *[present for present in all_well() if present.process != 2])
    ((process, promote),) = sent(instructions, Promote)
    assert process == 5
    assert promote.attempt > FIRST
    assert promote.attempt.counter > 1, "it is not the first attempt"
    assert receivers(instructions, Sever) == {1, 3}
    assert TaskLost in happened(instructions)


def test_a_task_that_died_before_the_takeover_without_a_standby_gets_a_new_process() -> None:
    stage = taking_over({1: SOURCE, 2: MIDDLE, 3: SINK})
    stage.say(ProcessDied(2, "killed"))
    answer(stage, task(1), task(3))
    started = [i for i in of(stage.instructions, StartProcess) if i.task == MIDDLE]
    assert started
    assert min(i.process for i in started) > 3, "numbers are never used twice"


def test_a_round_of_the_lost_coordinator_is_begun_again() -> None:
    """Process 5 was promoted, and has no log yet."""
    stage = taking_over()
    stage.say(ProcessDied(2, "killed"))
    second = Attempt(1, 2)
    half_way = StatusReport(5, second, round=7)
    instructions = answer(stage, task(1, round=7), task(3), StatusReport(4), half_way, StatusReport(6))
    severs = sent(instructions, Sever)
    assert sent(instructions, Promote) == []
    assert {process for process, _ in severs} == {1, 3, 5}
    assert {message.round for _, message in severs} == {8}
    assert {tuple(message.attempts) for _, message in severs} == {((MIDDLE, second),)}
    assert stage.say(HeldLogsReport(1, 7, [], [])) == [], "an answer to the lost coordinator"
    assert receivers(stage.answer(severs), Replay) == {5}


def test_a_replacement_that_would_start_from_an_older_checkpoint_is_killed() -> None:
    stage = taking_over(checkpoint=4)
    stage.say(ProcessDied(2, "killed"))
    stale = StatusReport(5, Attempt(1, 2), restore=3)
    instructions = answer(stage, task(1), task(3), StatusReport(4), stale, StatusReport(6))
    assert of(instructions, KillProcess) == [KillProcess(5)]
    assert {i.task for i in of(instructions, StartProcess)} == {MIDDLE}


def test_of_two_processes_that_report_one_task_the_newer_attempt_stays() -> None:
    stage = taking_over()
    instructions = answer(stage, task(1), task(2), task(3), StatusReport(4), task(5, Attempt(1, 2)), StatusReport(6))
    assert of(instructions, KillProcess) == [KillProcess(2)]
    assert stage.machine.owners[MIDDLE] == 5


def test_neighbours_reveal_a_zombie_even_if_its_replacement_is_dead() -> None:
    stage = taking_over()
    stage.say(ProcessDied(5, "killed"))
    newer = Attempt(1, 2)
    instructions = answer(stage, task(1, peers=[(MIDDLE, newer)]), task(2), task(3), StatusReport(4), StatusReport(6))
    assert of(instructions, KillProcess) == [KillProcess(2)]
    stage.start_up()
    assert stage.attempts[MIDDLE][1] > newer


def test_a_process_that_is_silent_for_two_heartbeat_timeouts_after_the_others_is_replaced() -> None:
    stage = taking_over(policy=JobPolicy(heartbeat_timeout_us=2 * SECOND_US))
    stage.now_us = SECOND_US
    answer(stage, *[present for present in all_well() if present.process != 3])
    assert stage.machine.wake_us == 5 * SECOND_US
    instructions = stage.wait(4 * SECOND_US)
    assert of(instructions, KillProcess) == [KillProcess(3)]
    assert receivers(instructions, Promote) == {6}


def test_a_process_that_answered_early_is_not_silent_because_another_answered_late() -> None:
    """Until all have answered no process is pinged; reports of the others come right after it."""
    stage = taking_over(policy=JobPolicy(heartbeat_timeout_us=2 * SECOND_US, heartbeat_us=SECOND_US // 4))
    answer(stage, *[present for present in all_well() if present.process != 2])
    stage.wait(3 * SECOND_US)
    answer(stage, task(2))
    for process in (2, 4, 5, 6):
        stage.say(Pong(process, 0))
    assert of(stage.wait(SECOND_US), KillProcess) == []


def test_the_takeover_does_not_wait_for_a_process_that_is_still_starting() -> None:
    stage = taking_over()
    answer(stage, *all_well()[:5])
    assert CoordinatorReplaced in happened(stage.say(StatusReport(6)))
    assert receivers(stage.say(Started(6, "host:6")), Prepare) == set(), "there is no checkpoint yet"
    assert receivers(stage.say(ProcessDied(3, "killed")), Promote) == {6}


def test_messages_before_all_have_answered_count_afterwards() -> None:
    stage = taking_over()
    answer(stage, *all_well()[:5])
    for number in (1, 2, 3):
        assert stage.say(Drained(number)) == []
    instructions = answer(stage, StatusReport(6))
    assert receivers(instructions, TriggerCheckpoint) == {1}


def test_a_drained_job_takes_a_final_checkpoint_after_the_takeover() -> None:
    stage = taking_over(checkpoint=4)
    instructions = answer(stage, *all_well(drained=True, checkpoint=4))
    assert receivers(instructions, TriggerCheckpoint) == {1}


def test_a_failure_while_there_was_no_coordinator_ends_the_job_after_the_takeover() -> None:
    stage = taking_over()
    failed = task(2, failure=Failed(2, "UserCodeError", "division by zero"))
    instructions = answer(stage, task(1), failed, task(3), StatusReport(4), StatusReport(5), StatusReport(6))
    assert of(instructions, EndJob) == [EndJob("UserCodeError", "division by zero")]


@pytest.mark.parametrize("roster", [{}, {1: SOURCE, 2: MIDDLE}])
def test_a_job_that_was_never_deployed_is_deployed(roster: dict[int, TaskId]) -> None:
    stage = taking_over(roster)
    answer(stage, *[StatusReport(number) for number in roster])
    instructions = stage.start_up()
    promoted = {promote.attempt for _, promote in sent(stage.instructions, Promote)}
    assert promoted == {Attempt(2, 1)}
    assert Deployed in happened(instructions)
    started = [i.task for i in of(stage.instructions, StartProcess)] + list(roster.values())
    assert sorted(started) == sorted([SOURCE, MIDDLE, SINK] * 2)


def test_missing_standbys_are_started() -> None:
    stage = taking_over({1: SOURCE, 2: MIDDLE, 3: SINK, 4: SOURCE})
    instructions = answer(stage, task(1), task(2), task(3), StatusReport(4))
    assert [i.task for i in of(instructions, StartProcess)] == [MIDDLE, SINK]


def test_orphans_of_failures_before_the_takeover_are_rolled_back() -> None:
    stage = Stage(chain(sharing_depth=1), generation=2, roster=ROSTER)
    stage.say(ProcessDied(1, "killed"))
    stage.say(ProcessDied(2, "killed"))
    answer(stage, task(3), StatusReport(4), StatusReport(5), StatusReport(6))
    stage.answer(sent(stage.instructions, Sever), depends=[0])
    assert RolledBack in happened(stage.instructions)


AVAILABLE = JobPolicy(availability=True, checkpoint_interval_us=0)


def anew(stage: Stage, instructions: list[JobInstruction]) -> dict[int, int]:
    """By process that is given a log to replay after all have answered: the incarnation of the log."""
    replays = sent(stage.answer(sent(instructions, Sever)), Replay)
    return {process: replay.incarnation.number for process, replay in replays}


def one_anew(checkpoint: int = 0, began_at: int = 0) -> Stage:
    """A stage after a takeover; the task in the middle had restarted in round 3."""
    stage = taking_over(checkpoint=checkpoint, policy=AVAILABLE)
    middle = task(2, Attempt(1, 2), incarnation=Incarnation(1, began_at, 3))
    answer(stage, task(1), middle, task(3, incarnations={MIDDLE.log_id: 1}), *[StatusReport(n) for n in (4, 5, 6)])
    return stage


def test_after_a_takeover_a_restarted_task_replays_the_log_of_its_last_incarnation() -> None:
    stage = one_anew()
    instructions = stage.say(ProcessDied(2, "killed"))
    assert RestartedWithoutLog not in happened(instructions)
    assert anew(stage, instructions) == {5: 1}


def test_after_a_takeover_a_receiver_of_a_task_that_restarted_without_log_restarts_so_too() -> None:
    stage = one_anew()
    instructions = stage.say(ProcessDied(3, "killed"))
    assert RestartedWithoutLog in happened(instructions)
    assert anew(stage, instructions) == {6: 1}


def test_an_incarnation_that_a_checkpoint_covers_makes_no_receiver_restart_without_log() -> None:
    stage = one_anew(checkpoint=4, began_at=3)
    assert RestartedWithoutLog not in happened(stage.say(ProcessDied(3, "killed")))


def test_the_incarnation_of_a_task_that_died_with_the_coordinator_is_reported_by_its_receivers() -> None:
    stage = taking_over(policy=AVAILABLE)
    stage.say(ProcessDied(2, "killed"))
    instructions = answer(
        stage, task(1), task(3, incarnations={MIDDLE.log_id: 2}), *[StatusReport(n) for n in (4, 5, 6)]
    )
    assert anew(stage, instructions) == {5: 2}


@pytest.mark.parametrize("sink_died", [False, True])
def test_an_incarnation_whose_first_frame_was_under_way_is_known_once_survivors_have_answered(sink_died: bool) -> None:
    """Its task died after the coordinator, and before its receiver had reported it."""
    stage = taking_over(policy=AVAILABLE)
    dead = {2, 3} if sink_died else {2}
    for process in dead:
        stage.say(ProcessDied(process, "killed"))
    alive = [task(n, round=3) for n in {1, 2, 3} - dead]
    instructions = answer(stage, *alive, *[StatusReport(n) for n in (4, 5, 6)])
    instructions = stage.answer(sent(instructions, Sever), incarnations={MIDDLE.log_id: 1})
    replays = dict(sent(instructions, Replay))
    if sink_died:
        assert happened(instructions) == [RestartedWithoutLog], "the sink may have taken what no log repeats"
        replays = dict(sent(stage.answer(sent(instructions, Sever), incarnations={MIDDLE.log_id: 1}), Replay))
    assert {process: replay.incarnation.number for process, replay in replays.items()} == (
        {5: 1, 6: 1} if sink_died else {5: 1}
    )
