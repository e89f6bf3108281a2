from __future__ import annotations

from collections.abc import Sequence

import pytest

from clonos_py.job.events import (
    CheckpointsRetired,
    EndJob,
    JobInstruction,
    JobPolicy,
    ManifestFailed,
    ManifestWritten,
    ProcessDied,
    ReportEvent,
    WriteManifest,
)
from clonos_py.model.coordinator_events import (
    CheckpointAborted,
    CheckpointCompleted,
    CheckpointSkipped,
    CodeChanged,
    DeletionFailed,
    Deployed,
    Finished,
    SpillFailed,
    StorageAwaited,
)
from clonos_py.model.ids import TaskId
from clonos_py.model.messages import (
    AbortCheckpoint,
    Complete,
    FramesNotSpilled,
    LoadDelayed,
    Prepare,
    Promote,
    Replay,
    RequestCheckpoint,
    Sever,
    SnapshotFailed,
    Snapshotted,
    Stop,
    TriggerCheckpoint,
)
from clonos_py.model.purposes import Purpose
from clonos_py.model.snapshots import Manifest, TaskHandle
from tests.unit.job.stage import (
    MIDDLE,
    SECOND_US,
    SINK,
    SOURCE,
    Stage,
    deployed,
    happened,
    of,
    receivers,
    reported,
    sent,
)


def triggered(checkpoint_timeout_us: int = 60 * SECOND_US) -> Stage:
    """A stage on which checkpoint 1 is under way."""
    policy = JobPolicy(SECOND_US, checkpoint_timeout_us, heartbeat_timeout_us=1_000 * SECOND_US)
    stage = deployed(policy=policy)
    assert sent(stage.wait(SECOND_US), TriggerCheckpoint) == [(stage.process(SOURCE), TriggerCheckpoint(1))]
    return stage


def test_the_manifest_is_written_with_the_last_snapshot_and_completes_the_checkpoint() -> None:
    stage = triggered()
    assert stage.snapshot(SOURCE, MIDDLE, checkpoint=1) == []
    (write,) = of(stage.snapshot(SINK, checkpoint=1), WriteManifest)
    assert [handle.task for handle in write.manifest.tasks] == [SOURCE, MIDDLE, SINK]
    instructions = stage.say(ManifestWritten(1))
    assert receivers(instructions, Complete) == {stage.process(t) for t in (SOURCE, MIDDLE, SINK)}
    assert receivers(instructions, Prepare) == {stage.standby(t) for t in (SOURCE, MIDDLE, SINK)}


def test_at_most_one_checkpoint_is_under_way() -> None:
    stage = triggered()
    assert stage.say(RequestCheckpoint(stage.process(MIDDLE))) == []
    assert sent(stage.wait(SECOND_US), TriggerCheckpoint) == []


@pytest.mark.parametrize(
    ("seconds", "skipped"),
    [
        ((0.5, 0.5), []),
        ((3.5,), [(1, 1), (1, 2), (1, 3)]),
        ((1.5, 1.5), [(1, 1), (2, 2)]),
        ((1.5, 0.5, 2.5), [(1, 1), (3, 1), (3, 2)]),  # checkpoint 2 was complete in time
    ],
)
def test_each_checkpoint_that_is_due_while_another_is_pending_is_reported_as_skipped(
    seconds: Sequence[float], skipped: Sequence[tuple[int, int]]
) -> None:
    """``seconds``: how long each checkpoint takes. ``skipped``: which one was pending; how many in a row."""
    stage = triggered()
    for checkpoint, taken in enumerate(seconds, 1):
        while TriggerCheckpoint(checkpoint) not in [
            trigger for _, trigger in sent(stage.instructions, TriggerCheckpoint)
        ]:
            stage.wait(SECOND_US // 2)
        stage.wait(round(taken * SECOND_US))
        stage.snapshot(SOURCE, MIDDLE, SINK, checkpoint=checkpoint)
        stage.say(ManifestWritten(checkpoint))
    events = [event for event in reported(stage.instructions) if isinstance(event, CheckpointSkipped)]
    assert [(event.pending, event.in_a_row) for event in events] == skipped
    assert {event.asked_ms for event in events} <= {1_000}


def test_a_full_in_flight_log_requests_a_checkpoint_before_the_interval_has_passed() -> None:
    stage = deployed()
    instructions = stage.say(RequestCheckpoint(stage.process(MIDDLE)))
    assert receivers(instructions, TriggerCheckpoint) == {stage.process(SOURCE)}


def test_a_checkpoint_requested_during_a_recovery_is_triggered_after_it() -> None:
    stage = deployed()
    instructions = stage.say(ProcessDied(stage.process(SINK), "killed"))
    assert sent(stage.say(RequestCheckpoint(stage.process(MIDDLE))), TriggerCheckpoint) == []
    assert receivers(stage.answer(sent(instructions, Sever)), TriggerCheckpoint) == {stage.process(SOURCE)}


def test_frames_that_cannot_be_spilled_are_reported_with_task_and_reason() -> None:
    stage = deployed()
    instructions = stage.say(FramesNotSpilled(stage.process(MIDDLE), "the disk is full"))
    assert reported(instructions) == [SpillFailed(MIDDLE, "the disk is full")]


def test_a_pending_checkpoint_is_aborted_when_a_task_fails() -> None:
    stage = triggered()
    stage.snapshot(SOURCE, MIDDLE, checkpoint=1)
    instructions = stage.say(ProcessDied(stage.process(MIDDLE), "killed"))
    assert CheckpointAborted in happened(instructions)
    assert receivers(instructions, AbortCheckpoint) == {stage.process(SOURCE), stage.process(SINK)}
    assert stage.snapshot(SINK, checkpoint=1) == [], "its acknowledgements are void"
    (replay,) = sent(stage.answer(sent(instructions, Sever)), Replay)
    assert replay[1].aborted == [1]


def test_the_number_of_an_aborted_checkpoint_is_not_used_again() -> None:
    stage = triggered()
    instructions = stage.say(ProcessDied(stage.process(MIDDLE), "killed"))
    stage.answer(sent(instructions, Sever))
    assert [m for _, m in sent(stage.wait(SECOND_US), TriggerCheckpoint)] == [TriggerCheckpoint(2)]


def test_a_round_begins_after_the_manifest_that_is_being_written() -> None:
    stage = triggered()
    stage.snapshot(SOURCE, MIDDLE, SINK, checkpoint=1)
    instructions = stage.say(ProcessDied(stage.process(MIDDLE), "killed"))
    assert sent(instructions, Promote) == []
    assert sent(instructions, AbortCheckpoint) == []
    instructions = stage.say(ManifestWritten(1))
    assert receivers(instructions, Complete) == {stage.process(SOURCE), stage.process(SINK)}
    ((_, promote),) = sent(instructions, Promote)
    assert promote.restore.checkpoint == 1
    assert {sever.completed.checkpoint for _, sever in sent(instructions, Sever)} == {1}


def test_a_standby_that_starts_loads_the_last_checkpoint() -> None:
    stage = triggered()
    stage.snapshot(SOURCE, MIDDLE, SINK, checkpoint=1)
    stage.say(ManifestWritten(1))
    stage.say(ProcessDied(stage.standby(SINK), "killed"))
    assert receivers(stage.start_up(), Prepare) == {stage.standby(SINK)}


def test_a_checkpoint_that_takes_too_long_is_aborted() -> None:
    stage = triggered()
    instructions = stage.wait(60 * SECOND_US)
    assert CheckpointAborted in happened(instructions)
    assert [m for _, m in sent(instructions, TriggerCheckpoint)] == [TriggerCheckpoint(2)]


def test_a_checkpoint_whose_manifest_is_being_written_is_not_aborted() -> None:
    stage = triggered(checkpoint_timeout_us=10 * SECOND_US)
    stage.snapshot(SOURCE, MIDDLE, SINK, checkpoint=1)
    assert CheckpointAborted not in happened(stage.wait(59 * SECOND_US))


def test_a_recovery_waits_60_s_for_storage_that_does_not_answer_and_then_ends_the_job() -> None:
    stage = triggered()
    stage.snapshot(SOURCE, MIDDLE, SINK, checkpoint=1)
    assert sent(stage.say(ProcessDied(stage.process(MIDDLE), "killed")), Promote) == []
    assert of(stage.wait(59 * SECOND_US), EndJob) == []
    (end,) = of(stage.wait(2 * SECOND_US), EndJob)
    assert end.error == "CheckpointError"
    assert end.message.startswith("checkpoint storage has not answered for 60 s while a manifest was being written")


def test_checkpoints_that_cannot_be_deleted_are_reported_once_and_the_job_continues() -> None:
    stage = deployed(policy=JobPolicy(checkpoint_interval_us=SECOND_US, heartbeat_timeout_us=1_000 * SECOND_US))
    reasons = []
    for checkpoint, problem in enumerate(["a is stuck", "a is stuck", "b is stuck", None, "b is stuck"], 1):
        stage.wait(SECOND_US)
        stage.snapshot(SOURCE, MIDDLE, SINK, checkpoint=checkpoint)
        instructions = stage.say(ManifestWritten(checkpoint)) + stage.say(CheckpointsRetired(problem))
        assert CheckpointCompleted in happened(instructions)
        assert of(instructions, EndJob) == []
        reasons.append([event.reason for event in reported(instructions) if isinstance(event, DeletionFailed)])
    assert reasons == [["a is stuck"], [], ["b is stuck"], [], ["b is stuck"]]


def test_storage_that_fails_ends_the_job() -> None:
    stage = triggered()
    (end,) = of(stage.say(SnapshotFailed(stage.process(SINK), 1, "disk full")), EndJob)
    assert (end.error, end.message) == ("CheckpointError", "disk full")
    stage = triggered()
    (end,) = of(stage.say(ManifestFailed(1, "disk full")), EndJob)
    assert (end.error, end.message) == ("CheckpointError", "disk full")


def not_durable(stage: Stage, task: TaskId, checkpoint: int) -> list[JobInstruction]:
    return stage.say(SnapshotFailed(stage.process(task), checkpoint, "no answer", unavailable=True))


def test_a_snapshot_for_which_storage_did_not_answer_aborts_its_checkpoint_and_the_next_one_may_complete() -> None:
    stage = triggered()
    stage.snapshot(SOURCE, checkpoint=1)
    instructions = not_durable(stage, MIDDLE, 1)
    assert reported(instructions) == [CheckpointAborted(1, "no answer")]
    assert receivers(instructions, AbortCheckpoint) == {stage.process(t) for t in (SOURCE, MIDDLE, SINK)}
    assert of(instructions, EndJob) == []
    stage.wait(SECOND_US)
    assert not_durable(stage, SINK, 1) == [], "checkpoint 2 is under way"
    stage.snapshot(SOURCE, MIDDLE, SINK, checkpoint=2)
    assert CheckpointCompleted in happened(stage.say(ManifestWritten(2)))


def test_the_last_checkpoint_is_triggered_again_if_storage_did_not_answer() -> None:
    stage = deployed()
    stage.drain()
    assert sent(not_durable(stage, SINK, 1), TriggerCheckpoint) == [
        (stage.process(SOURCE), TriggerCheckpoint(2, Purpose.FINAL))
    ]


def test_a_manifest_is_written_again_as_long_as_storage_does_not_answer() -> None:
    """It may be written already: nothing else may follow from its checkpoint before that is known."""
    stage = triggered()
    (write,) = of(stage.snapshot(SOURCE, MIDDLE, SINK, checkpoint=1), WriteManifest)
    silence = ManifestFailed(1, "no answer", unavailable=True)
    assert stage.say(silence) == [ReportEvent(StorageAwaited(None, "no answer")), write]
    for _ in range(5):
        assert of(stage.wait(50 * SECOND_US), EndJob) == []
        assert stage.say(silence) == [write], "the wait is reported once"
    assert sent(stage.say(ProcessDied(stage.process(MIDDLE), "killed")), Promote) == []
    instructions = stage.say(ManifestWritten(1))
    assert CheckpointCompleted in happened(instructions)
    stage.answer(sent(instructions, Sever))
    assert [promote.restore.checkpoint for _, promote in sent(stage.instructions, Promote)][-1] == 1


def test_a_wait_for_storage_is_reported_again_when_it_is_another() -> None:
    stage, reports = triggered(), []
    for checkpoint in (1, 2):
        stage.snapshot(SOURCE, MIDDLE, SINK, checkpoint=checkpoint)
        reports += reported(stage.say(ManifestFailed(checkpoint, "no answer", unavailable=True)))
        stage.say(ManifestWritten(checkpoint))
        stage.wait(SECOND_US)
    assert reports == [StorageAwaited(None, "no answer")] * 2


def test_a_task_that_waits_for_its_state_is_reported() -> None:
    stage = triggered()
    instructions = stage.say(LoadDelayed(stage.process(MIDDLE), "no answer"))
    assert instructions == [ReportEvent(StorageAwaited(MIDDLE, "no answer"))]


def completed(instructions: Sequence[JobInstruction]) -> CheckpointCompleted:
    (event,) = (event for event in reported(instructions) if isinstance(event, CheckpointCompleted))
    return event


def test_the_requests_of_a_checkpoint_are_those_since_the_one_before() -> None:
    stage = triggered()
    for checkpoint, coordinator in ((1, {"list": 14, "put": 3}), (2, {"list": 18, "put": 4, "delete": 1})):
        for task in (SOURCE, MIDDLE, SINK):
            handle = TaskHandle(task, checkpoint, {}, b"", {})
            stage.say(Snapshotted(stage.process(task), handle, requests={"put": 2}))
        event = completed(stage.say(ManifestWritten(checkpoint, coordinator)))
        assert event.requests == [{"list": 14, "put": 9}, {"list": 4, "put": 7, "delete": 1}][checkpoint - 1]
        stage.wait(SECOND_US)


def test_the_final_checkpoint_and_its_commits_end_the_job() -> None:
    stage = deployed()
    assert sent(stage.drain(), TriggerCheckpoint) == [(stage.process(SOURCE), TriggerCheckpoint(1, Purpose.FINAL))]
    stage.snapshot(SOURCE, MIDDLE, SINK, checkpoint=1)
    assert of(stage.say(ManifestWritten(1)), EndJob) == [], "nothing is committed yet"
    instructions = stage.commit(1)
    assert of(instructions, EndJob) == [EndJob()]
    assert len(receivers(instructions, Stop)) == 6
    assert happened(instructions) == [Finished]


def test_the_commit_of_an_earlier_checkpoint_does_not_end_the_job() -> None:
    stage = triggered()
    stage.snapshot(SOURCE, MIDDLE, SINK, checkpoint=1)
    stage.say(ManifestWritten(1))
    assert stage.commit(1) == []
    stage.drain()
    stage.snapshot(SOURCE, MIDDLE, SINK, checkpoint=2)
    stage.say(ManifestWritten(2))
    assert stage.commit(1) == []
    assert of(stage.commit(2), EndJob) == [EndJob()]


def test_a_drained_task_that_dies_must_drain_again() -> None:
    stage = deployed()
    instructions = stage.drain()
    instructions = stage.say(ProcessDied(stage.process(SINK), "killed"))
    assert sent(stage.answer(sent(instructions, Sever)), TriggerCheckpoint) == []
    assert [m for _, m in sent(stage.drain(), TriggerCheckpoint)] == [TriggerCheckpoint(2, Purpose.FINAL)]


def test_the_manifest_records_the_digest_of_the_code() -> None:
    stage = Stage(code_digest="abc")
    stage.start_up()
    stage.say(RequestCheckpoint(stage.process(MIDDLE)))
    (write,) = of(stage.snapshot(SOURCE, MIDDLE, SINK, checkpoint=1), WriteManifest)
    assert write.manifest.code_digest == "abc"


def numberings(stage: Stage) -> set[str]:
    return {promote.numbering for _, promote in sent(stage.instructions, Promote)}


def written(stage: Stage, checkpoint: int) -> Manifest:
    stage.say(RequestCheckpoint(stage.process(MIDDLE)))
    (write,) = of(stage.snapshot(SOURCE, MIDDLE, SINK, checkpoint=checkpoint), WriteManifest)
    stage.say(ManifestWritten(checkpoint))
    return write.manifest


def test_checkpoints_keep_the_lineage_that_was_drawn_at_the_first_run() -> None:
    """Idempotency keys contain it: the same for replacements, for another coordinator and for a resumed run."""
    stage = Stage(policy=JobPolicy(lineage="first"))
    stage.start_up()
    manifest = written(stage, 1)
    assert (manifest.lineage, manifest.renumberings) == ("first", 0)
    instructions = stage.say(ProcessDied(stage.process(MIDDLE), "killed"))
    stage.answer(sent(instructions, Sever))
    assert len([promote for _, promote in sent(stage.instructions, Promote)]) == 4
    assert numberings(stage) == {"first-0"}
    resumed = Stage(policy=JobPolicy(lineage="second"), manifest=manifest)
    resumed.start_up()
    assert numberings(resumed) == {"first-0"}
    assert written(resumed, 2).lineage == "first"
    fresh = Stage(policy=JobPolicy(lineage="second"))
    fresh.start_up()
    assert numberings(fresh) == {"second-0"}


def test_a_change_of_parallelism_is_counted_once_by_any_coordinator() -> None:
    """A resume numbers frames from 0 again: their numbers name other rows."""
    handles = [TaskHandle(TaskId(name, 0), 7, {}, b"", {}) for name in ("source", "middle", "sink")]
    parallelism = {"source": 2, "middle": 1, "sink": 1}
    before = Manifest("stage", 7, 1, 128, parallelism, handles, lineage="line", renumberings=3)
    stage, successor = Stage(manifest=before), Stage(manifest=before)
    for coordinator in (stage, successor):
        coordinator.start_up()
        assert numberings(coordinator) == {"line-4"}
    after = written(stage, 8)
    assert (after.lineage, after.renumberings) == ("line", 4)
    resumed = Stage(manifest=after)
    resumed.start_up()
    assert numberings(resumed) == {"line-4"}


@pytest.mark.parametrize(
    ("written_by", "running", "changed"),
    [("abc", "abd", True), ("abc", "abc", False), ("", "abc", False), ("abc", "", False)],
)
def test_a_resume_with_other_code_than_the_checkpoints_is_reported(
    written_by: str, running: str, changed: bool
) -> None:
    handles = [TaskHandle(task, 7, {}, b"", {}) for task in (SOURCE, MIDDLE, SINK)]
    parallelism = {"source": 1, "middle": 1, "sink": 1}
    stage = Stage(
        manifest=Manifest("stage", 7, 1, 128, parallelism, handles, code_digest=written_by), code_digest=running
    )
    events = [event for event in reported(stage.instructions) if isinstance(event, CodeChanged)]
    assert events == ([CodeChanged(checkpoint=7)] if changed else [])
    stage.start_up()
    assert Deployed in happened(stage.instructions), "it is no error"
