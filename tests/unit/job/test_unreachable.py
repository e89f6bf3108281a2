"""Two processes that answer the coordinator and cannot reach each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from clonos_py.job.events import EndJob, JobInstruction, JobPolicy, KillProcess, ManifestWritten
from clonos_py.model.ids import TaskId
from clonos_py.model.messages import Pong, RequestCheckpoint, Sever, Suspect
from tests.unit.job.stage import MIDDLE, SECOND_US, SINK, SOURCE, Stage, deployed, of, sent

POLICY = JobPolicy(checkpoint_interval_us=0, connection_timeout_us=20 * SECOND_US)


def fails_to_connect(
    stage: Stage, seconds: int, first: int = 1, answering: Sequence[TaskId] = (SOURCE, MIDDLE, SINK)
) -> list[JobInstruction]:
    """The sink fails to connect to the middle, once a second; by default all answer."""
    since = len(stage.instructions)
    for failure in range(first, first + seconds):
        stage.say(Suspect(stage.process(SINK), MIDDLE, failure))
        stage.wait(SECOND_US)
        for task in answering:
            stage.say(Pong(stage.process(task), 0))
            stage.say(Pong(stage.standby(task), 0))
    return stage.instructions[since:]


def killed(instructions: list[JobInstruction]) -> list[int]:
    return [kill.process for kill in of(instructions, KillProcess)]


def heal(stage: Stage) -> None:
    stage.answer(
        [(p, m) for p, m in sent(stage.instructions, Sever) if m.round == sent(stage.instructions, Sever)[-1][1].round]
    )
    stage.start_up()


def test_the_receiver_is_replaced_first_then_the_sender_and_then_the_job_ends_and_names_both() -> None:
    stage = deployed(policy=POLICY)
    sink, middle = stage.process(SINK), stage.process(MIDDLE)
    assert killed(fails_to_connect(stage, 20)) == []
    assert killed(fails_to_connect(stage, 1, first=21)) == [sink]
    heal(stage)
    assert killed(fails_to_connect(stage, 21)) == [middle]
    heal(stage)
    (end,) = of(fails_to_connect(stage, 21), EndJob)
    assert end.error == "ClusterError"
    receiver, sender = f"host:{stage.process(SINK)}", f"host:{stage.process(MIDDLE)}"
    assert end.message.startswith(f"sink[0] ({receiver}) cannot connect to middle[0] ({sender}), though both answer")


def test_a_sender_that_does_not_answer_is_replaced_and_not_its_receiver() -> None:
    """It has died, and nobody has noticed yet: a node was lost."""
    stage = deployed(policy=replace(POLICY, heartbeat_us=0))
    middle = stage.process(MIDDLE)
    stage.wait(SECOND_US)
    assert killed(fails_to_connect(stage, 21, answering=[SOURCE, SINK])) == [middle]


def test_connections_that_are_restored_each_time_replace_no_process() -> None:
    stage = deployed(policy=POLICY)
    for _ in range(10):
        assert killed(fails_to_connect(stage, 9)) == []
        stage.wait(0)


def test_lost_connections_no_longer_count_after_a_checkpoint() -> None:
    stage = deployed(policy=POLICY)
    stage.say(Suspect(stage.process(SINK), MIDDLE, 1))
    assert stage.machine.sizes["lost_connections"] == 1
    stage.say(RequestCheckpoint(stage.process(MIDDLE)))
    stage.snapshot(SOURCE, MIDDLE, SINK, checkpoint=1)
    stage.say(ManifestWritten(1))
    assert stage.machine.sizes["lost_connections"] == 0


def test_a_checkpoint_that_completes_shows_that_replacements_have_helped() -> None:
    stage = deployed(policy=POLICY)
    for checkpoint in (1, 2, 3, 4):
        assert len(killed(fails_to_connect(stage, 21))) == 1
        heal(stage)
        stage.say(RequestCheckpoint(stage.process(MIDDLE)))
        stage.snapshot(SOURCE, MIDDLE, SINK, checkpoint=checkpoint)
        stage.say(ManifestWritten(checkpoint))
    assert of(stage.instructions, EndJob) == []
