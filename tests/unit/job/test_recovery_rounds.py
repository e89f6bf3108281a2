from __future__ import annotations

import pytest

from clonos_py.causal.codec import encode
from clonos_py.causal.determinants import InputOrder
from clonos_py.job.events import (
    EndJob,
    JobPolicy,
    KillProcess,
    ManifestWritten,
    OpenGeneration,
    ProcessDied,
    ReportEvent,
    StartProcess,
)
from clonos_py.job.states import JobState
from clonos_py.model.coordinator_events import (
    FirstNewEffect,
    Replayed,
    Restarted,
    RestartedWithoutLog,
    RolledBack,
    StandbyLost,
    StandbyUnready,
    TaskKeepsDying,
)
from clonos_py.model.ids import Attempt
from clonos_py.model.messages import (
    Failed,
    HeldLogsReport,
    NewEffect,
    NotPrepared,
    Ping,
    Promote,
    Replay,
    Running,
    Sever,
    Suspect,
    TriggerCheckpoint,
)
from clonos_py.model.segments import LogSegment
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


def test_deployment_is_a_round_without_survivors() -> None:
    stage = Stage()
    instructions = stage.start_up()
    assert {promote.attempt for _, promote in sent(instructions, Promote)} == {Attempt(1, 1)}
    assert receivers(instructions, Replay) == {stage.process(t) for t in (SOURCE, MIDDLE, SINK)}
    assert sent(instructions, Sever) == []
    assert stage.machine.state is JobState.RUNNING


def test_no_process_is_promoted_before_every_task_has_one() -> None:
    stage = Stage()
    some = [i.process for i in of(stage.instructions, StartProcess) if i.task != SINK]
    assert len(some) == 4
    assert receivers(stage.instructions, Promote) == set()


def test_a_standby_is_promoted_at_once_and_replays_after_the_survivors_have_answered() -> None:
    stage = deployed()
    standby, others = stage.standby(MIDDLE), {stage.process(SOURCE), stage.process(SINK)}
    instructions = stage.say(ProcessDied(stage.process(MIDDLE), "killed"))
    assert [(p, m.attempt) for p, m in sent(instructions, Promote)] == [(standby, Attempt(1, 2))]
    assert receivers(instructions, Sever) == others
    assert sent(instructions, Replay) == []
    assert receivers(stage.answer(sent(instructions, Sever)), Replay) == {standby}
    assert stage.machine.state is JobState.RUNNING


def test_only_receivers_of_the_failed_task_subscribe_again() -> None:
    stage = deployed()
    severs = dict(sent(stage.say(ProcessDied(stage.process(MIDDLE), "killed")), Sever))
    assert severs[stage.process(SOURCE)].replacements == []
    (peer,) = severs[stage.process(SINK)].replacements
    assert (peer.address, peer.attempt) == (f"host:{stage.process(MIDDLE)}", Attempt(1, 2))


def test_a_standby_that_cannot_load_the_newest_checkpoint_is_reported_and_can_still_be_promoted() -> None:
    stage = deployed(policy=JobPolicy(checkpoint_interval_us=SECOND_US))
    stage.wait(SECOND_US)
    stage.snapshot(SOURCE, MIDDLE, SINK, checkpoint=1)
    stage.say(ManifestWritten(1))
    standby = stage.standby(MIDDLE)
    (event,) = stage.say(NotPrepared(standby, 1, "a chunk is damaged"))
    unready = StandbyUnready(MIDDLE, checkpoint=1, reason="a chunk is damaged")
    assert event == ReportEvent(unready)
    promoted = sent(stage.say(ProcessDied(stage.process(MIDDLE), "killed")), Promote)
    assert [process for process, _ in promoted] == [standby]


def test_a_standby_that_was_too_slow_to_load_a_checkpoint_is_not_reported() -> None:
    stage = deployed()
    assert stage.say(NotPrepared(stage.standby(MIDDLE), 7, "reclaimed")) == []


def test_a_promoted_standby_is_replaced_by_a_new_one() -> None:
    stage = deployed()
    instructions = stage.say(ProcessDied(stage.process(MIDDLE), "killed"))
    instructions = stage.answer(sent(instructions, Sever))
    assert [i.task for i in of(instructions, StartProcess)] == [MIDDLE]


def test_a_second_failure_restarts_the_round() -> None:
    stage = deployed()
    first = sent(stage.say(ProcessDied(stage.process(MIDDLE), "killed")), Sever)
    second = stage.say(ProcessDied(stage.process(SINK), "killed"))
    assert receivers(second, Promote) == {stage.process(SINK)}
    assert receivers(second, Sever) == {stage.process(SOURCE), stage.process(MIDDLE)}
    assert stage.answer(first) == [], "an answer to the first round counts no more"
    replays = stage.answer(sent(second, Sever))
    assert receivers(replays, Replay) == {stage.process(MIDDLE), stage.process(SINK)}


def test_a_replacement_that_fails_is_replaced_by_a_later_attempt() -> None:
    stage = deployed()
    stage.say(ProcessDied(stage.process(MIDDLE), "killed"))
    instructions = stage.say(ProcessDied(stage.process(MIDDLE), "killed"))
    assert [i.task for i in of(instructions, StartProcess)] == [MIDDLE]
    assert sent(instructions, Promote) == []
    instructions = stage.start_up()
    assert [m.attempt for _, m in sent(instructions, Promote)] == [Attempt(1, 3)]


def test_the_loss_of_a_standby_affects_no_other_process() -> None:
    stage = deployed()
    instructions = stage.say(ProcessDied(stage.standby(MIDDLE), "killed"))
    assert happened(instructions) == [StandbyLost]
    assert [i.task for i in of(instructions, StartProcess)] == [MIDDLE]
    assert len(instructions) == 2


def test_messages_of_a_fenced_process_are_ignored() -> None:
    stage = deployed()
    gone = stage.process(MIDDLE)
    stage.say(ProcessDied(gone, "killed"))
    assert stage.say(Failed(gone, "SinkError", "too late")) == []
    assert stage.say(HeldLogsReport(gone, 2, [], [])) == []


def test_orphans_are_rolled_back_in_a_new_generation() -> None:
    stage = deployed(chain(sharing_depth=1))
    stage.say(ProcessDied(stage.process(SOURCE), "killed"))
    severs = sent(stage.say(ProcessDied(stage.process(MIDDLE), "killed")), Sever)
    before = {stage.process(t) for t in (SOURCE, MIDDLE, SINK)}
    instructions = stage.answer(severs, depends=[0])
    assert RolledBack in happened(instructions)
    assert of(instructions, OpenGeneration) == [OpenGeneration(2)]
    assert {i.reuse for i in of(instructions, StartProcess)} >= before, "tasks restart in their processes"
    assert of(instructions, KillProcess) == []
    assert {m.attempt for _, m in sent(stage.start_up(), Promote)} == {Attempt(2, 1)}


def test_survivors_that_have_received_nothing_are_no_orphans() -> None:
    stage = deployed(chain(sharing_depth=1))
    stage.say(ProcessDied(stage.process(SOURCE), "killed"))
    instructions = stage.say(ProcessDied(stage.process(MIDDLE), "killed"))
    replays = stage.answer(sent(instructions, Sever))
    assert receivers(replays, Replay) == {stage.process(SOURCE), stage.process(MIDDLE)}


def test_a_job_that_prefers_availability_restarts_orphaned_tasks_without_log_and_reports_it() -> None:
    stage = deployed(chain(sharing_depth=1), JobPolicy(availability=True))
    stage.say(ProcessDied(stage.process(SOURCE), "killed"))
    first = sent(stage.say(ProcessDied(stage.process(MIDDLE), "killed")), Sever)
    instructions = stage.answer(first, depends=[0])
    assert happened(instructions) == [RestartedWithoutLog]
    second = dict(sent(instructions, Sever))
    assert second.keys() == {stage.process(t) for t in (SOURCE, MIDDLE, SINK)}, "replacements are severed, too"
    assert [peer.reset for peer in second[stage.process(SINK)].replacements] == [True]
    replays = dict(sent(stage.answer(list(second.items()), depends=[0]), Replay))
    assert replays.keys() == {stage.process(SOURCE), stage.process(MIDDLE)}
    assert {(replay.incarnation.number, len(replay.log), len(replay.expected)) for replay in replays.values()} == {
        (1, 0, 0)
    }


def test_receivers_of_a_task_that_restarted_without_log_restart_so_too_until_a_checkpoint() -> None:
    stage = deployed(chain(sharing_depth=1), JobPolicy(availability=True, checkpoint_interval_us=SECOND_US))
    stage.say(ProcessDied(stage.process(SOURCE), "killed"))
    restart_without_log = stage.answer(
        sent(stage.say(ProcessDied(stage.process(MIDDLE), "killed")), Sever), depends=[0]
    )
    stage.answer(sent(restart_without_log, Sever))
    stage.start_up()
    again = stage.say(ProcessDied(stage.process(SINK), "killed"))
    assert RestartedWithoutLog in happened(again)
    stage.answer(sent(again, Sever))
    stage.start_up()
    (trigger,) = {message.checkpoint for _, message in sent(stage.wait(SECOND_US), TriggerCheckpoint)}
    stage.snapshot(SOURCE, MIDDLE, SINK, checkpoint=trigger)
    stage.say(ManifestWritten(trigger))
    assert RestartedWithoutLog not in happened(stage.say(ProcessDied(stage.process(SINK), "killed")))


def test_consecutive_failures_within_the_sharing_depth_cause_no_rollback() -> None:
    stage = deployed(chain(sharing_depth=2))
    stage.say(ProcessDied(stage.process(SOURCE), "killed"))
    instructions = stage.say(ProcessDied(stage.process(MIDDLE), "killed"))
    assert RolledBack not in happened(instructions)
    replays = stage.answer(sent(instructions, Sever))
    assert receivers(replays, Replay) == {stage.process(SOURCE), stage.process(MIDDLE)}


def test_a_divergence_is_rolled_back_and_ends_the_job_after_too_many_rollbacks() -> None:
    stage = deployed(policy=JobPolicy(rollbacks_max=2))
    ends: list[EndJob] = []
    for _ in range(3):
        assert ends == []
        ends = of(stage.say(Failed(stage.process(MIDDLE), "DivergenceError", "other content")), EndJob)
        stage.start_up()
    assert [end.error for end in ends] == ["ProtocolError"]
    assert "2 rollbacks without a completed checkpoint: other content" in ends[0].message


@pytest.mark.parametrize(("error", "ends"), [("UserCodeError", True), ("CodecError", False)])
def test_the_remedy_of_an_error_decides_whether_the_job_ends(error: str, ends: bool) -> None:
    stage = deployed()
    instructions = stage.say(Failed(stage.process(MIDDLE), error, "no"))
    assert [end.error for end in of(instructions, EndJob)] == ([error] if ends else [])
    assert (receivers(instructions, Promote) == set()) == ends


@pytest.mark.parametrize("completed", [0, 1])
def test_the_end_of_a_failed_job_names_the_last_completed_checkpoint(completed: int) -> None:
    stage = deployed(policy=JobPolicy(SECOND_US, heartbeat_timeout_us=1_000 * SECOND_US))
    if completed:
        stage.wait(SECOND_US)
        stage.snapshot(SOURCE, MIDDLE, SINK, checkpoint=completed)
        stage.say(ManifestWritten(completed))
    (end,) = of(stage.say(Failed(stage.process(MIDDLE), "UserCodeError", "no")), EndJob)
    assert end == EndJob("UserCodeError", "no", checkpoint=completed)


def test_an_error_in_every_replacement_of_a_task_ends_the_job() -> None:
    stage = deployed(policy=JobPolicy(checkpoint_interval_us=0, recoveries_max=2))
    for _ in range(2):
        instructions = stage.say(Failed(stage.process(MIDDLE), "CodecError", "middle[0]: a frame cannot be read"))
        stage.answer(sent(instructions, Sever))
        stage.start_up()
        assert of(instructions, EndJob) == []
    (end,) = of(stage.say(Failed(stage.process(MIDDLE), "CodecError", "middle[0]: a frame cannot be read")), EndJob)
    assert end == EndJob("CodecError", "middle[0]: a frame cannot be read")


def test_a_suspected_process_is_pinged_and_not_replaced() -> None:
    stage = deployed()
    instructions = stage.say(Suspect(stage.process(SINK), MIDDLE))
    assert receivers(instructions, Ping) == {stage.process(MIDDLE)}
    assert len(instructions) == 1


def test_the_progress_of_a_replacement_is_reported() -> None:
    """A first new effect may come before all frames that the predecessor had received are taken again."""
    stage = deployed()
    instructions = stage.say(ProcessDied(stage.process(MIDDLE), "killed"))
    stage.answer(sent(instructions, Sever))
    replacement = stage.process(MIDDLE)
    assert reported(stage.say(NewEffect(replacement))) == [FirstNewEffect(MIDDLE), Restarted(1)]
    assert reported(stage.say(Running(replacement, 2, 17))) == [Replayed(MIDDLE, 17)]


def test_a_replaying_task_restarts_without_log_when_an_upstream_task_does() -> None:
    """Its log names frames that will not be sent again."""
    stage = deployed(chain(sharing_depth=1), JobPolicy(availability=True, checkpoint_interval_us=0))
    own = LogSegment(MIDDLE.log_id, 0, 0, 0, 1, encode([InputOrder(0, 1)]))
    for process, sever in sent(stage.say(ProcessDied(stage.process(MIDDLE), "killed")), Sever):
        stage.say(HeldLogsReport(process, sever.round, [own] if process == stage.process(SINK) else [], []))
    stage.start_up()
    replaying = stage.process(MIDDLE)
    instructions = []
    for process, sever in sent(stage.say(ProcessDied(stage.process(SOURCE), "killed")), Sever):
        lacks = {0: [SOURCE.log_id]} if process == replaying else {}
        instructions += stage.say(HeldLogsReport(process, sever.round, [], [], depends=[0], incomplete=lacks))
    assert happened(instructions)[0] is RestartedWithoutLog
    assert of(instructions, KillProcess) == [KillProcess(replaying)]
    replays = dict(sent(stage.answer(sent(instructions, Sever)), Replay))
    assert {(process, replay.incarnation.number, len(replay.log)) for process, replay in replays.items()} == {
        (stage.process(SOURCE), 1, 0),
        (stage.process(MIDDLE), 1, 0),
    }
    assert stage.process(MIDDLE) != replaying


def test_a_task_that_dies_again_and_again_is_reported_and_still_replaced() -> None:
    stage = deployed()
    for times in range(1, 6):
        events = stage.say(ProcessDied(stage.process(MIDDLE), "killed"))
        dying = [event for event in reported(events) if isinstance(event, TaskKeepsDying)]
        assert dying == ([TaskKeepsDying(MIDDLE, 5, "killed")] if times == 5 else [])
        stage.answer(sent(events + stage.start_up(), Sever))
    assert stage.machine.state is JobState.RUNNING
