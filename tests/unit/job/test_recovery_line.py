"""Snapshots that tasks take alone without logs: which count, which tasks go back, and how far."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from clonos_py.job.events import JobInstruction, JobPolicy, ManifestWritten, ProcessDied, StartProcess, WriteManifest
from clonos_py.model.coordinator_events import RolledBack, TaskLost, WentBack
from clonos_py.model.ids import Attempt, TaskId
from clonos_py.model.messages import (
    Complete,
    Fallback,
    Prepare,
    Promote,
    Replay,
    RequestCheckpoint,
    Sever,
    Snapshotted,
    Started,
    StatusReport,
    TriggerCheckpoint,
)
from clonos_py.model.snapshots import Manifest, TaskHandle
from clonos_py.process.contract import InputProgress, TaskProgress
from clonos_py.settings.protocols import UNCOORDINATED
from tests.unit.job.stage import MIDDLE, SECOND_US, SINK, SOURCE, Stage, chain, happened, of, receivers, reported, sent

PLAN = replace(chain(sharing_depth=0), protocol=UNCOORDINATED, rollback=True)


def deployed(manifest: Manifest | None = None) -> Stage:
    stage = Stage(PLAN, JobPolicy(checkpoint_interval_us=5 * SECOND_US), manifest)
    stage.start_up()
    return stage


def handle(task: TaskId, epoch: int, taken: int, cut: int) -> TaskHandle:
    """A snapshot after so many frames in and out. A sink has prepared a file in every epoch."""
    inputs = [] if task == SOURCE else [InputProgress(taken)]
    outputs = [] if task == SINK else [cut]
    progress = TaskProgress(inputs, outputs, [], [], False, 0, [], [], [], {})
    prepared = {"sink": [b"%d" % epoch]} if task == SINK else {}
    return TaskHandle(task, epoch, {}, msgspec.msgpack.encode(progress), prepared)


def snapshot(stage: Stage, task: TaskId, epoch: int, taken: int = 0, cut: int = 0) -> None:
    stage.say(Snapshotted(stage.process(task), handle(task, epoch, taken, cut)))


def counted(stage: Stage) -> tuple[dict[str, list[int]], list[JobInstruction]]:
    """The manifest that is written after a while: by task the snapshots that it names; and the messages sent then."""
    return adopted(stage, stage.wait(SECOND_US // 5))


def adopted(stage: Stage, instructions: list[JobInstruction]) -> tuple[dict[str, list[int]], list[JobInstruction]]:
    (write,) = of(instructions, WriteManifest)
    found: dict[str, list[int]] = {}
    for named in write.manifest.handles:
        found.setdefault(named.task.vertex, []).append(named.checkpoint)
    return found, stage.say(ManifestWritten(write.manifest.checkpoint))


def completes(instructions: list[JobInstruction]) -> dict[int, int]:
    return {process: message.checkpoint for process, message in sent(instructions, Complete)}


def with_a_line() -> Stage:
    """The source has snapshots after 10 and 20 frames; the middle after 10 and 15 frames in; the sink likewise."""
    stage = deployed()
    snapshot(stage, SOURCE, 1, cut=10)
    snapshot(stage, MIDDLE, 2, taken=10, cut=10)
    snapshot(stage, SINK, 3, taken=10)
    counted(stage)
    snapshot(stage, MIDDLE, 4, taken=15, cut=15)
    snapshot(stage, SINK, 5, taken=15)
    counted(stage)
    return stage


def test_no_manifest_is_written_before_a_recovery_line_has_a_snapshot_of_each_task() -> None:
    stage = deployed()
    snapshot(stage, MIDDLE, 1, taken=5, cut=5)
    snapshot(stage, SINK, 2, taken=5)
    snapshot(stage, SOURCE, 3, cut=4)
    assert of(stage.wait(SECOND_US), WriteManifest) == [], "the source would send again what the middle has taken"
    snapshot(stage, SOURCE, 4, cut=9)
    named, _ = counted(stage)
    assert named == {"source": [4], "middle": [1], "sink": [2]}


def test_snapshots_ahead_of_the_line_are_in_the_manifest_but_commit_and_truncate_nothing() -> None:
    stage = deployed()
    snapshot(stage, SOURCE, 1, cut=10)
    snapshot(stage, MIDDLE, 2, taken=10, cut=10)
    snapshot(stage, SINK, 3, taken=10)
    _, first = counted(stage)
    assert completes(first) == {stage.process(task): epoch for task, epoch in ((SOURCE, 1), (MIDDLE, 2), (SINK, 3))}
    snapshot(stage, MIDDLE, 4, taken=15, cut=15)
    snapshot(stage, SINK, 5, taken=15)
    named, second = counted(stage)
    assert named == {"source": [1], "middle": [2, 4], "sink": [3, 5]}
    assert set(completes(second).values()) == {2, 3}, "the line has not moved"
    snapshot(stage, SOURCE, 6, cut=20)
    named, third = counted(stage)
    assert named == {"source": [6], "middle": [4], "sink": [5]}
    assert completes(third) == {stage.process(task): epoch for task, epoch in ((SOURCE, 6), (MIDDLE, 4), (SINK, 5))}


def test_tasks_downstream_of_a_failed_one_go_back_with_it_and_those_upstream_continue() -> None:
    stage = with_a_line()
    source, sink = stage.process(SOURCE), stage.process(SINK)
    instructions = stage.say(ProcessDied(stage.process(MIDDLE), "killed"))
    assert [event.task for event in reported(instructions) if isinstance(event, TaskLost)] == [MIDDLE, SINK]
    assert of(instructions, WriteManifest) == [], "the newest snapshots of both fit together"
    (wish,) = [wish for wish in of(instructions, StartProcess) if wish.reuse is not None]
    assert (wish.task, wish.reuse) == (SINK, sink)
    begun = stage.say(Started(wish.process, "somewhere"))
    assert {message.restore.checkpoint for _, message in sent(begun, Promote)} == {4, 5}
    assert receivers(begun, Sever) == {source}
    assert receivers(stage.answer(sent(begun, Sever)), Replay) == {stage.process(MIDDLE), stage.process(SINK)}
    assert RolledBack not in happened(stage.instructions)


def test_a_replacement_ahead_of_the_line_commits_and_truncates_only_as_far_as_the_line() -> None:
    stage = with_a_line()
    begun = stage.say(ProcessDied(stage.process(SINK), "killed"))
    (restore,) = [message.restore for _, message in sent(begun, Promote)]
    assert (restore.checkpoint, restore.committables) == (5, {"sink": [b"5"]})
    assert restore.fallback == Fallback(3, {"sink": [b"3"]}, [10])


def test_snapshots_that_are_given_up_leave_the_manifest_before_tasks_go_back() -> None:
    stage = with_a_line()
    instructions = stage.say(ProcessDied(stage.process(SOURCE), "killed"))
    assert sent(instructions, Promote) == []
    assert WentBack(tasks=3, invalid=2, durable=5) in reported(instructions)
    named, _ = adopted(stage, instructions)
    assert named == {"source": [1], "middle": [2], "sink": [3]}
    stage.start_up()
    restarts = {message.restore.checkpoint for _, message in sent(stage.instructions, Promote)[3:]}
    assert restarts == {1, 2, 3}


def test_epochs_continue_after_those_of_snapshots_that_were_given_up() -> None:
    stage = with_a_line()
    adopted(stage, stage.say(ProcessDied(stage.process(SOURCE), "killed")))
    replays = [message for _, message in sent(stage.start_up(), Replay)]
    assert len(replays) == 3
    assert all(message.aborted and message.aborted[0] >= 5 for message in replays)


def test_a_failure_before_the_first_line_sends_tasks_back_to_the_start() -> None:
    stage = deployed()
    snapshot(stage, MIDDLE, 1, taken=5, cut=5)
    instructions = stage.say(ProcessDied(stage.process(SINK), "killed"))
    assert [message.restore.checkpoint for _, message in sent(instructions, Promote)] == [0]


def test_the_whole_job_resumes_from_the_line() -> None:
    (*_, write) = of(with_a_line().instructions, WriteManifest)
    stage = Stage(PLAN, JobPolicy(), write.manifest, generation=2)
    named, _ = adopted(stage, stage.start_up())
    assert named == {"source": [1], "middle": [2], "sink": [3]}
    stage.start_up()
    assert {message.restore.checkpoint for _, message in sent(stage.instructions, Promote)} == {1, 2, 3}


def test_a_new_coordinator_reads_the_line_and_the_snapshots_ahead_of_it_from_the_manifest() -> None:
    (*_, write) = of(with_a_line().instructions, WriteManifest)
    machine = Stage(PLAN, JobPolicy(), write.manifest, roster={}).machine
    assert [machine._protocol.epoch(task) for task in PLAN.tasks] == [1, 4, 5]
    assert [machine._protocol.complete_message(task).checkpoint for task in PLAN.tasks] == [1, 2, 3]


def test_a_new_coordinator_sends_back_tasks_that_still_run_after_a_promoted_one() -> None:
    """The lost coordinator had promoted the process of the failed task, but had not reached those after it."""
    (*_, write) = of(with_a_line().instructions, WriteManifest)
    stage = Stage(PLAN, JobPolicy(), write.manifest, generation=2, roster={1: SOURCE, 2: MIDDLE, 3: SINK})
    for number in (1, 2, 3):
        stage.say(Started(number, f"host:{number}"))
    stage.say(StatusReport(1, Attempt(1, 1), begun=True))
    stage.say(StatusReport(2, Attempt(1, 2), begun=False, restore=4))
    stage.say(StatusReport(3, Attempt(1, 1), begun=True))
    assert [event.task for event in reported(stage.instructions) if isinstance(event, TaskLost)] == [SINK]
    (wish,) = [wish for wish in of(stage.instructions, StartProcess) if wish.reuse is not None]
    assert (wish.task, wish.reuse) == (SINK, 3)
    while writes := of(stage.instructions[-1:], WriteManifest):
        stage.say(ManifestWritten(writes[-1].manifest.checkpoint))
    begun = stage.say(Started(wish.process, "somewhere"))
    assert receivers(begun, Promote) == {wish.process}
    assert receivers(begun, Sever) == {1, 2}
    assert receivers(stage.answer(sent(begun, Sever)), Replay) == {2, wish.process}
    assert RolledBack not in happened(stage.instructions)


def test_a_new_coordinator_sends_back_promoted_tasks_after_one_that_has_died() -> None:
    """None runs, and yet this is not the first deployment: their attempts are not the first ones."""
    (*_, write) = of(with_a_line().instructions, WriteManifest)
    stage = Stage(PLAN, JobPolicy(), write.manifest, generation=2, roster={1: SOURCE, 2: MIDDLE, 3: SINK})
    for number in (2, 3):
        stage.say(Started(number, f"host:{number}"))
    stage.say(StatusReport(2, Attempt(1, 2), begun=False, restore=4))
    stage.say(StatusReport(3, Attempt(1, 2), begun=False, restore=5))
    stage.say(ProcessDied(1, "it is gone"))
    assert {wish.task: wish.reuse for wish in of(stage.instructions, StartProcess) if wish.reuse} == {
        MIDDLE: 2,
        SINK: 3,
    }
    while writes := of(stage.instructions[-1:], WriteManifest):
        stage.say(ManifestWritten(writes[-1].manifest.checkpoint))
    stage.start_up()
    restored = {process: promote.restore.checkpoint for process, promote in sent(stage.instructions, Promote)}
    assert restored == {stage.process(SOURCE): 1, stage.process(MIDDLE): 2, stage.process(SINK): 3}


def test_when_memory_is_short_all_tasks_are_triggered_until_the_line_has_passed_the_receivers() -> None:
    stage = with_a_line()
    everybody = {stage.process(task) for task in PLAN.tasks}
    assert receivers(stage.say(RequestCheckpoint(stage.process(SOURCE))), TriggerCheckpoint) == everybody
    snapshot(stage, MIDDLE, 20, taken=30, cut=30)
    counted(stage)
    stage.wait(SECOND_US)
    snapshot(stage, MIDDLE, 21, taken=31, cut=31)
    _, later = counted(stage)
    assert receivers(later, TriggerCheckpoint) == everybody, "the line has not moved"
    snapshot(stage, SOURCE, 30, cut=40)
    _, moved = counted(stage)
    assert receivers(moved, TriggerCheckpoint) == set()


def test_a_snapshot_that_waits_long_for_a_line_is_counted_once() -> None:
    stage = deployed()
    snapshot(stage, MIDDLE, 1, taken=5, cut=5)
    stage.wait(SECOND_US // 5)
    snapshot(stage, SINK, 2, taken=5)
    stage.wait(SECOND_US // 5)
    snapshot(stage, SOURCE, 3, cut=10)
    counted(stage)
    caused = stage.say(ProcessDied(stage.process(SOURCE), "killed"))
    (event,) = [e for e in reported(caused) if isinstance(e, WentBack)]
    assert event.durable == 3


def test_snapshots_before_the_first_line_are_invalid_when_their_tasks_go_back_to_the_start() -> None:
    stage = deployed()
    snapshot(stage, MIDDLE, 1, taken=5, cut=5)
    snapshot(stage, MIDDLE, 2, taken=9, cut=9)
    snapshot(stage, SINK, 3, taken=5)
    caused = stage.say(ProcessDied(stage.process(MIDDLE), "killed"))
    assert WentBack(tasks=2, invalid=3, durable=3) in reported(caused)
    stage.start_up()
    stage.say(ProcessDied(stage.process(SOURCE), "killed"))
    stage.start_up()
    assert WentBack(tasks=3, invalid=0, durable=3) in reported(stage.instructions), "counted when they were given up"


def test_standbys_load_the_snapshots_that_their_tasks_go_back_to() -> None:
    stage = with_a_line()
    _, caused = adopted(stage, stage.say(ProcessDied(stage.process(SOURCE), "killed")))
    assert {m.restore.checkpoint for _, m in sent(caused, Prepare)} >= {2, 3}


def finished(task: TaskId, epoch: int) -> TaskHandle:
    found = handle(task, epoch, 10, 10)
    progress = msgspec.msgpack.decode(found.progress, type=TaskProgress)
    return msgspec.structs.replace(
        found, progress=msgspec.msgpack.encode(msgspec.structs.replace(progress, finished=True))
    )


@pytest.mark.parametrize("rollback", [False, True])
def test_a_finished_job_that_is_run_again_takes_a_last_checkpoint_at_once(rollback: bool) -> None:
    plan = replace(chain(0 if rollback else -1), protocol=UNCOORDINATED, rollback=rollback)
    ended = [finished(task, epoch) for task, epoch in ((SOURCE, 5), (MIDDLE, 6), (SINK, 7))]
    manifest = Stage(plan).machine._completed.next(9, 1, ended)
    stage = Stage(plan, JobPolicy(checkpoint_interval_us=0), manifest, generation=2)
    stage.answer(sent(stage.start_up(), Sever))
    stage.drain()
    assert receivers(stage.instructions, TriggerCheckpoint) == {stage.process(task) for task in plan.tasks}


def test_without_an_interval_the_coordinator_pauses_while_a_manifest_is_written() -> None:
    plan = replace(chain(0), protocol=UNCOORDINATED, rollback=True)
    stage = Stage(plan, JobPolicy(checkpoint_interval_us=0))
    stage.start_up()
    for task, epoch in ((SOURCE, 1), (MIDDLE, 2), (SINK, 3)):
        snapshot(stage, task, epoch, 10, 10)
    stage.now_us += 1
    stage.machine.tick(stage.now_us)
    snapshot(stage, SINK, 5, taken=10)
    for _ in range(5):
        stage.now_us = max(stage.now_us, stage.machine.wake_us)
        stage.machine.tick(stage.now_us)
    assert stage.machine.wake_us > stage.now_us


def test_a_task_without_snapshots_makes_the_others_take_at_most_one_a_second() -> None:
    stage = with_a_line()
    stage.say(RequestCheckpoint(stage.process(SOURCE)))
    triggers = 0
    epoch = 50
    for _ in range(20):
        epoch += 1
        snapshot(stage, SINK, epoch, taken=16)
        caused = stage.wait(SECOND_US // 8)
        for write in of(caused, WriteManifest):
            caused = stage.say(ManifestWritten(write.manifest.checkpoint))
            triggers += len(sent(caused, TriggerCheckpoint))
            epoch = max(epoch, write.manifest.checkpoint)
    assert triggers < 20
