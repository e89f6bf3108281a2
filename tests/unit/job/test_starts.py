"""Processes that the platform never brings up."""

from __future__ import annotations

from clonos_py.job.events import EndJob, JobPolicy, KillProcess, NoRoom, ProcessDied, StartProcess
from clonos_py.model.coordinator_events import Deployed, Deploying, RoomAwaited
from clonos_py.model.messages import Pong, Started
from tests.unit.job.stage import MIDDLE, SECOND_US, SINK, SOURCE, Stage, deployed, happened, of, reported

PATIENT = JobPolicy(checkpoint_interval_us=0, start_timeout_us=60 * SECOND_US, heartbeat_timeout_us=9_000 * SECOND_US)


def asked_for(stage: Stage) -> list[StartProcess]:
    return of(stage.instructions, StartProcess)


def test_a_job_whose_processes_never_start_ends_and_names_the_tasks_and_the_remedy() -> None:
    stage = Stage(policy=PATIENT)
    assert of(stage.wait(60 * SECOND_US - 1), EndJob) == []
    (end,) = of(stage.wait(1), EndJob)
    assert end.error == "ClusterError"
    assert end.message == (
        "middle[0], sink[0], source[0] could not be started: the cluster has brought up no process for 60 s; see with "
        "`ray status` whether memory is left and every node answers, or wait longer with --start-timeout"
    )


def test_only_the_tasks_without_any_process_are_named() -> None:
    stage = Stage(policy=PATIENT)
    for process in asked_for(stage):
        if process.task != SINK:
            stage.say(Started(process.process, "somewhere"))
    (end,) = of(stage.wait(60 * SECOND_US), EndJob)
    assert end.message.startswith("sink[0] could not be started: ")


def test_a_slow_cluster_has_time_as_long_as_processes_start() -> None:
    stage = Stage(policy=PATIENT)
    for process in asked_for(stage):
        assert of(stage.wait(50 * SECOND_US), EndJob) == []
        stage.say(Started(process.process, "somewhere"))
    assert Deployed in happened(stage.instructions)


def test_each_process_that_starts_is_reported_until_the_job_is_deployed() -> None:
    stage = Stage(policy=PATIENT)
    for process in asked_for(stage):
        stage.say(Started(process.process, "somewhere"))
    found = [event for event in reported(stage.instructions) if isinstance(event, Deploying)]
    expected = len(asked_for(stage))
    assert [event.up for event in found] == list(range(1, 1 + len(found)))
    assert {event.processes for event in found} == {expected}
    assert [event.missing for event in found] == sorted((event.missing for event in found), reverse=True)
    assert {event.awaited for event in found} <= {SOURCE, MIDDLE, SINK, None}
    assert found[0].missing
    assert (found[-1].missing, found[-1].awaited) == (0, None)


def test_a_standby_that_never_starts_is_requested_again_and_the_job_continues() -> None:
    stage = Stage(policy=PATIENT)
    late = asked_for(stage)[-1]
    for process in asked_for(stage)[:-1]:
        stage.say(Started(process.process, "somewhere"))
    instructions = stage.wait(60 * SECOND_US)
    assert of(instructions, EndJob) == []
    assert [kill.process for kill in of(instructions, KillProcess)] == [late.process]
    (again,) = of(instructions, StartProcess)
    assert again.task == late.task
    assert of(stage.wait(59 * SECOND_US), KillProcess) == [], "the new process has its own minute"


def test_a_task_that_cannot_be_replaced_ends_the_job() -> None:
    stage = deployed(policy=PATIENT)
    stage.say(ProcessDied(stage.standby(MIDDLE), "killed"))
    stage.say(ProcessDied(stage.process(MIDDLE), "killed"))
    for task in (SOURCE, SINK):
        stage.say(Pong(stage.process(task), 0))
    (end,) = of(stage.wait(60 * SECOND_US), EndJob)
    assert end.message.startswith("middle[0] could not be started: ")


LACKS = "it needs 4 cpus, and nodes have left: a 1 cpu"


def test_a_job_goes_on_without_a_standby_for_which_no_node_has_room() -> None:
    stage = Stage(policy=PATIENT)
    late = asked_for(stage)[-1]
    for process in asked_for(stage)[:-1]:
        stage.say(Started(process.process, "somewhere"))
    told = stage.say(NoRoom(late.process, LACKS))
    assert reported(told) == [RoomAwaited(late.task, standby=True, reason=LACKS)]
    assert stage.wait(600 * SECOND_US) == [] or not of(stage.instructions, KillProcess)
    assert reported(stage.say(NoRoom(late.process, ""))) == []
    assert [kill.process for kill in of(stage.wait(60 * SECOND_US), KillProcess)] == [late.process]


def test_a_lost_task_asks_for_its_own_room_and_not_for_that_of_its_standby() -> None:
    stage = Stage(policy=PATIENT)
    late = asked_for(stage)[-1]
    for process in asked_for(stage)[:-1]:
        stage.say(Started(process.process, "somewhere"))
    stage.say(NoRoom(late.process, LACKS))
    owner = stage.machine.owners[late.task]
    lost = stage.say(ProcessDied(owner, "its node was lost"))
    assert [kill.process for kill in of(lost, KillProcess)] == [late.process]
    (asked,) = of(lost, StartProcess)
    assert (asked.task, asked.shares) == (late.task, False)
    assert reported(stage.say(NoRoom(asked.process, LACKS))) == [RoomAwaited(late.task, standby=False, reason=LACKS)]
    (end,) = of(stage.wait(60 * SECOND_US), EndJob)
    assert end.error == "ClusterError"
    assert end.message == (
        f"{late.task} found no room for 60 s: {LACKS}; add a node, or wait longer with --start-timeout"
    )
