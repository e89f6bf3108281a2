"""The logs of a record: which snapshots count, where they join, and what they hold in figures."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest
from msgspec.structs import replace

from clonos_py.causal.codec import encode
from clonos_py.causal.determinants import InputOrder
from clonos_py.model.ids import TaskId
from clonos_py.model.segments import LogSegment
from clonos_py.model.snapshots import Manifest, OperatorHandle, Recorded, StoredChunk, TaskHandle
from clonos_py.process.contract import TaskProgress
from clonos_py.runtime.record_summary import record_periods
from clonos_py.runtime.recorded_logs import (
    CountingSnapshot,
    RecordGapError,
    counting_snapshots,
    log_between,
    sections,
    usable_bases,
)

JOIN = TaskId("join", 0)
PROGRESS = TaskProgress([], [], [], [], False, 0, [], [], [], {})


def location(checkpoint: int) -> str:
    return f"records/000000000/{checkpoint:012d}.join-0.1.1.record#0+10:0000000000000000"


def handle(checkpoint: int, offset: int, record: Sequence[int] = (), without_log: int = -1) -> TaskHandle:
    progress = msgspec.msgpack.encode(replace(PROGRESS, log_offset=offset))
    pieces = [StoredChunk(location(number), 1, 10, 0) for number in record]
    return TaskHandle(JOIN, checkpoint, {}, progress, {}, record=pieces, without_log=without_log)


def manifest(checkpoint: int, *tasks: TaskHandle, earlier: Sequence[TaskHandle] = (), at_ms: int = 0) -> Manifest:
    recorded = Recorded(60_000_000, {}, at_ms or checkpoint * 1_000)
    return Manifest("job", checkpoint, 1, 128, {"join": 1}, list(tasks), earlier=list(earlier), recorded=recorded)


def segment(epoch: int, start: int, stop: int) -> LogSegment:
    return LogSegment(JOIN.log_id, epoch, start, start, stop - start, encode([InputOrder(0, stop - start)]))


def numbers(found: Sequence[CountingSnapshot]) -> list[int]:
    return [snapshot.handle.checkpoint for snapshot in found]


def pair(before: TaskHandle, after: TaskHandle) -> tuple[CountingSnapshot, CountingSnapshot]:
    one, other = counting_snapshots([manifest(before.checkpoint, before), manifest(after.checkpoint, after)], JOIN)
    return one, other


def test_a_snapshot_counts_once_however_many_manifests_name_it() -> None:
    first, second = handle(1, 5), handle(4, 9)
    found = counting_snapshots([manifest(2, first), manifest(3, first), manifest(5, second)], JOIN)
    assert numbers(found) == [1, 4]
    assert [snapshot.manifest.checkpoint for snapshot in found] == [2, 5]
    assert [snapshot.log_offset for snapshot in found] == [5, 9]


def test_a_snapshot_that_its_task_went_back_behind_does_not_count() -> None:
    first, given_up, later = handle(1, 5), handle(4, 9), handle(8, 7)
    manifests = [manifest(2, first), manifest(5, given_up, earlier=[first]), manifest(6, first), manifest(9, later)]
    assert numbers(counting_snapshots(manifests, JOIN)) == [1, 8]


def test_the_log_goes_from_one_snapshot_to_the_next() -> None:
    before, after = pair(handle(1, 5), handle(3, 9))
    log = [segment(0, 0, 5), segment(1, 5, 8), segment(2, 8, 9)]
    assert log_between(before, after, log) == log[1:], "what the snapshot before has is left out"


@pytest.mark.parametrize(
    ("log", "problem"),
    [
        ([segment(1, 6, 9)], "determinants 5 to 6 are missing"),
        ([segment(1, 5, 7), segment(1, 8, 9)], "determinants 7 to 8 are missing"),
        ([segment(1, 5, 8)], "it ends at 8, the snapshot was taken at 9"),
        ([segment(1, 5, 9), segment(1, 9, 10)], "it ends at 10, the snapshot was taken at 9"),
        ([segment(1, 5, 9), segment(1, 5, 9)], "determinants 9 to 5 are missing"),
        ([], "it ends at 5, the snapshot was taken at 9"),
    ],
)
def test_a_log_that_is_not_complete_is_refused(log: list[LogSegment], problem: str) -> None:
    with pytest.raises(RecordGapError, match=rf"join\[0\] .* between checkpoints 1 and 3: {problem}") as raised:
        log_between(*pair(handle(1, 5), handle(3, 9)), log)
    assert not raised.value.explained


def test_a_restart_without_the_log_is_a_gap() -> None:
    log = [segment(1, 5, 9)]
    with pytest.raises(RecordGapError, match="restarted there without its log") as raised:
        log_between(*pair(handle(1, 5), handle(3, 9, without_log=1)), log)
    assert raised.value.explained
    assert log_between(*pair(handle(1, 5, without_log=0), handle(3, 9, without_log=0)), log) == log, "it was earlier"


def test_a_record_is_divided_where_tasks_begin_with_new_numbers() -> None:
    one, two = manifest(1, handle(1, 5)), manifest(2, handle(2, 7))
    wider = replace(manifest(3, handle(3, 0)), parallelism={"join": 2}, renumberings=1)
    off = replace(manifest(4, handle(4, 1)), recorded=None)
    again = manifest(5, handle(5, 2))
    assert sections([one, two, wider, off, again]) == [[one, two], [wider], [again]]
    assert sections([]) == []


def test_a_period_has_the_figures_of_its_record() -> None:
    state = StoredChunk("state/000000000001.join-0.1.1.0.chunks#0+100:0000000000000000", 3, 100, 0)
    first = replace(handle(1, 5, [1]), operators={"join": OperatorHandle({"rows": [state]}, b"")})
    manifests = [manifest(1, first), manifest(2, handle(2, 7, [1, 2])), manifest(4, handle(4, 30, [2, 4]))]
    (period,) = record_periods(manifests, [manifests[0], manifests[2]])
    assert (period.from_ms, period.until_ms, period.checkpoints) == (1_000, 4_000, 3)
    assert (list(period.bases_ms), period.state_bytes) == ([1_000, 4_000], 100)
    (task,) = period.tasks
    assert (task.task, task.determinants, task.log_bytes) == ("join[0]", 25, 30)
    assert (period.determinants, period.log_bytes, list(period.gaps)) == (25, 30, [])


def test_what_is_before_the_first_base_is_no_part_of_a_period() -> None:
    manifests = [manifest(1, handle(1, 5)), manifest(2, handle(2, 7))]
    (period,) = record_periods(manifests, manifests[1:])
    assert (period.from_ms, period.checkpoints) == (2_000, 1)


def test_a_base_that_a_task_went_back_behind_is_of_no_use() -> None:
    first, given_up = handle(1, 5), handle(4, 9)
    manifests = [manifest(2, first), manifest(5, given_up), manifest(6, first), manifest(9, handle(8, 7))]
    assert usable_bases(manifests, manifests) == [manifests[0], manifests[2], manifests[3]]
    (period,) = record_periods(manifests, manifests)
    assert list(period.bases_ms) == [2_000, 6_000, 9_000]


def test_a_gap_is_shown() -> None:
    manifests = [manifest(1, handle(1, 5)), manifest(2, handle(2, 7, without_log=1))]
    (period,) = record_periods(manifests, manifests[:1])
    assert list(period.gaps) == [
        "the record of join[0] has a gap between checkpoints 1 and 2: it has restarted there without its log"
    ]
