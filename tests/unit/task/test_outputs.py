from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from clonos_py.channel.frames import FrameKind
from clonos_py.columns.keys import key_groups
from clonos_py.model.plan import Partitioning
from clonos_py.process.contract import TaskProgress
from clonos_py.task.outputs import Outputs
from tests.unit.task.plans import UP, keys, rows, three


def outputs(receivers: int = 1, partitioning: Partitioning = Partitioning.HASH) -> Outputs:
    """The outputs of a source with ``receivers``; frames have four rows at most."""
    return Outputs(three((1, receivers, 1), partitioning), UP)


def cut(found: Outputs) -> list[tuple[int, int, list[int]]]:
    """(channel, sequence number, keys) of the frames cut."""
    return [(channel, frame.seq, keys(frame.rows)) for channel, frame in found.take().frames]


def adaptive() -> Outputs:
    return Outputs(three(frame_rows=100, adaptive=True), UP)


def sizes(found: Outputs, requested: int) -> list[int]:
    """The size of frames after each change that follows from what a receiver requests."""
    found.request_frame_rows(0, requested)
    changes = []
    while (change := found.resizing()) is not None:
        found.resize(change)
        changes.append(found.frame_rows[0])
    return changes


def test_frames_have_one_row_before_the_cost_of_rows_is_measured() -> None:
    found = adaptive()
    found.emit(0, rows(1, 2, 3))
    assert cut(found) == [(0, 0, [1]), (0, 1, [2]), (0, 2, [3])]


def test_frames_have_the_size_that_their_receiver_takes_at_once_and_small_changes_are_ignored() -> None:
    found = adaptive()
    assert sizes(found, 8) == [8]
    found.emit(0, rows(*range(8)))
    assert cut(found) == [(0, 0, list(range(8)))]
    assert sizes(found, 15) == []
    assert sizes(found, 5) == [], "more than half"
    assert sizes(found, 31) == [16]
    assert sizes(found, 8) == [8]
    assert sizes(found, 3) == [2]
    assert sizes(found, 1) == [1]
    assert sizes(found, 1_000_000) == [100], "no larger than those of the edge"
    assert sizes(found, 1_000_000) == []
    assert sizes(found, 51) == []
    assert sizes(found, 50) == [32]


def test_the_rows_of_one_step_are_bounded_by_the_frame_size() -> None:
    found = adaptive()
    assert found.rows_at_once == 4
    sizes(found, 8)
    assert found.rows_at_once == 32
    assert outputs().rows_at_once is None


def test_the_frame_size_survives_a_checkpoint() -> None:
    first, second = adaptive(), adaptive()
    sizes(first, 8)
    progress = TaskProgress([], [3], [0], [0], False, 0, [], [], [], {}, frame_rows=first.frame_rows)
    second.restore(1, progress)
    assert second.frame_rows == [8]
    plain = Outputs(three(frame_rows=50), UP)
    plain.restore(1, progress)
    assert plain.frame_rows == [50], "the current settings"


def test_few_rows_wait_until_a_frame_is_full() -> None:
    found = outputs()
    found.emit(0, rows(1))
    found.emit(0, rows(2))
    assert cut(found) == []
    assert found.waiting
    found.emit(0, rows(3))
    assert cut(found) == [(0, 0, [1, 2, 3])]
    assert not found.waiting


def test_large_batches_are_cut_into_frames() -> None:
    found = outputs()
    found.emit(0, rows(*range(9)))
    assert cut(found) == [(0, 0, [0, 1, 2, 3]), (0, 1, [4, 5, 6, 7])]
    found.flush()
    assert cut(found) == [(0, 2, [8])]


def test_rows_that_do_not_fit_go_into_the_next_frame() -> None:
    found = outputs()
    found.emit(0, rows(1, 2))
    found.emit(0, rows(3, 4, 5))
    assert cut(found) == [(0, 0, [1, 2]), (0, 1, [3, 4, 5])]


def test_the_linger_time_cuts_only_pending_rows() -> None:
    found = outputs(receivers=2, partitioning=Partitioning.REBALANCE)
    found.emit(0, rows(1))
    found.flush()
    assert cut(found) == [(0, 0, [1])]
    found.flush()
    assert cut(found) == []


def test_a_watermark_without_rows_is_sent_once() -> None:
    found = outputs()
    found.advance(0, 70)
    assert found.waiting
    found.flush()
    found.flush()
    ((_, frame),) = found.take().frames
    assert (frame.rows, frame.watermark, frame.seq) == (None, 70, 0)


def test_idleness_without_rows_is_sent_once() -> None:
    found = outputs()
    found.idle = True
    found.flush()
    found.flush()
    assert [frame.idle for _, frame in found.take().frames] == [True]


def test_a_barrier_is_sent_after_pending_rows_on_every_channel() -> None:
    found = outputs(receivers=2, partitioning=Partitioning.REBALANCE)
    found.emit(0, rows(1))
    found.close_with(FrameKind.BARRIER, 3)
    taken = [(channel, frame.seq, frame.kind, frame.checkpoint) for channel, frame in found.take().frames]
    assert taken == [
        (0, 0, FrameKind.DATA, 0),
        (0, 1, FrameKind.BARRIER, 3),
        (1, 0, FrameKind.BARRIER, 3),
    ]
    assert found.next_seqs == [2, 1]


@given(st.lists(st.lists(st.integers(-99, 99), min_size=1, max_size=12), max_size=8))
def test_rows_go_to_the_owner_of_their_key_in_order(batches: list[list[int]]) -> None:
    found = outputs(receivers=3)
    for batch in batches:
        found.emit(0, rows(*batch))
    found.flush()
    got: list[list[int]] = [[], [], []]
    for channel, _, some in cut(found):
        got[channel] += some
    everything = [key for batch in batches for key in batch]
    owners = [int(group) * 3 // 16 for key in everything for group in key_groups(rows(key), ("key",), 16)]
    assert got == [[k for k, owner in zip(everything, owners, strict=True) if owner == n] for n in range(3)]


def test_batches_are_sent_to_receivers_in_turn() -> None:
    found = outputs(receivers=2, partitioning=Partitioning.REBALANCE)
    for batch in (rows(1, 2, 3), rows(4, 5, 6), rows(7, 8, 9)):
        found.emit(0, batch)
    assert cut(found) == [(0, 0, [1, 2, 3]), (1, 0, [4, 5, 6]), (0, 1, [7, 8, 9])]


def test_a_broadcast_batch_is_sent_to_every_receiver() -> None:
    found = outputs(receivers=2, partitioning=Partitioning.BROADCAST)
    found.emit(0, rows(1, 2, 3))
    assert cut(found) == [(0, 0, [1, 2, 3]), (1, 0, [1, 2, 3])]


def test_frames_carry_the_epoch_in_which_they_were_cut_and_the_first_marker() -> None:
    found = outputs()
    found.epoch = 2
    found.mark(10)
    found.mark(20)
    found.emit(0, rows(1, 2, 3))
    found.emit(0, rows(1, 2, 3))
    assert [(frame.epoch, frame.marker_us) for _, frame in found.take().frames] == [(2, 10), (2, 0)]
