"""Which logs that processes held when their job failed go on after which snapshots (F1)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import msgspec
import pytest

from clonos_py.model.ids import Attempt, TaskId
from clonos_py.model.messages import Restore
from clonos_py.model.segments import LogSegment
from clonos_py.model.snapshots import Manifest, Recorded, RecordTail, TaskHandle
from clonos_py.process.contract import TaskProgress
from clonos_py.runtime.replay.interval import RecordedTask, tails_after, with_tail
from tests.unit.checkpoint.stores import manifest

UP, DOWN = TaskId("up", 0), TaskId("down", 0)


def written(checkpoint: int, generation: int = 1, run: str = "monday", lineage: str = "job") -> Manifest:
    described = manifest(checkpoint, generation=generation)
    return msgspec.structs.replace(described, run=run, lineage=lineage, recorded=Recorded(1))


def failed(checkpoint: int, generation: int = 1, run: str = "monday", lineage: str = "job") -> RecordTail:
    return RecordTail(UP, Attempt(generation, 0), [], written(checkpoint, generation, run, lineage))


@pytest.mark.parametrize(
    ("newest", "tail", "follows"),
    [
        (None, failed(0), True),
        (None, failed(3), False),
        (written(7), failed(7), True),
        (written(7), failed(7, generation=2), True),
        (written(7), failed(6), True),
        (written(7), failed(6, generation=2), True),
        (written(7, generation=2), failed(6), False),
        (written(7), failed(8), False),
        (written(7), failed(7, generation=2, run="tuesday"), True),
        (written(7), failed(6, generation=2, run="tuesday"), False),
        (written(7, generation=2, run="tuesday"), failed(7), False),
        (written(7), failed(7, lineage="another"), False),
    ],
)
def test_a_log_goes_on_after_the_newest_checkpoint(newest: Manifest | None, tail: RecordTail, follows: bool) -> None:
    """Of the same run before it was known to be complete, or of one that resumed from it."""
    assert tails_after(newest, [tail]) == [tail] * follows


def test_of_several_failures_after_a_checkpoint_the_last_counts() -> None:
    tails = [failed(7), failed(7, 3, "wednesday"), failed(7, 2, "tuesday")]
    assert tails_after(written(7), tails) == [tails[1]]


# ---- the log of a task


def segment(
    start: int, epoch: int = 7, epoch_start: int = 40, incarnation: int = 0, payload: bytes = b""
) -> LogSegment:
    return LogSegment(UP.log_id, epoch, epoch_start, start, 5, payload, incarnation)


def held(task: TaskId, segments: Sequence[LogSegment], attempt: int = 0) -> RecordTail:
    return RecordTail(task, Attempt(1, attempt), list(segments), written(7))


def progress_at(log_offset: int) -> bytes:
    return msgspec.msgpack.encode(TaskProgress([], [], [], [], False, log_offset, [], [], [], {}))


def log_after_40(*tails: RecordTail) -> list[LogSegment]:
    """The log of a task that began with checkpoint 7, where its log had an offset of 40."""
    return list(with_tail(UP, RecordedTask(Restore(7, {}, progress_at(40)), (), {}), tails).log)


def test_a_log_goes_on_as_far_as_it_is_held() -> None:
    assert log_after_40(held(UP, [segment(40), segment(45), segment(55)])) == [segment(40), segment(45)]
    assert log_after_40(held(UP, [segment(35, 6, 30), segment(40)])) == [segment(40)]
    assert log_after_40() == log_after_40(held(DOWN, [])) == []


@pytest.mark.parametrize("other", [segment(40, epoch=6), segment(40, epoch_start=35), segment(45)])
def test_a_log_that_begins_with_another_snapshot_does_not_count(other: LogSegment) -> None:
    assert log_after_40(held(UP, [other, segment(45)])) == []


def test_a_log_ends_where_the_task_restarted_without_it() -> None:
    assert log_after_40(held(UP, [segment(40), segment(45, incarnation=1)])) == [segment(40)]


def test_the_last_attempt_of_a_task_knows_its_log_best() -> None:
    old, new = segment(40, payload=b"old"), segment(40, payload=b"new")
    tails = [held(UP, [old, segment(45)], 1), held(UP, [new], 2), held(DOWN, [old, segment(45)], 3)]
    for order in (tails, tails[::-1]):
        assert log_after_40(*order) == [new]


def test_without_a_process_of_the_task_those_downstream_have_its_log() -> None:
    tails = [held(DOWN, [segment(40), segment(45)], 1), held(TaskId("down", 1), [segment(40)], 2)]
    for order in (tails, tails[::-1]):
        assert log_after_40(*order) == [segment(40), segment(45)]


def test_a_log_goes_on_after_the_last_snapshot_that_was_recorded() -> None:
    before = [segment(30, 6, 30), segment(35, 6, 30)]
    recorded = RecordedTask(Restore(6, {}, progress_at(30)), before, {7: TaskHandle(UP, 7, {}, progress_at(40), {})})
    assert with_tail(UP, recorded, [held(UP, [*before, segment(40)])]) == replace(recorded, log=[*before, segment(40)])
