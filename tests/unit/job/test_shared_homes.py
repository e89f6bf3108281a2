"""Standbys that share a home: who is chosen, who leaves when, and who comes instead."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from clonos_py.job.events import DismissProcess, Happening, JobInstruction, KillProcess, ProcessDied, StartProcess
from clonos_py.job.machine import JobState
from clonos_py.model.ids import Attempt, TaskId
from clonos_py.model.messages import Present, Promote, Replay, Sever, Started
from clonos_py.model.plan import PhysicalPlan
from tests.unit.job.stage import MIDDLE, SINK, SOURCE, Stage, chain, happened, of, receivers, sent

HOME, OTHER = 40, 50
TASKS = {1: SOURCE, 2: MIDDLE, 3: SINK, 4: SOURCE, 5: MIDDLE, 6: SINK}


def started(stage: Stage, homes: Mapping[int, int]) -> list[JobInstruction]:
    """These processes come up, in this order; the last one's instructions."""
    instructions: list[JobInstruction] = []
    for number, home in homes.items():
        instructions = stage.say(Started(number, f"host:{number}", home))
    return instructions


def deployed(homes: Mapping[int, int] | None = None, plan: PhysicalPlan | None = None) -> Stage:
    """1 to 3 are the tasks; what comes after them stands by, all in one home unless ``homes`` says else."""
    stage = Stage(plan)
    started(stage, {1: 1, 2: 2, 3: 3, **(homes or {4: HOME, 5: HOME, 6: HOME})})
    assert stage.machine.state is JobState.RUNNING
    return stage


def recovered(stage: Stage, *failed: TaskId) -> list[JobInstruction]:
    """What follows when these tasks have failed and all survivors have answered."""
    since = len(stage.told)
    for task in failed:
        severs = sent(stage.say(ProcessDied(stage.process(task), "killed")), Sever)
    stage.answer(severs)
    assert stage.machine.state is JobState.RUNNING
    return stage.told[since:]


def with_standbys(number: int) -> PhysicalPlan:
    plan = chain()
    return replace(plan, vertices=tuple(replace(vertex, standbys=number) for vertex in plan.vertices))


def test_only_standbys_may_share_a_home() -> None:
    stage = Stage()
    asked = {i.process: i.shares for i in of(stage.told, StartProcess)}
    assert asked == {1: False, 2: False, 3: False, 4: True, 5: True, 6: True}


def test_a_job_begins_with_processes_of_their_own_though_a_shared_home_is_up_first() -> None:
    stage = Stage()
    assert sent(started(stage, {4: HOME, 5: HOME, 6: HOME, 1: 1, 2: 2}), Promote) == []
    assert receivers(started(stage, {3: 3}), Promote) == {1, 2, 3}


def test_when_a_standby_becomes_its_task_the_others_leave_at_the_end_of_the_round_and_are_replaced() -> None:
    stage = deployed()
    severs = sent(stage.say(ProcessDied(2, "killed")), Sever)
    assert of(stage.told, DismissProcess) == [], "another failure in the same round may need them"
    instructions = stage.answer(severs)
    assert receivers(instructions, Replay) == {5}
    assert [i.process for i in of(instructions, DismissProcess)] == [4, 6]
    asked = of(instructions, StartProcess)
    assert sorted(i.task for i in asked) == sorted([SOURCE, MIDDLE, SINK])
    assert all(i.shares for i in asked)
    assert happened(instructions).count(Happening.STANDBY_LOST) == 2
    assert of(instructions, KillProcess) == [], "nobody is killed for it: that would end the task, too"


def test_what_a_standby_says_that_was_asked_to_leave_is_ignored() -> None:
    stage = deployed()
    recovered(stage, MIDDLE)
    assert stage.say(ProcessDied(4, "it has stopped")) == []


def test_who_shares_no_home_with_a_task_stays() -> None:
    stage = deployed({4: HOME, 5: HOME, 6: OTHER})
    assert [i.process for i in of(recovered(stage, MIDDLE), DismissProcess)] == [4]


def test_standbys_that_share_nothing_stay() -> None:
    stage = deployed({4: 0, 5: 0, 6: 0})
    assert of(recovered(stage, MIDDLE), DismissProcess) == []


def test_two_that_become_tasks_in_one_round_stay_together() -> None:
    stage = deployed()
    stage.say(ProcessDied(2, "killed"))
    severs = sent(stage.say(ProcessDied(3, "killed")), Sever)
    instructions = stage.answer(severs)
    assert receivers(instructions, Replay) == {5, 6}
    assert [i.process for i in of(instructions, DismissProcess)] == [4]


def test_two_tasks_that_fail_go_to_two_homes_if_they_can() -> None:
    """Of two standbys each, 4 and 6 share a home, and so do 5 and 7."""
    stage = deployed({4: HOME, 6: HOME, 8: 8, 5: OTHER, 7: OTHER, 9: 9}, with_standbys(2))
    instructions = recovered(stage, SOURCE, MIDDLE)
    assert receivers(instructions, Promote) == {4, 7}
    assert [i.process for i in of(instructions, DismissProcess)] == [5, 6]


def test_the_death_of_a_home_is_the_death_of_all_who_share_it() -> None:
    """The platform tells of each."""
    stage = deployed()
    for number in (4, 5, 6):
        assert happened(stage.say(ProcessDied(number, "killed"))) == [Happening.STANDBY_LOST]
    assert stage.machine.state is JobState.RUNNING
    assert [i.task for i in of(stage.told, StartProcess)][-3:] == [SOURCE, MIDDLE, SINK]


def test_a_standby_that_comes_up_in_the_home_of_a_task_leaves_again() -> None:
    stage = deployed()
    late = [i.process for i in of(recovered(stage, MIDDLE), StartProcess) if i.task == SINK]
    instructions = started(stage, {late[0]: HOME})
    assert [i.process for i in of(instructions, DismissProcess)] == late
    assert [i.task for i in of(instructions, StartProcess)] == [SINK]


def test_a_successor_has_standbys_leave_that_its_predecessor_had_not_got_to() -> None:
    stage = Stage(generation=2, roster=TASKS)
    for number, home in {1: 1, 2: 0, 3: 3, 4: HOME, 5: HOME, 6: HOME}.items():
        if number == 2:
            stage.say(ProcessDied(2, "killed"))
            continue
        stage.say(Started(number, f"host:{number}", home))
        role = {1: Attempt(1, 1), 3: Attempt(1, 1), 5: Attempt(1, 2)}
        stage.say(Present(number, role.get(number), begun=number in role))
    assert stage.machine.state is JobState.RUNNING
    assert [i.process for i in of(stage.told, DismissProcess)] == [4, 6]
    assert sorted(i.task for i in of(stage.told, StartProcess)) == sorted([SOURCE, MIDDLE, SINK])
