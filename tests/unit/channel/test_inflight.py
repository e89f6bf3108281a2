from __future__ import annotations

import pytest

from clonos_py.channel.frames import Frame, FrameKind
from clonos_py.channel.inflight import Entry, InFlightLog
from clonos_py.model.errors import ProtocolError


def entry(seq: int, epoch: int = 0, kind: FrameKind = FrameKind.DATA) -> Entry:
    return Entry(Frame(seq, kind, epoch), 1, f"body {seq}", 10, seq * 7)


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


class Shelf:
    """A spill that remembers what it was given."""

    def __init__(self) -> None:
        self.kept: dict[int, object] = {}

    def write(self, body: object) -> object:
        self.kept[len(self.kept)] = body
        return len(self.kept) - 1

    def read(self, handle: object) -> object:
        assert isinstance(handle, int)
        return self.kept[handle]

    def free(self, handle: object) -> None:
        assert isinstance(handle, int)
        del self.kept[handle]


def test_nothing_is_sent_before_a_receiver_subscribes() -> None:
    assert sent(filled(3)) == []


def test_replay_is_moving_the_cursor_back() -> None:
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


def test_a_window_of_frames_is_on_its_way_at_most() -> None:
    log = filled(5)
    log.connect(0)
    assert sent(log, window=2) == [0, 1]
    log.acknowledge(1)
    assert sent(log, window=2) == [2]


def test_back_pressure_counts_what_was_cut_since_the_receiver_connected() -> None:
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
    assert log.unreceived == 0, "what is replayed was let through once"


def test_truncation_drops_the_epochs_before_a_completed_checkpoint_only() -> None:
    log = InFlightLog(0)
    for seq, epoch in enumerate([0, 0, 3, 3]):
        log.append(entry(seq, epoch))
    log.truncate(3)
    assert (log.first, log.checksums) == (2, [(2, 14), (3, 21)])
    assert log.memory_bytes == 20


def test_what_was_truncated_cannot_be_asked_for() -> None:
    log = InFlightLog(5)
    with pytest.raises(ProtocolError, match="starts at 5"):
        log.connect(4)


def test_frames_that_were_not_sent_cannot_be_acknowledged() -> None:
    log = filled(3)
    log.connect(0)
    with pytest.raises(ProtocolError, match="only those below 0 were sent"):
        log.acknowledge(2)


def test_a_frame_out_of_sequence_is_an_error() -> None:
    with pytest.raises(ProtocolError):
        filled(2).append(entry(3))


def test_without_retention_what_was_sent_is_forgotten_but_the_end() -> None:
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


def test_spilled_frames_come_back_in_order_and_their_places_are_freed() -> None:
    shelf = Shelf()
    log = InFlightLog(0, shelf)
    for seq in range(4):
        log.append(entry(seq, epoch=seq))
    assert log.spill_oldest(15) == 20
    assert (log.memory_bytes, log.spilled_bytes) == (20, 20)
    log.connect(0)
    bodies = []
    while (next_ := log.pending(9)) is not None:
        bodies.append(log.body(next_))
        log.sent()
    assert bodies == [f"body {seq}" for seq in range(4)]
    log.truncate(4)
    assert shelf.kept == {}
    assert log.spilled_bytes == 0
