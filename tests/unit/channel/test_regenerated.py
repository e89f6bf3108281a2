"""Frames that are regenerated for a subscriber, since they are retained only until it has taken them."""

from __future__ import annotations

import pytest

from clonos_py.channel.cursor import Cursor
from clonos_py.channel.frames import Frame, FrameKind
from clonos_py.channel.regenerated import RegeneratedFrames
from clonos_py.channel.retained import RetainedFrame, RetainedFrames, Retention
from clonos_py.model.errors import ProtocolError


class Log:
    """The frames of a channel with one subscriber, which can be regenerated."""

    def __init__(self, retention: Retention = Retention.UNTIL_TAKEN) -> None:
        self.frames = RetainedFrames(0, retention, regenerates=True)
        self.cursor = Cursor(self.frames)

    @property
    def regenerated(self) -> RegeneratedFrames:
        assert self.cursor.regenerated is not None
        return self.cursor.regenerated


def entry(seq: int, epoch: int = 0, kind: FrameKind = FrameKind.DATA, checkpoint: int = 0) -> RetainedFrame:
    return RetainedFrame(Frame(seq, kind, epoch, checkpoint=checkpoint), 1, f"body {seq}", 10, seq * 7)


def filled(count: int, connected: bool = True) -> Log:
    log = Log()
    if connected:
        log.cursor.connect(0)
    for seq in range(count):
        log.frames.append(entry(seq))
    return log


def sent(log: Log, window: int = 100) -> list[int]:
    found = []
    while (next_ := log.cursor.pending(window)) is not None:
        assert next_.body == f"body {next_.frame.seq}"
        found.append(next_.frame.seq)
        log.cursor.sent()
    return found


def test_only_frames_that_are_not_acknowledged_are_in_memory() -> None:
    log = filled(5)
    assert sent(log) == [0, 1, 2, 3, 4]
    assert log.frames.memory_bytes == 50
    log.cursor.acknowledge(3)
    assert (log.frames.memory_bytes, log.frames.kept, log.frames.first) == (20, 3, 0)


def test_without_a_receiver_no_frame_is_kept() -> None:
    assert filled(5, connected=False).frames.memory_bytes == 0
    log = filled(5)
    log.cursor.disconnect()
    assert log.frames.memory_bytes == 0


def test_a_receiver_that_lost_frames_gets_them_regenerated_in_order_before_new_ones() -> None:
    log = filled(4, connected=False)
    log.cursor.connect(1)
    assert log.cursor.missing == range(1, 4)
    log.frames.append(entry(4))
    assert sent(log) == [], "frame 1 has to be regenerated first"
    assert not log.cursor.take_regenerated(entry(2)), "it is not its turn"
    assert [log.cursor.take_regenerated(entry(seq)) for seq in (1, 2)] == [True, True]
    assert (log.cursor.missing, log.frames.ahead_bytes) == (range(3, 4), 20)
    assert sent(log) == [1, 2]
    log.cursor.take_regenerated(entry(3))
    assert sent(log) == [3, 4]
    assert log.frames.ahead_bytes == 0


def test_frames_regenerated_for_an_earlier_receiver_are_dropped() -> None:
    log = filled(3, connected=False)
    log.cursor.connect(0)
    first = log.regenerated.run
    log.cursor.take_regenerated(entry(0))
    log.cursor.connect(1)
    assert log.regenerated.run != first
    assert (log.frames.ahead_bytes, log.cursor.missing) == (0, range(1, 3))


def test_at_most_one_window_of_regenerated_frames_is_in_flight() -> None:
    log = filled(3, connected=False)
    log.cursor.connect(0)
    for seq in range(3):
        log.cursor.take_regenerated(entry(seq))
    assert sent(log, window=2) == [0, 1]
    log.cursor.acknowledge(1)
    assert sent(log, window=2) == [2]


def test_a_replacement_continues_after_the_frames_that_its_predecessor_cut() -> None:
    log = Log()
    log.cursor.connect(2)
    log.frames.continue_at(5)
    assert (log.frames.next_seq, log.cursor.missing) == (5, range(2, 5))
    log.frames.append(entry(5))
    for seq in (2, 3, 4):
        log.cursor.take_regenerated(entry(seq))
    assert sent(log) == [2, 3, 4, 5]


def test_frames_that_the_receiver_already_has_are_not_sent_again() -> None:
    log = Log()
    log.cursor.connect(3)
    log.frames.continue_at(2)
    for seq in (2, 3):
        log.frames.append(entry(seq))
    assert not log.cursor.missing
    assert sent(log) == [3]


def test_back_pressure_does_not_count_regenerated_frames() -> None:
    log = filled(5, connected=False)
    log.cursor.connect(0)
    assert log.cursor.unreceived == 0
    log.frames.append(entry(5))
    assert log.cursor.unreceived == 1


def test_a_subscription_to_frames_that_a_completed_checkpoint_covers_is_an_error() -> None:
    log = filled(2, connected=False)
    log.frames.append(entry(2, kind=FrameKind.BARRIER, checkpoint=1))
    log.frames.append(entry(3, epoch=1))
    log.cursor.cover(3)
    assert log.frames.first == 3
    with pytest.raises(ProtocolError, match="starts at 3"):
        log.cursor.connect(2)
    log.cursor.connect(3)
    assert log.cursor.missing == range(3, 4)


def test_checksums_of_frames_that_are_not_kept_are_kept() -> None:
    log = filled(2, connected=False)
    for seq in range(2):
        log.regenerated.checksum_of(seq, seq * 7)
    assert log.regenerated.checksum_of(1, 99) == 7


def test_frames_that_a_predecessor_cut_are_regenerated_and_others_are_retained() -> None:
    log = Log(Retention.UNTIL_COVERED)
    log.frames.continue_at(3)
    log.cursor.connect(1)
    for seq in (3, 4):
        log.frames.append(entry(seq))
    assert log.cursor.missing == range(1, 3)
    assert sent(log) == [], "in order"
    assert log.cursor.take_regenerated(entry(1))
    assert log.cursor.take_regenerated(entry(2))
    assert sent(log) == [1, 2, 3, 4]
    log.cursor.acknowledge(5)
    assert (log.frames.first, log.frames.kept, log.frames.memory_bytes) == (0, 3, 20), "those taken are retained"
    log.cursor.cover(2)
    assert (log.frames.first, log.frames.kept) == (2, 3)
    log.cursor.connect(2)
    assert log.cursor.missing == range(2, 3)
    log.cursor.cover(4)
    assert (log.frames.first, log.frames.kept, log.frames.memory_bytes) == (4, 4, 10)
    with pytest.raises(ProtocolError, match="starts at 4"):
        log.cursor.connect(3)
