"""Retained frames with one subscriber, and with several: what is sent, dropped, written and read back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clonos_py.channel import cursor
from clonos_py.channel.cursor import Cursor
from clonos_py.channel.frames import Frame, FrameKind
from clonos_py.channel.retained import RetainedFrame, RetainedFrames, Retention
from clonos_py.model.errors import ProtocolError


class Log:
    """The frames of a channel with one subscriber."""

    def __init__(self, next_seq: int, retention: Retention = Retention.UNTIL_COVERED) -> None:
        self.frames = RetainedFrames(next_seq, retention)
        self.cursor = Cursor(self.frames)


def entry(seq: int, epoch: int = 0, kind: FrameKind = FrameKind.DATA) -> RetainedFrame:
    return RetainedFrame(Frame(seq, kind, epoch), 1, f"body {seq}", 10, seq * 7)


def filled(count: int, start: int = 0) -> Log:
    log = Log(start)
    for seq in range(start, start + count):
        log.frames.append(entry(seq))
    return log


def sent(log: Log, window: int = 100) -> list[int]:
    found = []
    while (next_ := log.cursor.pending(window)) is not None:
        found.append(next_.frame.seq)
        log.cursor.sent()
    return found


def spilled(count: int) -> Log:
    """A log with all frames on disk, frame n at place n."""
    log = filled(count)
    for entry in log.frames.to_write(float("inf")):
        log.frames.written(entry.frame.seq, entry.frame.seq)
    return log


def seqs(entries: list[RetainedFrame]) -> list[int]:
    return [entry.frame.seq for entry in entries]


def test_nothing_is_sent_before_a_receiver_subscribes() -> None:
    assert sent(filled(3)) == []


def test_a_receiver_that_connects_again_gets_the_frames_from_its_next_one() -> None:
    log = filled(4)
    log.cursor.connect(0)
    assert sent(log) == [0, 1, 2, 3]
    log.cursor.disconnect()
    log.cursor.connect(1)
    assert sent(log) == [1, 2, 3]


def test_frames_a_receiver_has_are_rebuilt_but_not_sent_again() -> None:
    log = Log(0)
    log.cursor.connect(2)
    for seq in range(4):
        log.frames.append(entry(seq))
    assert sent(log) == [2, 3]


def test_at_most_one_window_of_frames_is_in_flight() -> None:
    log = filled(5)
    log.cursor.connect(0)
    assert sent(log, window=2) == [0, 1]
    log.cursor.acknowledge(1)
    assert sent(log, window=2) == [2]


def test_back_pressure_counts_frames_cut_since_the_receiver_connected() -> None:
    log = filled(2)
    log.cursor.connect(0)
    for seq in range(2, 5):
        log.frames.append(entry(seq))
    assert log.cursor.unreceived == 3
    sent(log)
    log.cursor.acknowledge(4)
    assert log.cursor.unreceived == 1
    log.cursor.disconnect()
    assert log.cursor.unreceived == 0
    log.cursor.connect(0)
    assert log.cursor.unreceived == 0, "replayed frames do not count towards back-pressure again"


def test_truncation_drops_only_frames_that_the_restart_point_of_the_receiver_covers() -> None:
    log = filled(4)
    log.cursor.cover(2)
    assert (log.frames.first, log.frames.checksums) == (2, [(2, 14), (3, 21)])
    assert log.frames.memory_bytes == 20
    log.cursor.cover(1)
    assert log.frames.first == 2


def test_a_frame_that_is_covered_before_it_is_cut_again_is_dropped_at_once() -> None:
    """A task that restarts may be behind the restart point of its receiver."""
    log = filled(2)
    log.cursor.cover(3)
    assert (log.frames.first, log.frames.next_seq) == (2, 2)
    log.frames.append(entry(2))
    log.frames.append(entry(3))
    assert (log.frames.first, log.frames.next_seq) == (3, 4)


def test_a_subscription_to_truncated_frames_is_an_error() -> None:
    log = Log(5)
    with pytest.raises(ProtocolError, match="starts at 5"):
        log.cursor.connect(4)


def test_an_acknowledgement_of_frames_that_were_not_sent_is_an_error() -> None:
    log = filled(3)
    log.cursor.connect(0)
    with pytest.raises(ProtocolError, match="only those below 0 were sent"):
        log.cursor.acknowledge(2)


def test_a_frame_out_of_sequence_is_an_error() -> None:
    with pytest.raises(ProtocolError):
        filled(2).frames.append(entry(3))


def test_without_retention_sent_frames_are_dropped_except_the_end() -> None:
    log = Log(0, Retention.UNTIL_SENT)
    log.cursor.connect(0)
    for seq in range(3):
        log.frames.append(entry(seq))
    assert sent(log) == [0, 1, 2]
    assert log.frames.memory_bytes == 0
    log.frames.append(entry(3, kind=FrameKind.END))
    assert sent(log) == [3]
    log.cursor.disconnect()
    log.cursor.connect(log.frames.first)
    assert sent(log) == [3]


def test_the_oldest_frames_are_written_first_and_each_is_requested_once() -> None:
    log = filled(5)
    assert seqs(log.frames.to_write(15)) == [0, 1]
    assert seqs(log.frames.to_write(15)) == [2, 3]
    assert (log.frames.memory_bytes, log.frames.writing_bytes) == (50, 40)


def test_frames_of_an_epoch_that_has_not_ended_are_not_written_with_those_before() -> None:
    log = Log(0)
    for seq, epoch in enumerate([0, 0, 1]):
        log.frames.append(entry(seq, epoch))
    assert seqs(log.frames.to_write(float("inf"), before_epoch=1)) == [0, 1]


def test_memory_counts_as_free_once_a_frame_is_written() -> None:
    log = filled(3)
    log.frames.to_write(20)
    assert log.frames.memory_bytes == 30
    log.frames.written(0, "here")
    assert (log.frames.memory_bytes, log.frames.writing_bytes, log.frames.spilled_bytes) == (20, 10, 10)


def test_a_frame_is_sent_while_it_is_being_written() -> None:
    log = filled(2)
    log.frames.to_write(float("inf"))
    log.cursor.connect(0)
    assert sent(log) == [0, 1]


def test_frames_on_disk_are_read_ahead_and_dropped_from_memory_when_sent() -> None:
    log = spilled(6)
    log.cursor.connect(1)
    assert log.cursor.pending(9) is None, "it is still on disk"
    assert seqs(log.cursor.to_read(3)) == [1, 2, 3]
    assert log.cursor.to_read(3) == [], "they are being read"
    log.frames.read(2, "body 2")
    assert log.cursor.pending(9) is None, "frame 1 comes first"
    log.frames.read(1, "body 1")
    assert sent(log) == [1, 2]
    assert seqs(log.cursor.to_read(3)) == [4, 5]
    assert log.frames.ahead_bytes == 30, "frames 3, 4 and 5"
    log.frames.read(3, "body 3")
    assert sent(log) == [3]
    assert log.frames.ahead_bytes == 20


def test_reading_ahead_is_bounded_except_for_the_next_frame(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cursor, "AHEAD_BYTES", 25)
    log = spilled(6)
    log.cursor.connect(0)
    assert seqs(log.cursor.to_read(6)) == [0, 1]
    monkeypatch.setattr(cursor, "AHEAD_BYTES", 5)
    log.cursor.connect(3)
    assert seqs(log.cursor.to_read(6)) == [3]


def test_frames_read_for_a_lost_receiver_are_dropped_and_read_again_for_the_next() -> None:
    log = spilled(4)
    log.cursor.connect(0)
    log.cursor.to_read(4)
    log.frames.read(0, "body 0")
    log.cursor.disconnect()
    log.frames.read(1, "body 1")
    assert log.frames.ahead_bytes == 0
    log.cursor.connect(0)
    assert seqs(log.cursor.to_read(4)) == [0, 1]
    for seq in (2, 3, 0, 1):
        log.frames.read(seq, f"body {seq}")
    assert sent(log) == [0, 1, 2, 3]
    assert log.frames.ahead_bytes == 0


def test_a_frame_written_after_reading_ahead_has_passed_it_is_read_back_in_time() -> None:
    log = filled(4)
    log.cursor.connect(0)
    log.cursor.to_read(4)
    writing = log.frames.to_write(float("inf"))
    for entry in writing:
        log.frames.written(entry.frame.seq, entry.frame.seq)
    for entry in log.cursor.to_read(4):
        log.frames.read(entry.frame.seq, f"body {entry.frame.seq}")
    assert sent(log) == [0, 1, 2, 3]
    assert (log.frames.memory_bytes, log.frames.ahead_bytes, log.frames.spilled_bytes) == (0, 0, 40)


def test_frames_that_cannot_be_written_stay_in_memory_and_are_tried_again() -> None:
    log = filled(3)
    log.frames.to_write(float("inf"))
    log.frames.written(0, "here")
    log.frames.not_written(1)
    log.frames.not_written(2)
    assert (log.frames.memory_bytes, log.frames.writing_bytes) == (20, 0)
    assert seqs(log.frames.to_write(float("inf"))) == [1, 2]


def test_places_on_disk_are_freed_once_when_a_checkpoint_covers_their_frames() -> None:
    log = Log(0)
    for seq in range(4):
        log.frames.append(entry(seq, epoch=seq))
    log.frames.to_write(float("inf"))
    log.frames.written(0, "first")
    log.frames.written(1, "second")
    log.cursor.cover(3)
    log.frames.written(2, "too late")
    assert log.frames.take_unused() == ["first", "second", "too late"]
    assert log.frames.take_unused() == []
    log.frames.not_written(3)
    assert (log.frames.memory_bytes, log.frames.writing_bytes, log.frames.spilled_bytes) == (10, 0, 0)


STEPS = ("append", "write", "written", "failed", "read", "arrive", "send", "ack", "connect", "truncate")


@given(st.data())
def test_every_frame_is_sent_in_order_under_any_sequence_of_writes_reads_and_losses(data: st.DataObject) -> None:
    log, writing, reading, disk = Log(0), [], [], {}
    received = 0
    for _ in range(data.draw(st.integers(1, 60))):
        match data.draw(st.sampled_from(STEPS)):
            case "append":
                log.frames.append(entry(log.frames.next_seq))
            case "write":
                writing += [e.frame.seq for e in log.frames.to_write(data.draw(st.integers(1, 40)))]
            case "written" if writing:
                seq = writing.pop(0)
                disk[seq] = f"body {seq}"
                log.frames.written(seq, seq)
            case "failed" if writing:
                log.frames.not_written(writing.pop(0))
            case "read":
                reading += [(e.frame.seq, disk[e.place]) for e in log.cursor.to_read(data.draw(st.integers(1, 5)))]
            case "arrive" if reading:
                log.frames.read(*reading.pop(data.draw(st.integers(0, len(reading) - 1))))
            case "send":
                received = _received(log.cursor, received)
            case "ack" if log.cursor.connected:
                log.cursor.acknowledge(log.cursor.at)
            case "connect":
                received = data.draw(st.integers(log.frames.first, log.frames.next_seq))
                log.cursor.connect(received)
            case "truncate" if log.cursor.connected:
                log.cursor.cover(data.draw(st.integers(0, received)))
        for place in log.frames.take_unused():
            del disk[place]
        assert log.frames.memory_bytes == sum(e.size_bytes for e in log.frames._entries if e.place is None)
        assert log.frames.writing_bytes == sum(
            e.size_bytes for e in log.frames._entries if e.place is None and e.io_pending
        )
        assert log.frames.spilled_bytes == sum(e.size_bytes for e in log.frames._entries if e.place is not None)
        assert log.frames.ahead_bytes == sum(e.size_bytes for e in log.frames._entries if e.held)
        assert all(e.body is None for e in log.frames._entries if e.place is not None and not e.held)
    if not log.cursor.connected:
        received = log.frames.first
        log.cursor.connect(received)
    while received < log.frames.next_seq:
        reading += [(e.frame.seq, disk[e.place]) for e in log.cursor.to_read(2)]
        received = _received(log.cursor, received)
        if reading:
            log.frames.read(*reading.pop(0))


def _receive(log: Log, received: int) -> int:
    while (next_ := log.cursor.pending(1_000)) is not None:
        assert (next_.frame.seq, next_.body) == (received, f"body {received}")
        log.cursor.sent()
        received += 1
    return received


# ---- several subscribers


def shared(count: int) -> tuple[RetainedFrames, Cursor, Cursor]:
    frames = RetainedFrames(0)
    first, second = Cursor(frames), Cursor(frames)
    for seq in range(count):
        frames.append(entry(seq))
    return frames, first, second


def on_disk(frames: RetainedFrames) -> None:
    for written in frames.to_write(float("inf")):
        frames.written(written.frame.seq, written.frame.seq)


def test_a_frame_is_dropped_when_the_restart_points_of_all_subscribers_cover_it() -> None:
    frames, first, second = shared(4)
    assert first.cover(3)
    assert frames.first == 0
    assert second.cover(1)
    assert frames.first == 1
    assert second.cover(4)
    assert frames.first == 3


def test_each_subscriber_gets_all_frames_at_its_own_pace() -> None:
    _, first, second = shared(3)
    first.connect(0)
    second.connect(1)
    assert seqs(list(iter(lambda: sent_one(first), None))) == [0, 1, 2]
    assert (first.unreceived, second.at) == (0, 1)
    assert seqs(list(iter(lambda: sent_one(second), None))) == [1, 2]


def sent_one(cursor: Cursor, window: int = 100) -> RetainedFrame | None:
    found = cursor.pending(window)
    if found is not None:
        cursor.sent()
    return found


def test_a_body_on_disk_is_read_once_for_two_subscribers_and_freed_when_both_have_it() -> None:
    frames, first, second = shared(2)
    on_disk(frames)
    first.connect(0)
    second.connect(0)
    assert seqs(first.to_read(1)) == [0]
    assert second.to_read(1) == [], "it is being read"
    assert frames.ahead_bytes == 10
    frames.read(0, "body 0")
    assert sent_one(first) is not None
    assert frames.ahead_bytes == 10, "the other one needs it"
    assert sent_one(second) is not None
    assert frames.ahead_bytes == 0
    assert frames.entry(0).body is None


def test_frames_are_retained_until_sent_to_all_connected_subscribers() -> None:
    frames = RetainedFrames(0, Retention.UNTIL_SENT)
    first, second = Cursor(frames), Cursor(frames)
    first.connect(0)
    second.connect(0)
    frames.append(entry(0))
    sent_one(first)
    assert frames.memory_bytes == 10
    sent_one(second)
    assert frames.memory_bytes == 0


@given(st.data())
def test_two_subscribers_get_every_frame_in_order_under_any_sequence_of_writes_reads_and_losses(
    data: st.DataObject,
) -> None:
    frames, writing, reading, disk = RetainedFrames(0), [], [], {}
    cursors, received = [Cursor(frames), Cursor(frames)], [0, 0]
    for _ in range(data.draw(st.integers(1, 80))):
        which = data.draw(st.integers(0, 1))
        cursor_ = cursors[which]
        match data.draw(st.sampled_from(STEPS)):
            case "append":
                frames.append(entry(frames.next_seq))
            case "write":
                writing += [e.frame.seq for e in frames.to_write(data.draw(st.integers(1, 40)))]
            case "written" if writing:
                seq = writing.pop(0)
                disk[seq] = f"body {seq}"
                frames.written(seq, seq)
            case "failed" if writing:
                frames.not_written(writing.pop(0))
            case "read":
                reading += [(e.frame.seq, disk[e.place]) for e in cursor_.to_read(data.draw(st.integers(1, 5)))]
            case "arrive" if reading:
                frames.read(*reading.pop(data.draw(st.integers(0, len(reading) - 1))))
            case "send":
                received[which] = _received(cursor_, received[which])
            case "ack" if cursor_.connected:
                cursor_.acknowledge(cursor_.at)
            case "connect":
                received[which] = data.draw(st.integers(max(frames.first, cursor_.covered), frames.next_seq))
                cursor_.connect(received[which])
            case "truncate" if cursor_.connected:
                cursor_.cover(data.draw(st.integers(0, received[which])))
        for place in frames.take_unused():
            del disk[place]
        assert frames.memory_bytes == sum(e.size_bytes for e in frames._entries if e.place is None)
        assert frames.ahead_bytes == sum(e.size_bytes for e in frames._entries if e.held)
        assert all(e.body is None for e in frames._entries if e.place is not None and not e.held)
    for which, cursor_ in enumerate(cursors):
        if not cursor_.connected:
            received[which] = max(frames.first, cursor_.covered)
            cursor_.connect(received[which])
    while any(at < frames.next_seq for at in received):
        for which, cursor_ in enumerate(cursors):
            reading += [(e.frame.seq, disk[e.place]) for e in cursor_.to_read(2)]
            received[which] = _received(cursor_, received[which])
        if reading:
            frames.read(*reading.pop(0))


def _received(cursor_: Cursor, received: int) -> int:
    while (next_ := cursor_.pending(1_000)) is not None:
        assert (next_.frame.seq, next_.body) == (received, f"body {received}")
        cursor_.sent()
        received += 1
    return received
