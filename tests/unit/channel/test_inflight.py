from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clonos_py.channel import inflight
from clonos_py.channel.frames import Frame, FrameKind
from clonos_py.channel.inflight import InFlightLog, RetainedFrame
from clonos_py.model.errors import ProtocolError


def entry(seq: int, epoch: int = 0, kind: FrameKind = FrameKind.DATA) -> RetainedFrame:
    return RetainedFrame(Frame(seq, kind, epoch), 1, f"body {seq}", 10, seq * 7)


def filled(count: int, start: int = 0) -> InFlightLog:
    log = InFlightLog(start)
    for seq in range(start, start + count):
        log.append(entry(seq))
    return log


def sent(log: InFlightLog, window: int = 100) -> list[int]:
    found = []
    while (next_ := log.pending(window)) is not None:
        found.append(next_.frame.seq)
        log.sent()
    return found


def spilled(count: int) -> InFlightLog:
    """A log with all frames on disk, frame n at place n."""
    log = filled(count)
    for entry in log.to_write(float("inf")):
        log.written(entry.frame.seq, entry.frame.seq)
    return log


def seqs(entries: list[RetainedFrame]) -> list[int]:
    return [entry.frame.seq for entry in entries]


def test_nothing_is_sent_before_a_receiver_subscribes() -> None:
    assert sent(filled(3)) == []


def test_a_receiver_that_connects_again_gets_the_frames_from_its_next_one() -> None:
    log = filled(4)
    log.connect(0)
    assert sent(log) == [0, 1, 2, 3]
    log.disconnect()
    log.connect(1)
    assert sent(log) == [1, 2, 3]


def test_frames_a_receiver_has_are_rebuilt_but_not_sent_again() -> None:
    log = InFlightLog(0)
    log.connect(2)
    for seq in range(4):
        log.append(entry(seq))
    assert sent(log) == [2, 3]


def test_at_most_one_window_of_frames_is_in_flight() -> None:
    log = filled(5)
    log.connect(0)
    assert sent(log, window=2) == [0, 1]
    log.acknowledge(1)
    assert sent(log, window=2) == [2]


def test_back_pressure_counts_frames_cut_since_the_receiver_connected() -> None:
    log = filled(2)
    log.connect(0)
    for seq in range(2, 5):
        log.append(entry(seq))
    assert log.unreceived == 3
    sent(log)
    log.acknowledge(4)
    assert log.unreceived == 1
    log.disconnect()
    assert log.unreceived == 0
    log.connect(0)
    assert log.unreceived == 0, "replayed frames do not count towards back-pressure again"


def test_truncation_drops_only_frames_that_the_restart_point_of_the_receiver_covers() -> None:
    log = filled(4)
    log.truncate_below(2)
    assert (log.first, log.checksums) == (2, [(2, 14), (3, 21)])
    assert log.memory_bytes == 20
    log.truncate_below(1)
    assert log.first == 2


def test_a_frame_that_is_covered_before_it_is_cut_again_is_dropped_at_once() -> None:
    """A task that restarts may be behind the restart point of its receiver."""
    log = filled(2)
    log.truncate_below(3)
    assert (log.first, log.next_seq) == (2, 2)
    log.append(entry(2))
    log.append(entry(3))
    assert (log.first, log.next_seq) == (3, 4)


def test_a_subscription_to_truncated_frames_is_an_error() -> None:
    log = InFlightLog(5)
    with pytest.raises(ProtocolError, match="starts at 5"):
        log.connect(4)


def test_an_acknowledgement_of_frames_that_were_not_sent_is_an_error() -> None:
    log = filled(3)
    log.connect(0)
    with pytest.raises(ProtocolError, match="only those below 0 were sent"):
        log.acknowledge(2)


def test_a_frame_out_of_sequence_is_an_error() -> None:
    with pytest.raises(ProtocolError):
        filled(2).append(entry(3))


def test_without_retention_sent_frames_are_dropped_except_the_end() -> None:
    log = InFlightLog(0)
    log.retain = False
    log.connect(0)
    for seq in range(3):
        log.append(entry(seq))
    assert sent(log) == [0, 1, 2]
    assert log.memory_bytes == 0
    log.append(entry(3, kind=FrameKind.END))
    assert sent(log) == [3]
    log.disconnect()
    log.connect(log.first)
    assert sent(log) == [3]


def test_the_oldest_frames_are_written_first_and_each_is_requested_once() -> None:
    log = filled(5)
    assert seqs(log.to_write(15)) == [0, 1]
    assert seqs(log.to_write(15)) == [2, 3]
    assert (log.memory_bytes, log.writing_bytes) == (50, 40)


def test_frames_of_an_epoch_that_has_not_ended_are_not_written_with_those_before() -> None:
    log = InFlightLog(0)
    for seq, epoch in enumerate([0, 0, 1]):
        log.append(entry(seq, epoch))
    assert seqs(log.to_write(float("inf"), before_epoch=1)) == [0, 1]


def test_memory_counts_as_free_once_a_frame_is_written() -> None:
    log = filled(3)
    log.to_write(20)
    assert log.memory_bytes == 30
    log.written(0, "here")
    assert (log.memory_bytes, log.writing_bytes, log.spilled_bytes) == (20, 10, 10)


def test_a_frame_is_sent_while_it_is_being_written() -> None:
    log = filled(2)
    log.to_write(float("inf"))
    log.connect(0)
    assert sent(log) == [0, 1]


def test_frames_on_disk_are_read_ahead_and_dropped_from_memory_when_sent() -> None:
    log = spilled(6)
    log.connect(1)
    assert log.pending(9) is None, "it is still on disk"
    assert seqs(log.to_read(3)) == [1, 2, 3]
    assert log.to_read(3) == [], "they are being read"
    log.read(2, "body 2")
    assert log.pending(9) is None, "frame 1 comes first"
    log.read(1, "body 1")
    assert sent(log) == [1, 2]
    assert seqs(log.to_read(3)) == [4, 5]
    assert log.ahead_bytes == 30, "frames 3, 4 and 5"
    log.read(3, "body 3")
    assert sent(log) == [3]
    assert log.ahead_bytes == 20


def test_reading_ahead_is_bounded_except_for_the_next_frame(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inflight, "AHEAD_BYTES", 25)
    log = spilled(6)
    log.connect(0)
    assert seqs(log.to_read(6)) == [0, 1]
    monkeypatch.setattr(inflight, "AHEAD_BYTES", 5)
    log.connect(3)
    assert seqs(log.to_read(6)) == [3]


def test_frames_read_for_a_lost_receiver_are_dropped_and_read_again_for_the_next() -> None:
    log = spilled(4)
    log.connect(0)
    log.to_read(4)
    log.read(0, "body 0")
    log.disconnect()
    log.read(1, "body 1")
    assert log.ahead_bytes == 20, "of frames 2 and 3, which are being read"
    log.connect(0)
    assert seqs(log.to_read(4)) == [0, 1]
    for seq in (2, 3, 0, 1):
        log.read(seq, f"body {seq}")
    assert sent(log) == [0, 1, 2, 3]
    assert log.ahead_bytes == 0


def test_a_frame_written_after_reading_ahead_has_passed_it_is_read_back_in_time() -> None:
    log = filled(4)
    log.connect(0)
    log.to_read(4)
    writing = log.to_write(float("inf"))
    for entry in writing:
        log.written(entry.frame.seq, entry.frame.seq)
    for entry in log.to_read(4):
        log.read(entry.frame.seq, f"body {entry.frame.seq}")
    assert sent(log) == [0, 1, 2, 3]
    assert (log.memory_bytes, log.ahead_bytes, log.spilled_bytes) == (0, 0, 40)


def test_frames_that_cannot_be_written_stay_in_memory_and_are_tried_again() -> None:
    log = filled(3)
    log.to_write(float("inf"))
    log.written(0, "here")
    log.not_written(1)
    log.not_written(2)
    assert (log.memory_bytes, log.writing_bytes) == (20, 0)
    assert seqs(log.to_write(float("inf"))) == [1, 2]


def test_places_on_disk_are_freed_once_when_a_checkpoint_covers_their_frames() -> None:
    log = InFlightLog(0)
    for seq in range(4):
        log.append(entry(seq, epoch=seq))
    log.to_write(float("inf"))
    log.written(0, "first")
    log.written(1, "second")
    log.truncate_below(3)
    log.written(2, "too late")
    assert log.take_unused() == ["first", "second", "too late"]
    assert log.take_unused() == []
    log.not_written(3)
    assert (log.memory_bytes, log.writing_bytes, log.spilled_bytes) == (10, 0, 0)


STEPS = ("append", "write", "written", "failed", "read", "arrive", "send", "ack", "connect", "truncate")


@given(st.data())
def test_every_frame_is_sent_in_order_under_any_sequence_of_writes_reads_and_losses(data: st.DataObject) -> None:
    log, writing, reading, disk = InFlightLog(0), [], [], {}
    received = 0
    for _ in range(data.draw(st.integers(1, 60))):
        match data.draw(st.sampled_from(STEPS)):
            case "append":
                log.append(entry(log.next_seq))
            case "write":
                writing += [e.frame.seq for e in log.to_write(data.draw(st.integers(1, 40)))]
            case "written" if writing:
                seq = writing.pop(0)
                disk[seq] = f"body {seq}"
                log.written(seq, seq)
            case "failed" if writing:
                log.not_written(writing.pop(0))
            case "read":
                reading += [(e.frame.seq, disk[e.place]) for e in log.to_read(data.draw(st.integers(1, 5)))]
            case "arrive" if reading:
                log.read(*reading.pop(data.draw(st.integers(0, len(reading) - 1))))
            case "send":
                received = _receive(log, received)
            case "ack" if log.connected:
                log.acknowledge(log.cursor)
            case "connect":
                received = data.draw(st.integers(log.first, log.next_seq))
                log.connect(received)
            case "truncate" if log.connected:
                log.truncate_below(data.draw(st.integers(0, received)))
        for place in log.take_unused():
            del disk[place]
        assert log.memory_bytes == sum(e.size_bytes for e in log._entries if e.place is None)
        assert log.writing_bytes == sum(e.size_bytes for e in log._entries if e.place is None and e.io_pending)
        assert log.spilled_bytes == sum(e.size_bytes for e in log._entries if e.place is not None)
        ahead = [e for e in log._entries if e.place is not None and (e.io_pending or e.body is not None)]
        assert log.ahead_bytes == sum(e.size_bytes for e in ahead)
    if not log.connected:
        received = log.first
        log.connect(received)
    while received < log.next_seq:
        reading += [(e.frame.seq, disk[e.place]) for e in log.to_read(2)]
        received = _receive(log, received)
        if reading:
            log.read(*reading.pop(0))


def _receive(log: InFlightLog, received: int) -> int:
    while (next_ := log.pending(1_000)) is not None:
        assert (next_.frame.seq, next_.body) == (received, f"body {received}")
        log.sent()
        received += 1
    return received
