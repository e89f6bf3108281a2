"""Processes that do not answer: which of them have failed, and which are only as late as everything else."""

from __future__ import annotations

from collections.abc import Collection

from clonos_py.job.events import EndJob, JobInstruction, JobPolicy, KillProcess, ProcessBusy, WriteManifest
from clonos_py.model.coordinator_events import CheckpointAborted, Deployed
from clonos_py.model.messages import Ping, Pong, TriggerCheckpoint
from tests.unit.job.stage import MIDDLE, SECOND_US, SINK, SOURCE, Stage, deployed, happened, of, receivers, sent

POLICY = JobPolicy(checkpoint_interval_us=0, heartbeat_us=SECOND_US // 4, heartbeat_timeout_us=2 * SECOND_US)
BEAT_US = POLICY.heartbeat_us


def killed(instructions: list[JobInstruction]) -> list[int]:
    return [kill.process for kill in of(instructions, KillProcess)]


def beats(stage: Stage, count: int, silent: Collection[int] = (), late_us: int = 0) -> list[int]:
    """So many heartbeats, which all processes but the ``silent`` answer after ``late_us``. Returns the killed
    processes."""
    dead: list[int] = []
    answers: list[tuple[int, Pong]] = []
    for _ in range(count):
        instructions = stage.wait(BEAT_US)
        dead += killed(instructions)
        pings = sent(instructions, Ping)
        answers += [(stage.now_us + late_us, Pong(p, ping.number)) for p, ping in pings if p not in silent]
        for at_us, pong in answers:
            if at_us <= stage.now_us:
                stage.say(pong)
        answers = [(at_us, pong) for at_us, pong in answers if at_us > stage.now_us]
    return dead


def test_a_process_that_is_silent_for_the_heartbeat_timeout_is_killed_and_replaced() -> None:
    stage = deployed(policy=POLICY)
    silent = stage.process(MIDDLE)
    assert beats(stage, 8, {silent}) == []
    assert beats(stage, 1, {silent}) == [silent]
    assert stage.process(MIDDLE) != silent


def test_a_silent_process_that_reports_work_is_replaced_only_after_it_stops_reporting() -> None:
    stage = deployed(policy=POLICY)
    silent = stage.process(MIDDLE)
    for _ in range(100):
        assert beats(stage, 4, {silent}) == []
        stage.say(ProcessBusy(silent))
    assert beats(stage, 8, {silent}) == []
    assert beats(stage, 1, {silent}) == [silent]


def test_a_coordinator_that_stood_still_pings_again_before_it_replaces_a_process() -> None:
    stage = deployed(policy=POLICY)
    beats(stage, 4)
    for absent_us in (2 * SECOND_US, 5 * SECOND_US, 3_600 * SECOND_US):
        instructions = stage.stand_still(absent_us)
        assert killed(instructions) == []
        assert receivers(instructions, Ping) == {stage.process(t) for t in (SOURCE, MIDDLE, SINK)} | {
            stage.standby(t) for t in (SOURCE, MIDDLE, SINK)
        }
        assert beats(stage, 4) == []


def test_a_process_that_died_while_the_coordinator_stood_still_is_replaced_after_the_timeout() -> None:
    stage = deployed(policy=POLICY)
    silent = stage.process(MIDDLE)
    beats(stage, 4)
    stage.stand_still(10 * SECOND_US)
    assert beats(stage, 9, {silent}) == [silent]


def test_messages_that_arrived_while_the_coordinator_stood_still_count_before_timeouts() -> None:
    """The coordinator handles waiting messages first, and its time does not jump with them."""
    stage = deployed(policy=POLICY)
    beats(stage, 4)
    stage.now_us += 10 * SECOND_US
    stage.say(Pong(stage.process(SOURCE), 4))
    assert killed(stage.wait(0)) == []


def test_processes_that_all_answer_late_are_not_replaced() -> None:
    """The machine is crowded: answers take longer and longer, beyond the heartbeat timeout."""
    stage = deployed(policy=POLICY)
    for late_us in range(0, 4 * SECOND_US, SECOND_US // 2):
        assert beats(stage, 12, late_us=late_us) == []


def test_a_sudden_delay_of_all_answers_replaces_no_process() -> None:
    stage = deployed(policy=POLICY)
    beats(stage, 4)
    assert beats(stage, 60, late_us=6 * SECOND_US) == []


def test_on_a_crowded_machine_a_hung_process_is_replaced_later() -> None:
    stage = deployed(policy=POLICY)
    beats(stage, 20, late_us=SECOND_US)
    silent = stage.process(MIDDLE)
    assert beats(stage, 9, {silent}, late_us=SECOND_US) == []
    assert beats(stage, 60, {silent}) == [silent]


def test_all_processes_are_replaced_in_the_end_when_none_answers() -> None:
    """All are on a host that is cut off: a process that is as late as all others is not waited for without limit."""
    stage = deployed(policy=POLICY)
    everybody = {stage.process(t) for t in (SOURCE, MIDDLE, SINK)} | {stage.standby(t) for t in (SOURCE, MIDDLE, SINK)}
    dead = beats(stage, 8 * 8 + 1, everybody)
    assert set(dead) >= everybody


def test_without_a_heartbeat_interval_no_process_is_pinged_or_late() -> None:
    policy = JobPolicy(checkpoint_interval_us=SECOND_US, checkpoint_timeout_us=7_200 * SECOND_US, heartbeat_us=0)
    stage = deployed(policy=policy)
    instructions = stage.wait(3_600 * SECOND_US)
    assert sent(instructions, Ping) == []
    assert killed(instructions) == []


def test_a_checkpoint_is_not_aborted_because_the_coordinator_stood_still() -> None:
    stage = deployed(policy=JobPolicy(checkpoint_interval_us=SECOND_US, checkpoint_timeout_us=3 * SECOND_US))
    assert receivers(stage.wait(SECOND_US), TriggerCheckpoint) == {stage.process(SOURCE)}
    assert CheckpointAborted not in happened(stage.stand_still(60 * SECOND_US))
    assert of(stage.snapshot(SOURCE, MIDDLE, SINK, checkpoint=1), WriteManifest) != []


def test_a_start_does_not_time_out_because_the_coordinator_stood_still() -> None:
    stage = Stage(policy=JobPolicy(start_timeout_us=60 * SECOND_US))
    assert of(stage.stand_still(600 * SECOND_US), EndJob) == []
    stage.start_up()
    assert Deployed in happened(stage.instructions)
