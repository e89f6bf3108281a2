from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clonos_py.causal.determinants import FrameBatch, InputOrder
from clonos_py.channel.frames import Frame, FrameKind
from clonos_py.model.errors import ProtocolError
from clonos_py.model.times import MAX_TIME, MIN_TIME
from clonos_py.task.inputs import Inputs
from tests.unit.task.plans import data


def filled(*counts: int) -> Inputs:
    inputs = Inputs([0] * len(counts), 1)
    for index, count in enumerate(counts):
        for seq in range(count):
            inputs.offer(index, data(seq, seq))
    return inputs


def taken(inputs: Inputs) -> list[int]:
    """The channels chosen, in order, until nothing is ready."""
    order = []
    while (arrival := inputs.choose()) is not None:
        inputs.take(arrival.channel)
        order.append(arrival.channel)
    return order


def test_channels_take_turns() -> None:
    assert taken(filled(2, 0, 3)) == [0, 2, 0, 2, 2]


@given(st.lists(st.integers(0, 6), min_size=1, max_size=5))
def test_every_offered_frame_is_taken_once(counts: list[int]) -> None:
    inputs = filled(*counts)
    order = taken(inputs)
    assert [order.count(index) for index in range(len(counts))] == counts
    assert [progress.next_seq for progress in inputs.progress] == counts


def test_an_untimed_channel_holds_no_watermark_back() -> None:
    """Rows of a table are used as they come: its source may be silent, idle, or at its end."""
    inputs = Inputs([0, 0], 1, untimed={1})
    inputs.observe(0, Frame(0, FrameKind.DATA, 0, watermark=7))
    assert inputs.watermark == 7
    inputs.observe(1, Frame(0, FrameKind.DATA, 0, watermark=3, idle=True))
    assert (inputs.watermark, inputs.idle) == (7, False)
    inputs.observe(0, Frame(1, FrameKind.DATA, 0, watermark=7, idle=True))
    assert (inputs.watermark, inputs.idle) == (7, True)
    assert not inputs.end(0)
    assert (inputs.watermark, inputs.idle) == (7, False)
    assert inputs.end(1)
    assert inputs.watermark == MAX_TIME


def test_a_frame_out_of_sequence_is_refused() -> None:
    inputs = filled(2)
    with pytest.raises(ProtocolError, match="was given frame 3, its next is 2"):
        inputs.offer(0, data(3, 1))


def test_a_blocked_channel_waits_until_all_are_released() -> None:
    inputs = filled(2, 1)
    inputs.block(0)
    assert taken(inputs) == [1]
    with pytest.raises(ProtocolError, match="is blocked"):
        inputs.take(0)
    assert not inputs.all_blocked
    inputs.release()
    assert taken(inputs) == [0, 0]


def test_waiting_frames_are_visible_before_they_are_taken() -> None:
    inputs = filled(3)
    assert [frame.seq for frame in inputs.waiting(0, 2)] == [0, 1]
    assert taken(inputs) == [0, 0, 0]


def watermarked(seq: int, watermark: int, idle: bool = False) -> Frame:
    return Frame(seq, FrameKind.DATA, 0, watermark, idle)


def test_the_watermark_is_the_least_of_the_channels_that_are_not_idle() -> None:
    inputs = Inputs([0, 0], 1)
    inputs.observe(0, watermarked(0, 50))
    assert inputs.watermark == MIN_TIME
    inputs.observe(1, watermarked(0, 30))
    assert inputs.watermark == 30
    inputs.observe(1, watermarked(1, 30, idle=True))
    assert inputs.watermark == 50
    assert not inputs.idle


def test_a_channel_that_has_ended_holds_no_watermark_back() -> None:
    inputs = Inputs([0, 0], 1)
    inputs.observe(0, watermarked(0, 50))
    assert not inputs.end(1)
    assert inputs.watermark == 50
    assert inputs.end(0)
    assert inputs.watermark == MAX_TIME


@given(
    st.lists(st.tuples(st.integers(0, 90), st.booleans()), min_size=1, max_size=4), st.randoms(use_true_random=False)
)
def test_once_no_channel_is_active_the_watermark_is_the_highest_in_whatever_order_they_fell_idle(
    channels: list[tuple[int, bool]], order: random.Random
) -> None:
    """The watermark may come in an earlier frame, or in the one that says that the channel is idle. One channel has
    ended, which alone would be the end of time."""
    frames = [(index, watermarked(0, at)) for index, (at, apart) in enumerate(channels) if apart]
    falls = [(index, watermarked(int(apart), at, idle=True)) for index, (at, apart) in enumerate(channels)]
    order.shuffle(falls)
    inputs = Inputs([0] * (len(channels) + 1), 1)
    inputs.observe(len(channels), watermarked(0, 40))
    assert not inputs.end(len(channels))
    for index, frame in (*frames, *falls):
        assert not inputs.idle
        inputs.observe(index, frame)
    assert inputs.idle
    assert inputs.watermark == max(40, *(at for at, _ in channels))


def test_a_channel_that_resumes_holds_the_watermark_back_again() -> None:
    inputs = Inputs([0, 0], 1)
    inputs.observe(0, watermarked(0, 50, idle=True))
    inputs.observe(1, watermarked(0, 20, idle=True))
    assert inputs.watermark == 50
    inputs.observe(1, watermarked(1, 30))
    assert inputs.watermark == 30, "operators keep the 50 that they have"


def test_the_end_of_a_channel_beside_an_idle_one_does_not_end_event_time() -> None:
    inputs = Inputs([0, 0], 1)
    inputs.observe(0, watermarked(0, 50, idle=True))
    inputs.observe(1, watermarked(0, 55))
    assert not inputs.end(1)
    assert inputs.watermark == 55, "rows of the idle one may follow from there"
    assert inputs.idle, "operators downstream must not wait for it"
    inputs.observe(0, watermarked(1, 60))
    assert inputs.watermark == 60
    assert not inputs.idle
    assert inputs.end(0)
    assert not inputs.idle


def test_restored_progress_has_no_queued_frames() -> None:
    inputs = filled(3, 3)
    inputs.take(1)
    saved = inputs.progress
    inputs.block(0)
    inputs.restore(saved)
    assert taken(inputs) == []
    assert [progress.next_seq for progress in inputs.progress] == [0, 1]
    inputs.offer(1, data(1, 1))
    assert taken(inputs) == [1]


def test_frames_without_rows_are_merged_only_on_edges_that_merge() -> None:
    """The sender of an edge without merging may have a window of one frame: a replay would wait for a second one for
    ever."""
    for merge_rows, expected in ((0, InputOrder(0, 1)), (8, FrameBatch(0, 2))):
        inputs = Inputs([merge_rows], 8)
        inputs.offer(0, watermarked(0, 5))
        inputs.offer(0, watermarked(1, 6))
        assert inputs.choose() == expected
