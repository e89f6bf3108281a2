"""What a link keeps for the record: pieces from snapshot to snapshot, since the restart point."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from clonos_py.causal.codec import encode
from clonos_py.causal.determinants import InputOrder
from clonos_py.channel.frames import PassThrough
from clonos_py.checkpoint.log_chunks import logs_in
from clonos_py.link import instructions as io
from clonos_py.link.machine import LinkMachine
from clonos_py.link.recording import LogRecording
from clonos_py.model import messages as control
from clonos_py.model.errors import ProtocolError
from clonos_py.model.ids import TaskId
from clonos_py.model.record_limits import RecordLimit
from clonos_py.model.segments import Incarnation, LogSegment
from clonos_py.model.snapshots import TaskSnapshot
from clonos_py.model.state import Chunk
from clonos_py.process import contract as task
from clonos_py.process.contract import TaskState
from tests.machines import link_machine
from tests.unit.link.links import FIRST, PLAN, of
from tests.unit.task.plans import DOWN, MIDDLE

RECORDED = replace(PLAN, record=RecordLimit(60_000_000))
STATELESS = task.TaskProgress([task.InputProgress()], [0], [], [], False, 0, [], [], [], {})


def segment(epoch: int, start: int, count: int = 1, of_task: TaskId = MIDDLE) -> LogSegment:
    return LogSegment(of_task.log_id, epoch, start, start, count, encode([InputOrder(0, count)]))


def spans(pieces: Sequence[Chunk]) -> list[list[tuple[int, int]]]:
    """By piece: the epoch and the first offset of each of its segments."""
    return [[(found.epoch, found.start) for found in logs_in(piece)] for piece in pieces]


def recording(*log: LogSegment) -> LogRecording:
    made = LogRecording(on=True)
    made.start(log)
    return made


def test_a_snapshot_names_what_was_cut_since_the_restart_point() -> None:
    made = recording()
    for cut in (segment(0, 0), segment(0, 1, 2)):
        made.produced(cut)
    first = made.taken(3)
    made.produced(segment(3, 3))
    assert spans(first) == [[(0, 0), (0, 1)]]
    assert spans(made.taken(4)) == [[(0, 0), (0, 1)], [(3, 3)]], "checkpoint 3 is not known to be complete"
    made.complete(3)
    assert spans(made.taken(5)) == [[(3, 3)]]


def test_a_piece_is_the_same_chunk_in_all_snapshots_that_name_it() -> None:
    made = recording(segment(0, 0))
    (first,) = made.taken(1)
    first.location = "stored"
    assert made.taken(2) == (first,), "its location would be lost in a copy"


def test_an_aborted_checkpoint_loses_nothing() -> None:
    made = recording(segment(0, 0))
    made.taken(1)
    made.produced(segment(1, 1))
    assert spans(made.taken(2)) == [[(0, 0)], [(1, 1)]]
    made.complete(2)
    made.produced(segment(2, 2))
    assert spans(made.taken(3)) == [[(2, 2)]]


def test_what_the_predecessor_logged_belongs_to_the_record() -> None:
    """The replay passes the snapshots of epochs 1 and 2, which do not count, and does not persist them."""
    made = recording(segment(0, 0), segment(1, 1), segment(1, 2), segment(2, 3))
    made.produced(segment(2, 4))
    assert spans(made.taken(7)) == [[(0, 0)], [(1, 1), (1, 2)], [(2, 3), (2, 4)]]


def test_a_checkpoint_that_completes_during_the_replay_drops_what_it_covers() -> None:
    made = recording(segment(0, 0), segment(1, 1))
    made.complete(1)
    assert spans(made.taken(2)) == [[(1, 1)]]
    assert made.since(0) == [segment(1, 1)]


def test_the_log_is_read_from_an_offset_on() -> None:
    made = recording(segment(0, 0), segment(0, 1))
    made.taken(1)
    made.produced(segment(1, 2))
    assert made.since(0) == [segment(0, 0), segment(0, 1), segment(1, 2)]
    assert made.since(1) == [segment(0, 1), segment(1, 2)]
    assert (made.since(2), made.since(3)) == ([segment(1, 2)], [])


def test_a_gap_is_an_error() -> None:
    made = recording(segment(0, 0))
    with pytest.raises(ProtocolError, match="held up to 1, next is 2"):
        made.produced(segment(0, 2))


def test_a_segment_of_an_epoch_that_is_over_is_an_error() -> None:
    made = recording(segment(0, 0))
    made.taken(1)
    with pytest.raises(ProtocolError, match=r"epoch 0 .* is over"):
        made.produced(segment(0, 1))


def test_a_recording_that_is_off_keeps_nothing() -> None:
    made = LogRecording(on=False)
    made.produced(segment(0, 0))
    assert (made.taken(1), made.since(0)) == ((), [])


# ---- the recording of a link


def link(of_task: TaskId, *log: LogSegment, incarnation: Incarnation = Incarnation()) -> LinkMachine:  # noqa: B008
    made = link_machine(RECORDED, of_task, 5, PassThrough())
    made.handle(control.Promote(1, FIRST, control.Restore(0), []))
    made.handle(control.Replay(1, list(log), [], [], incarnation=incarnation))
    made.handle(task.StateChanged(TaskState.RUNNING))
    return made


def record(made: LinkMachine, checkpoint: int) -> list[LogSegment]:
    """Takes a snapshot. Returns the log that it names."""
    snapshot = TaskSnapshot(MIDDLE, checkpoint, {}, b"")
    (persist,) = of(made.handle(task.SnapshotTaken(snapshot, STATELESS, True)), io.Persist)
    return [found for piece in persist.snapshot.record for found in logs_in(piece)]


def test_a_log_that_is_only_recorded_is_not_held_for_others() -> None:
    assert not RECORDED.logged(DOWN), "no task downstream of it needs its log"
    made = link(DOWN)
    made.handle(task.Produced(segment(0, 0, of_task=DOWN), []))
    assert (made.store.of(DOWN.log_id), made.store.size_bytes) == ([], 0)
    assert record(made, 1) == [segment(0, 0, of_task=DOWN)]


def test_a_log_that_is_shared_is_recorded_as_it_is_shared() -> None:
    made = link(MIDDLE)
    made.handle(task.Produced(segment(0, 0), []))
    assert made.store.of(MIDDLE.log_id) == record(made, 1) == [segment(0, 0)]


def test_a_task_that_restarts_without_its_log_records_its_incarnation() -> None:
    made = link(MIDDLE, incarnation=Incarnation(2))
    made.handle(task.Produced(segment(0, 0), []))
    assert [found.incarnation for found in record(made, 1)] == [2]


def test_the_log_that_a_task_replays_is_recorded_and_a_replayed_snapshot_stores_nothing() -> None:
    made = link(MIDDLE, segment(0, 0), segment(1, 1))
    assert made.handle(task.SnapshotTaken(TaskSnapshot(MIDDLE, 1, {}, b""), STATELESS, False)) == []
    assert record(made, 2) == [segment(0, 0), segment(1, 1)]


def test_a_completed_checkpoint_drops_what_it_covers() -> None:
    made = link(MIDDLE)
    made.handle(task.Produced(segment(0, 0), []))
    record(made, 1)
    made.handle(control.Complete(1))
    made.handle(task.Produced(segment(1, 1), []))
    assert record(made, 2) == [segment(1, 1)]
