"""A job that the user stops: it takes a last checkpoint, commits it and ends."""

from __future__ import annotations

import pytest

from clonos_py.job.events import EndJob, JobPolicy, ManifestWritten, ProcessDied, StopRequested
from clonos_py.job.states import JobState
from clonos_py.model.coordinator_events import Finished
from clonos_py.model.ids import Attempt
from clonos_py.model.messages import (
    Committed,
    Failed,
    Sever,
    Snapshotted,
    Started,
    StatusReport,
    Stop,
    TriggerCheckpoint,
)
from clonos_py.model.purposes import Purpose
from clonos_py.model.snapshots import TaskHandle
from tests.unit.job.stage import (
    MIDDLE,
    SECOND_US,
    SINK,
    SOURCE,
    Stage,
    deployed,
    of,
    receivers,
    reported,
    sent,
)

STOPPED = EndJob(stopped=True)
ALL = (SOURCE, MIDDLE, SINK)


def state_of(stage: Stage) -> JobState:
    return stage.machine.state


def ended(stage: Stage, checkpoint: int) -> list[EndJob]:
    """The end of the job once all tasks have taken their snapshots, and the checkpoint is complete and committed."""
    stage.snapshot(*ALL, checkpoint=checkpoint)
    stage.say(ManifestWritten(checkpoint))
    return of(stage.commit(checkpoint), EndJob)


def test_a_checkpoint_is_taken_at_once_and_its_commit_ends_the_job() -> None:
    stage = deployed(policy=JobPolicy(checkpoint_interval_us=0))
    assert receivers(stage.say(StopRequested()), TriggerCheckpoint) == {stage.process(SOURCE)}
    stage.snapshot(*ALL, checkpoint=1)
    assert of(stage.say(ManifestWritten(1)), EndJob) == [], "nothing is committed yet"
    instructions = stage.commit(1)
    assert of(instructions, EndJob) == [STOPPED]
    assert len(receivers(instructions, Stop)) == 6
    assert reported(instructions) == [Finished(stopped=True)]


def test_a_stop_outlasts_a_recovery_and_a_rollback() -> None:
    stage = deployed()
    stage.say(StopRequested())
    assert state_of(stage) is JobState.STOPPING
    severs = sent(stage.say(ProcessDied(stage.process(MIDDLE), "killed")), Sever)
    assert state_of(stage) is JobState.RECOVERING
    stage.answer(severs)
    assert state_of(stage) is JobState.STOPPING
    stage.snapshot(*ALL, checkpoint=2)
    stage.say(ManifestWritten(2))
    assert state_of(stage) is JobState.COMMITTING
    stage.say(Failed(stage.process(MIDDLE), "DivergenceError", "frame 4 differs"))
    assert state_of(stage) is JobState.STARTING
    stage.start_up()
    assert state_of(stage) is JobState.STOPPING


def test_a_last_checkpoint_that_is_complete_outlasts_a_recovery() -> None:
    stage = deployed()
    stage.drain()
    assert state_of(stage) is JobState.DRAINED
    stage.snapshot(*ALL, checkpoint=1)
    stage.say(ManifestWritten(1))
    severs = sent(stage.say(ProcessDied(stage.process(SINK), "killed")), Sever)
    assert stage.say(StopRequested()) == []
    stage.answer(severs)
    assert state_of(stage) is JobState.COMMITTING
    assert of(stage.commit(1), EndJob) == [EndJob()]


def test_a_checkpoint_triggered_before_the_request_is_not_the_last() -> None:
    stage = deployed(policy=JobPolicy(SECOND_US, heartbeat_timeout_us=1_000 * SECOND_US))
    stage.wait(SECOND_US)
    assert sent(stage.say(StopRequested()), TriggerCheckpoint) == []
    stage.snapshot(*ALL, checkpoint=1)
    assert [m for _, m in sent(stage.say(ManifestWritten(1)), TriggerCheckpoint)] == [
        TriggerCheckpoint(2, Purpose.STOP)
    ]
    assert of(stage.commit(1), EndJob) == []
    assert ended(stage, 2) == [STOPPED]


def test_a_second_request_changes_nothing() -> None:
    stage = deployed()
    stage.say(StopRequested())
    assert stage.say(StopRequested()) == []
    assert ended(stage, 1) == [STOPPED]


def test_a_request_before_the_job_runs_takes_effect_when_it_does() -> None:
    stage = Stage()
    assert stage.say(StopRequested()) == []
    assert receivers(stage.start_up(), TriggerCheckpoint) == {stage.process(SOURCE)}
    assert ended(stage, 1) == [STOPPED]


@pytest.mark.parametrize("snapshots", [ALL[:1], ALL], ids=["before the snapshots", "while the manifest is written"])
def test_a_task_that_fails_during_a_stop_recovers_first(snapshots: tuple[object, ...]) -> None:
    stage = deployed()
    stage.say(StopRequested())
    stage.snapshot(*snapshots, checkpoint=1)  # type: ignore[arg-type]
    instructions = stage.say(ProcessDied(stage.process(MIDDLE), "killed"))
    written = snapshots == ALL
    if written:
        instructions = stage.say(ManifestWritten(1))
    assert of(instructions, EndJob) == []
    instructions = stage.answer(sent(instructions, Sever))
    assert [m.checkpoint for _, m in sent(instructions, TriggerCheckpoint)] == ([] if written else [2])
    assert (of(stage.commit(1), EndJob) if written else ended(stage, 2)) == [STOPPED]


def test_a_job_at_the_end_of_its_input_finishes_and_is_not_stopped() -> None:
    stage = deployed()
    stage.drain()
    assert stage.say(StopRequested()) == []
    assert ended(stage, 1) == [EndJob()]


def test_a_job_whose_input_ends_after_the_request_ends_as_stopped() -> None:
    """Rows after the barrier are not committed."""
    stage = deployed()
    stage.say(StopRequested())
    stage.drain()
    assert ended(stage, 1) == [STOPPED]


def test_a_new_coordinator_stops_the_job_after_all_tasks_have_answered() -> None:
    roster = dict(enumerate(ALL, 1))
    stage = Stage(generation=2, roster=roster)
    assert stage.say(StopRequested()) == []
    since = len(stage.instructions)
    for number in roster:
        stage.say(Started(number, f"host:{number}"))
        stage.say(StatusReport(number, Attempt(1, 1), begun=True))
    triggered = sent(stage.instructions[since:], TriggerCheckpoint)
    assert [number for number, _ in triggered] == [1], "the source"
    for number, task in roster.items():
        stage.say(Snapshotted(number, TaskHandle(task, triggered[0][1].checkpoint, {}, b"", {})))
    stage.say(ManifestWritten(triggered[0][1].checkpoint))
    assert of(stage.say(Committed(3, triggered[0][1].checkpoint)), EndJob) == [STOPPED]
