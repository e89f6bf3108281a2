"""Standbys that share a host process: which one is promoted, when the others leave, and what replaces them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from clonos_py.job.events import (
    DismissProcess,
    JobInstruction,
    JobPolicy,
    KillProcess,
    ManifestWritten,
    ProcessDied,
    ReportEvent,
    StartProcess,
    StopRequested,
)
from clonos_py.job.states import JobState
from clonos_py.model.coordinator_events import StandbyLost, TaskLost
from clonos_py.model.ids import Attempt, TaskId
from clonos_py.model.messages import (
    Prepare,
    Prepared,
    Promote,
    Replay,
    Running,
    Sever,
    Started,
    StatusReport,
    TriggerCheckpoint,
)
from clonos_py.model.plan import PhysicalPlan
from tests.unit.job.stage import MIDDLE, SECOND_US, SINK, SOURCE, Stage, chain, happened, of, receivers, sent

HOME, OTHER, THIRD = 40, 50, 60
TASKS = {1: SOURCE, 2: MIDDLE, 3: SINK, 4: SOURCE, 5: MIDDLE, 6: SINK}


def started(stage: Stage, host_processes: Mapping[int, int]) -> list[JobInstruction]:
    """These processes start, in this order; returns the instructions of the last start."""
    instructions: list[JobInstruction] = []
    for number, host_process in host_processes.items():
        instructions = stage.say(Started(number, f"host:{number}", host_process))
    return instructions


def deployed(
    host_processes: Mapping[int, int] | None = None, plan: PhysicalPlan | None = None, policy: JobPolicy | None = None
) -> Stage:
    """1 to 3 are the tasks; later ones stand by, all in one host unless ``host_processes`` differs."""
    stage = Stage(plan, policy)
    started(stage, {1: 1, 2: 2, 3: 3, **(host_processes or {4: HOME, 5: HOME, 6: HOME})})
    assert stage.machine.state is JobState.RUNNING
    return stage


def recovered(stage: Stage, *failed: TaskId) -> list[JobInstruction]:
    """The instructions after these tasks have failed and all survivors have answered."""
    since = len(stage.instructions)
    severs = [sent(stage.say(ProcessDied(stage.process(task), "killed")), Sever) for task in failed]
    stage.answer(severs[-1])
    assert stage.machine.state is JobState.RUNNING
    return stage.instructions[since:]


def with_standbys(number: int) -> PhysicalPlan:
    plan = chain()
    return replace(plan, vertices=tuple(replace(vertex, standbys=number) for vertex in plan.vertices))


def test_only_standbys_may_share_a_host_process() -> None:
    stage = Stage()
    asked = {i.process: i.shares for i in of(stage.instructions, StartProcess)}
    assert asked == {1: False, 2: False, 3: False, 4: True, 5: True, 6: True}


def test_a_job_starts_with_unshared_processes_although_a_shared_one_is_up_first() -> None:
    stage = Stage()
    assert sent(started(stage, {4: HOME, 5: HOME, 6: HOME, 1: 1, 2: 2}), Promote) == []
    assert receivers(started(stage, {3: 3}), Promote) == {1, 2, 3}


def test_a_job_does_not_wait_for_a_standby_that_waits_until_it_is_deployed() -> None:
    stage = Stage()
    started(stage, {1: 1, 3: 3})
    (another,) = of(stage.say(ProcessDied(2, "killed")), StartProcess)
    assert (another.task, another.shares) == (MIDDLE, True)
    assert receivers(started(stage, {5: HOME}), Promote) == {1, 5, 3}


def replaced(stage: Stage, instructions: Sequence[JobInstruction]) -> list[JobInstruction]:
    """All requested processes start, in another host; the instructions after that."""
    since = len(stage.instructions)
    started(stage, {i.process: THIRD for i in of(instructions, StartProcess)})
    return stage.instructions[since:]


def test_when_a_standby_is_promoted_the_others_of_its_host_are_replaced_after_the_round() -> None:
    stage = deployed()
    severs = sent(stage.say(ProcessDied(2, "killed")), Sever)
    before = len(stage.instructions)
    instructions = stage.answer(severs)
    assert receivers(instructions, Replay) == {5}
    asked = of(instructions, StartProcess)
    assert sorted(i.task for i in asked) == sorted([SOURCE, MIDDLE, SINK])
    assert all(i.shares for i in asked)
    assert of(stage.instructions[before:], DismissProcess) == [], "until then they may be needed"


def test_standbys_that_a_round_may_still_need_are_not_replaced_before_its_end() -> None:
    stage = deployed({4: HOME, 5: HOME})
    severs = sent(stage.say(ProcessDied(2, "killed")), Sever)
    assert of(started(stage, {6: HOME}), StartProcess) == []
    assert len(of(stage.answer(severs), StartProcess)) == 3


def test_standbys_leave_the_host_of_a_task_when_their_replacements_have_started() -> None:
    stage = deployed()
    asked = {i.task: i.process for i in of(recovered(stage, MIDDLE), StartProcess)}
    instructions = started(stage, {asked[SINK]: OTHER})
    assert [i.process for i in of(instructions, DismissProcess)] == [6]
    assert happened(instructions) == [StandbyLost]
    assert of(instructions, StartProcess) == []
    assert of(instructions, KillProcess) == [], "to kill it would end the task, too"
    assert [i.process for i in of(started(stage, {asked[SOURCE]: OTHER}), DismissProcess)] == [4]


def test_standbys_leave_the_host_of_a_task_when_their_replacements_have_loaded_the_same_state() -> None:
    stage = deployed(policy=JobPolicy(checkpoint_interval_us=SECOND_US))
    stage.wait(SECOND_US)
    stage.snapshot(SOURCE, MIDDLE, SINK, checkpoint=1)
    for prepared in sent(stage.say(ManifestWritten(1)), Prepare):
        stage.say(Prepared(prepared[0], 1))
    asked = {i.task: i.process for i in of(recovered(stage, MIDDLE), StartProcess)}
    assert of(started(stage, {asked[SINK]: OTHER}), DismissProcess) == []
    assert [i.process for i in of(stage.say(Prepared(asked[SINK], 1)), DismissProcess)] == [6]


def test_a_standby_that_has_not_left_yet_is_promoted_in_place() -> None:
    stage = deployed()
    recovered(stage, MIDDLE)
    instructions = recovered(stage, SINK)
    assert receivers(instructions, Promote) == {6}
    assert [i.task for i in of(instructions, StartProcess)] == [], "its standby is on its way"


def test_a_standby_that_dies_before_it_has_left_is_not_replaced_again() -> None:
    stage = deployed()
    recovered(stage, MIDDLE)
    assert of(stage.say(ProcessDied(6, "killed")), StartProcess) == []


def test_messages_of_a_standby_that_has_left_are_ignored() -> None:
    stage = deployed()
    replaced(stage, recovered(stage, MIDDLE))
    assert stage.say(ProcessDied(4, "it has stopped")) == []


def test_a_standby_that_shares_no_host_with_a_task_stays() -> None:
    stage = deployed({4: HOME, 5: HOME, 6: OTHER})
    assert [i.process for i in of(replaced(stage, recovered(stage, MIDDLE)), DismissProcess)] == [4]


def test_standbys_that_share_no_host_stay() -> None:
    stage = deployed({4: 0, 5: 0, 6: 0})
    assert of(replaced(stage, recovered(stage, MIDDLE)), DismissProcess) == []


def test_two_standbys_promoted_in_one_round_stay_in_their_host() -> None:
    stage = deployed()
    stage.say(ProcessDied(2, "killed"))
    severs = sent(stage.say(ProcessDied(3, "killed")), Sever)
    instructions = stage.answer(severs)
    assert receivers(instructions, Replay) == {5, 6}
    assert [i.process for i in of(replaced(stage, instructions), DismissProcess)] == [4]


def sharing(policy: JobPolicy | None = None, plan: PhysicalPlan | None = None) -> Stage:
    """The job is at checkpoint 1, MIDDLE (5) and SINK (6) run in one host, and all standbys are up elsewhere."""
    stage = deployed(policy=policy or JobPolicy(checkpoint_interval_us=SECOND_US), plan=plan)
    stage.say(ProcessDied(2, "killed"))
    severs = sent(stage.say(ProcessDied(3, "killed")), Sever)
    replaced(stage, stage.answer(severs))
    stage.say(Running(5, round=3, rows_replayed=0))
    stage.say(Running(6, round=3, rows_replayed=0))
    return stage


def at_checkpoint(stage: Stage) -> list[JobInstruction]:
    """All standbys load a checkpoint that has just been completed; the instructions after that."""
    stage.wait(SECOND_US)
    (number,) = {message.checkpoint for _, message in sent(stage.instructions, TriggerCheckpoint)}
    stage.snapshot(SOURCE, MIDDLE, SINK, checkpoint=number)
    written = stage.say(ManifestWritten(number))
    since = len(stage.instructions)
    for process, _ in sent(written, Prepare):
        stage.say(Prepared(process, number))
    return stage.instructions[since:]


def test_two_tasks_in_one_host_move_apart_once_a_standby_elsewhere_has_the_last_checkpoint() -> None:
    stage = sharing()
    instructions = at_checkpoint(stage)
    assert [i.process for i in of(instructions, DismissProcess)] == [5], "one of the two moves"
    assert of(instructions, KillProcess) == [], "to kill it would end the other task, too"
    (lost,) = [i.event for i in of(instructions, ReportEvent) if isinstance(i.event, TaskLost)]
    assert (lost.task, lost.planned) == (MIDDLE, True)
    ((promoted, _),) = sent(instructions, Promote)
    assert stage.machine.owners[MIDDLE] == promoted
    assert receivers(instructions, Sever) == {stage.process(SOURCE), 6}


def test_tasks_stay_in_one_host_where_a_move_would_repeat_or_lose_rows_or_the_job_ends() -> None:
    interval = JobPolicy(checkpoint_interval_us=SECOND_US)
    for policy in (replace(interval, deduplicate=False), replace(interval, deduplicate=False, replay=False)):
        assert of(at_checkpoint(sharing(policy)), DismissProcess) == []
    stopping = sharing()
    stopping.wait(SECOND_US)
    stopping.say(StopRequested())
    stopping.snapshot(SOURCE, MIDDLE, SINK, checkpoint=1)
    for process, _ in sent(stopping.say(ManifestWritten(1)), Prepare):
        assert of(stopping.say(Prepared(process, 1)), DismissProcess) == []


def test_two_failed_tasks_get_replacements_in_different_hosts_if_possible() -> None:
    """Of two standbys each, 4 and 6 share a host, and so do 5 and 7."""
    stage = deployed({4: HOME, 6: HOME, 8: 8, 5: OTHER, 7: OTHER, 9: 9}, with_standbys(2))
    instructions = recovered(stage, SOURCE, MIDDLE)
    assert receivers(instructions, Promote) == {4, 7}
    assert {i.process for i in of(replaced(stage, instructions), DismissProcess)} == {5, 6}


def test_the_death_of_a_host_loses_all_its_standbys() -> None:
    """The platform reports each death."""
    stage = deployed()
    for number in (4, 5, 6):
        assert happened(stage.say(ProcessDied(number, "killed"))) == [StandbyLost]
    assert stage.machine.state is JobState.RUNNING
    assert [i.task for i in of(stage.instructions, StartProcess)][-3:] == [SOURCE, MIDDLE, SINK]


def test_a_standby_that_starts_in_the_host_of_a_task_leaves_again() -> None:
    stage = deployed()
    late = [i.process for i in of(recovered(stage, MIDDLE), StartProcess) if i.task == SINK]
    instructions = started(stage, {late[0]: HOME})
    asked = of(instructions, StartProcess)
    assert [i.task for i in asked] == [SINK]
    assert of(instructions, DismissProcess) == []
    assert {i.process for i in of(replaced(stage, instructions), DismissProcess)} == {6, *late}


def test_a_new_coordinator_dismisses_standbys_that_its_predecessor_had_not_dismissed() -> None:
    stage = Stage(generation=2, roster=TASKS)
    for number, host_process in {1: 1, 2: 0, 3: 3, 4: HOME, 5: HOME, 6: HOME}.items():
        if number == 2:
            stage.say(ProcessDied(2, "killed"))
            continue
        stage.say(Started(number, f"host:{number}", host_process))
        role = {1: Attempt(1, 1), 3: Attempt(1, 1), 5: Attempt(1, 2)}
        stage.say(StatusReport(number, role.get(number), begun=number in role))
    assert stage.machine.state is JobState.RUNNING
    assert sorted(i.task for i in of(stage.instructions, StartProcess)) == sorted([SOURCE, MIDDLE, SINK])
    assert {i.process for i in of(replaced(stage, stage.instructions), DismissProcess)} == {4, 6}
