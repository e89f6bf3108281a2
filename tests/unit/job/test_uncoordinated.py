"""Checkpoints of tasks that take their snapshots alone: when they are triggered, and what a manifest names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import msgspec
import pytest

from clonos_py.job.events import (
    EndJob,
    JobInstruction,
    JobPolicy,
    KillProcess,
    ManifestWritten,
    ProcessDied,
    StopRequested,
    WriteManifest,
)
from clonos_py.model.coordinator_events import CheckpointCompleted, IntervalExceeded, RolledBack
from clonos_py.model.ids import Attempt, TaskId
from clonos_py.model.messages import (
    Committed,
    Complete,
    Failed,
    Pong,
    Prepare,
    Promote,
    RequestCheckpoint,
    Sever,
    SnapshotFailed,
    Snapshotted,
    Started,
    StatusReport,
    Suspect,
    TriggerCheckpoint,
)
from clonos_py.model.plan import PhysicalPlan
from clonos_py.model.protocols import ProtocolProperties
from clonos_py.model.segments import StableMark
from clonos_py.model.snapshots import Manifest, TaskHandle
from clonos_py.process.contract import TaskProgress
from clonos_py.settings.protocols import INDUCED, UNCOORDINATED
from tests.unit.job.stage import MIDDLE, SECOND_US, SINK, SOURCE, Stage, chain, happened, of, receivers, reported, sent

TASKS = (SOURCE, MIDDLE, SINK)
GATHERED_US = 100_000


def uncoordinated() -> PhysicalPlan:
    return replace(chain(), protocol=UNCOORDINATED)


POLICY = JobPolicy(checkpoint_interval_us=10 * SECOND_US)


def deployed(policy: JobPolicy = POLICY, plan: PhysicalPlan | None = None, manifest: Manifest | None = None) -> Stage:
    stage = Stage(plan or uncoordinated(), policy, manifest)
    stage.answer(sent(stage.start_up(), Sever))
    stage.start_up()
    stage.wait(1)  # the first triggers
    return stage


def handle(task: TaskId, epoch: int, finished: bool = False) -> TaskHandle:
    progress = TaskProgress([], [], [], [], False, 0, [], [], [], {}, finished=finished)
    return TaskHandle(task, epoch, {}, msgspec.msgpack.encode(progress), {})


def snapshots(stage: Stage, finished: bool = False, **epochs: int) -> list[JobInstruction]:
    """Tasks, by the name of their vertex, store snapshots; then a manifest is due."""
    for vertex, epoch in epochs.items():
        task = TaskId(vertex, 0)
        stage.say(Snapshotted(stage.process(task), handle(task, epoch, finished)))
    return stage.wait(GATHERED_US + 1)


def written(instructions: list[JobInstruction]) -> Manifest:
    (write,) = of(instructions, WriteManifest)
    return write.manifest


def named(manifest: Manifest) -> dict[str, int]:
    return {task.task.vertex: task.checkpoint for task in manifest.tasks}


def adopt(stage: Stage, manifest: Manifest) -> list[JobInstruction]:
    return stage.say(ManifestWritten(manifest.checkpoint))


def triggers(stage: Stage, seconds: float, durable: Sequence[TaskId] = ()) -> list[tuple[TaskId, int]]:
    """The tasks that are triggered in this time, each with when. ``durable``: those whose snapshots are durable at
    once; the others do not take snapshots."""
    found: list[tuple[TaskId, int]] = []
    for _ in range(round(seconds * 10)):
        caused = stage.wait(SECOND_US // 10)
        for write in of(caused, WriteManifest) if durable else ():
            adopt(stage, write.manifest)
        for process, trigger in sent(caused, TriggerCheckpoint):
            task = next(task for task in TASKS if stage.process(task) == process)
            found.append((task, stage.now_us))
            if task in durable:
                stage.say(Snapshotted(process, handle(task, trigger.checkpoint)))
    return found


@pytest.mark.parametrize("staggered", [True, False])
def test_a_task_for_whose_snapshot_storage_did_not_answer_is_triggered_again(staggered: bool) -> None:
    stage = deployed(replace(POLICY, heartbeat_us=0, staggered=staggered))
    stage.wait(12 * SECOND_US)
    (first,) = [trigger for to, trigger in sent(stage.instructions, TriggerCheckpoint) if to == stage.process(SINK)]
    assert SINK not in dict(triggers(stage, 30)), "its snapshot is awaited"
    failed = SnapshotFailed(stage.process(SINK), first.checkpoint, "no answer", unavailable=True)
    assert of(stage.say(failed), EndJob) == []
    assert SINK in dict(triggers(stage, 30))


def test_the_number_of_a_snapshot_that_is_not_durable_is_not_used_again() -> None:
    """A task numbers those that it takes alone from its last one on."""
    stage = deployed()
    stage.say(SnapshotFailed(stage.process(MIDDLE), 40, "no answer", unavailable=True))
    assert min(trigger.checkpoint for _, trigger in sent(stage.wait(30 * SECOND_US), TriggerCheckpoint)) > 40


def test_a_job_without_periodic_checkpoints_stops_although_storage_did_not_answer() -> None:
    stage = deployed(JobPolicy(checkpoint_interval_us=0))
    first = dict(sent(stage.say(StopRequested()), TriggerCheckpoint))
    assert first.keys() == {stage.process(task) for task in TASKS}
    failed = SnapshotFailed(stage.process(SINK), first[stage.process(SINK)].checkpoint, "no answer", unavailable=True)
    assert stage.process(SINK) in dict(sent(stage.say(failed), TriggerCheckpoint))


def test_independent_calls_come_to_each_task_at_its_own_times() -> None:
    stage = deployed(replace(POLICY, heartbeat_us=0, staggered=False))
    triggered: dict[TaskId, list[int]] = {}
    for task, at_us in triggers(stage, 30, durable=TASKS):
        triggered.setdefault(task, []).append(at_us)
    assert triggered.keys() == set(TASKS)
    assert all(len(times) >= 2 for times in triggered.values())
    for times in triggered.values():
        gaps = [later - earlier for earlier, later in zip([0, *times], times, strict=False)]
        assert all(7.9 * SECOND_US < gap < 12.2 * SECOND_US for gap in gaps)
    assert len({tuple(times) for times in triggered.values()}) == 3, "no two in step"


def test_all_tasks_are_triggered_as_soon_as_a_job_without_a_checkpoint_runs() -> None:
    stage = deployed()
    assert receivers(stage.instructions, TriggerCheckpoint) == {stage.process(task) for task in TASKS}
    adopt(stage, written(snapshots(stage, source=1, middle=2, sink=3)))
    assert triggers(stage, 9) == []


def test_a_job_that_resumes_takes_its_next_checkpoint_after_an_interval() -> None:
    first = deployed()
    manifest = written(snapshots(first, source=1, middle=2, sink=3))
    assert triggers(deployed(manifest=manifest), 9) == []


def test_a_manifest_is_written_at_once_when_all_triggered_tasks_have_answered() -> None:
    stage = deployed()
    for task, epoch in ((SOURCE, 1), (MIDDLE, 2)):
        assert of(stage.say(Snapshotted(stage.process(task), handle(task, epoch))), WriteManifest) == []
    stage.say(Snapshotted(stage.process(SINK), handle(SINK, 3)))
    written(stage.wait(1))


def test_a_task_is_triggered_when_the_snapshots_of_its_receivers_are_in_a_manifest() -> None:
    stage = deployed(replace(POLICY, heartbeat_us=0))
    adopt(stage, written(snapshots(stage, source=1, middle=2, sink=3)))
    assert [task for task, _ in triggers(stage, 10.5)] == [SINK]
    assert triggers(stage, 1) == [], "not before the sink has taken its snapshot"
    for epoch, receiver, sender in ((100, SINK, MIDDLE), (200, MIDDLE, SOURCE)):
        stage.say(Snapshotted(stage.process(receiver), handle(receiver, epoch)))
        caused = stage.wait(1)
        assert sent(caused, TriggerCheckpoint) == [], "it does not count yet"
        adopt(stage, written(caused))
        assert [task for task, _ in triggers(stage, 0.1)] == [sender]
    assert [task for task, _ in triggers(stage, 10)] == [SINK], "the next interval has begun with the first trigger"


@pytest.mark.parametrize("staggered", [False, True])
def test_a_task_whose_snapshot_is_not_durable_is_not_triggered_and_the_others_are(staggered: bool) -> None:
    """Its interval becomes longer. This is reported once, after three slow snapshots in a row."""
    stage = deployed(replace(POLICY, heartbeat_us=0, staggered=staggered))
    if staggered:
        adopt(stage, written(snapshots(stage, source=1, middle=2, sink=3)))
    trigger = 3 if staggered else 0
    for _ in range(5):
        trigger = _next_trigger(stage, SINK, trigger)
        others = triggers(stage, 24, durable=(SOURCE, MIDDLE))
        assert {task for task, _ in others} == {SOURCE, MIDDLE}
        assert len(others) >= 4
        stage.say(Snapshotted(stage.process(SINK), handle(SINK, trigger)))
    (exceeded,) = [event for event in reported(stage.instructions) if isinstance(event, IntervalExceeded)]
    assert (exceeded.task, exceeded.asked_ms) == (SINK, 10_000)
    assert exceeded.kept_ms > 20_000


def _next_trigger(stage: Stage, task: TaskId, after: int) -> int:
    """The number of the first trigger of a task with a higher number than ``after``."""
    for _ in range(200):
        for process, trigger in sent(stage.instructions, TriggerCheckpoint):
            if process == stage.process(task) and trigger.checkpoint > after:
                return trigger.checkpoint
        triggers(stage, 0.1, durable=(SOURCE, MIDDLE))
    raise AssertionError(f"{task} is not triggered")


def test_a_receiver_without_a_new_snapshot_delays_its_senders_by_half_an_interval() -> None:
    stage = deployed(replace(POLICY, heartbeat_us=0))
    adopt(stage, written(snapshots(stage, source=1, middle=2, sink=3)))
    (sink, at_us), *others = triggers(stage, 15.5)
    assert sink == SINK
    assert {task for task, _ in others} == {SOURCE, MIDDLE}
    assert all(4.9 * SECOND_US < late_us - at_us < 5.2 * SECOND_US for _, late_us in others)


def test_a_manifest_names_the_newest_snapshots_and_is_announced_to_tasks_with_a_new_one() -> None:
    stage = deployed()
    assert of(snapshots(stage, source=1, middle=2), WriteManifest) == [], "the sink has no snapshot yet"
    first = written(snapshots(stage, sink=3))
    assert named(first) == {"source": 1, "middle": 2, "sink": 3}
    assert receivers(adopt(stage, first), Complete) == {stage.process(task) for task in TASKS}
    second = written(snapshots(stage, middle=9))
    assert named(second) == {"source": 1, "middle": 9, "sink": 3}
    caused = adopt(stage, second)
    assert sent(caused, Complete) == [(stage.process(MIDDLE), Complete(9, [StableMark(MIDDLE.log_id, 9)]))]
    assert {prepare.restore.checkpoint for _, prepare in sent(caused, Prepare)} == {9}


def test_the_duration_of_each_triggered_snapshot_is_reported_with_the_manifest() -> None:
    stage = deployed(replace(POLICY, heartbeat_us=0, staggered=False))
    took_us = 30_000
    triggers: dict[int, int] = {}
    for _ in range(140):
        for process, trigger in sent(stage.wait(SECOND_US // 10), TriggerCheckpoint):
            stage.stand_still(took_us)
            triggers[process] = trigger.checkpoint
            task = next(task for task in TASKS if stage.process(task) == process)
            stage.say(Snapshotted(process, handle(task, trigger.checkpoint)))
    snapshots(stage, source=1_000)  # not triggered
    events = reported(adopt(stage, written(stage.instructions)))
    (completed,) = [event for event in events if isinstance(event, CheckpointCompleted)]
    assert completed.durable == len(triggers) == 3
    assert 30 <= completed.durable_ms <= 130


def test_a_replacement_starts_from_the_manifest_and_later_snapshots_are_dropped() -> None:
    stage = deployed()
    adopt(stage, written(snapshots(stage, source=1, middle=2, sink=3)))
    for task, epoch in ((MIDDLE, 7), (SINK, 8)):
        stage.say(Snapshotted(stage.process(task), handle(task, epoch)))
    round_ = stage.say(ProcessDied(stage.process(MIDDLE), "killed"))
    ((_, promote),) = sent(round_, Promote)
    assert promote.restore.checkpoint == 2
    assert promote.restore.marks == [StableMark(task.log_id, n) for n, task in enumerate(TASKS, start=1)]
    asked = sent(round_, Sever)
    assert stage.process(MIDDLE) in dict(asked), "it contains the logs that its snapshot depends on"
    stage.answer(asked)
    assert named(written(stage.wait(2 * GATHERED_US))) == {"source": 1, "middle": 2, "sink": 8}


def test_a_snapshot_that_a_dead_task_stored_while_a_manifest_was_written_is_dropped() -> None:
    stage = deployed()
    first = written(snapshots(stage, source=1, middle=2, sink=3))
    stage.say(Snapshotted(stage.process(MIDDLE), handle(MIDDLE, 7)))
    stage.say(ProcessDied(stage.process(MIDDLE), "killed"))
    round_ = adopt(stage, first)
    stage.answer(sent(round_, Sever))
    assert of(stage.wait(2 * GATHERED_US), WriteManifest) == []


def test_when_memory_is_short_the_receivers_are_triggered() -> None:
    stage = deployed()
    snapshots(stage, source=1, middle=2, sink=3)  # a manifest is being written
    triggered = stage.say(RequestCheckpoint(stage.process(SOURCE)))
    assert receivers(triggered, TriggerCheckpoint) == {stage.process(MIDDLE)}


def test_receivers_that_recover_are_triggered_with_all_others_after_the_round() -> None:
    stage = deployed()
    round_ = stage.say(ProcessDied(stage.process(MIDDLE), "killed"))
    assert sent(stage.say(RequestCheckpoint(stage.process(SOURCE))), TriggerCheckpoint) == []
    triggered = stage.answer(sent(round_, Sever))
    assert receivers(triggered, TriggerCheckpoint) == {stage.process(task) for task in TASKS}


def test_the_job_ends_when_all_last_snapshots_are_in_a_manifest_and_sinks_have_committed() -> None:
    stage = deployed()
    adopt(stage, written(snapshots(stage, source=1, middle=2, sink=3)))
    triggers = dict(sent(stage.drain(), TriggerCheckpoint))
    epochs = {task.vertex: triggers[stage.process(task)].checkpoint for task in TASKS}
    sink = epochs.pop("sink")
    assert of(adopt(stage, written(snapshots(stage, finished=True, sink=sink))), EndJob) == []
    assert of(stage.say(Committed(stage.process(SINK), sink)), EndJob) == []
    assert of(adopt(stage, written(snapshots(stage, finished=True, **epochs))), EndJob) == [EndJob()]


def test_a_new_coordinator_knows_what_a_sink_had_committed_before() -> None:
    """The sink is at the end of its input, and its last snapshot counts: it takes no other, and commits no more."""
    stage = deployed()
    snapshots(stage, source=1, middle=2)
    ended = written(snapshots(stage, finished=True, sink=3))
    roster = dict(enumerate(TASKS, 1))
    stage = Stage(uncoordinated(), POLICY, ended, generation=2, roster=roster)
    for number, task in roster.items():
        stage.say(Started(number, f"host:{number}"))
        committed = 3 if task == SINK else 0
        stage.say(StatusReport(number, Attempt(1, 1), begun=True, drained=True, committed=committed))
    triggers = {roster[number]: trigger.checkpoint for number, trigger in sent(stage.instructions, TriggerCheckpoint)}
    assert set(triggers) == {SOURCE, MIDDLE}
    for number in (1, 2):
        last = handle(roster[number], triggers[roster[number]], finished=True)
        stage.say(Snapshotted(number, last))
    assert of(adopt(stage, written(stage.wait(GATHERED_US + 1))), EndJob) == [EndJob()]


def test_snapshots_of_some_tasks_do_not_hide_that_two_cannot_reach_each_other() -> None:
    stage = deployed(replace(POLICY, connection_timeout_us=5 * SECOND_US))
    adopt(stage, written(snapshots(stage, source=1, middle=2, sink=3)))
    sink = stage.process(SINK)
    for second in range(1, 8):
        stage.say(Suspect(sink, MIDDLE, second))
        for task in TASKS:
            stage.say(Pong(stage.process(task), 0))
            stage.say(Pong(stage.standby(task), 0))
        for write in of(snapshots(stage, source=3 * second, middle=3 * second + 1), WriteManifest):
            adopt(stage, write.manifest)
        stage.wait(SECOND_US - GATHERED_US)
    assert [kill.process for kill in of(stage.instructions, KillProcess)] == [sink]


@pytest.mark.parametrize("protocol", [UNCOORDINATED, INDUCED], ids=str)
def test_a_divergence_ends_the_job_since_snapshots_fit_through_logs_only(protocol: ProtocolProperties) -> None:
    stage = deployed(plan=replace(chain(), protocol=protocol))
    instructions = stage.say(Failed(stage.process(MIDDLE), "DivergenceError", "frame 4 differs"))
    (end,) = of(instructions, EndJob)
    assert RolledBack not in happened(instructions)
    assert end.error == "CannotRollBackError"
    assert end.message.startswith("frame 4 differs (its task runs middle); ")
    assert "clonos check" in end.message


@pytest.mark.parametrize("protocol", [UNCOORDINATED, INDUCED], ids=str)
def test_a_protocol_error_without_logs_sends_tasks_back_to_the_line(protocol: ProtocolProperties) -> None:
    stage = deployed(plan=replace(chain(sharing_depth=0), protocol=protocol, rollback=True))
    instructions = stage.say(Failed(stage.process(MIDDLE), "ProtocolError", "a gap"))
    assert of(instructions, EndJob) == []
    assert RolledBack in happened(instructions)
