"""The in-flight log of one output channel: output queue, replay source and deduplication in one (D3).

    truncated | retained: sent and received | sent | not sent yet
              ^ first                       ^ acked ^ cursor     ^ next_seq

The task appends; the link asks for the frame at the cursor. Moving the cursor back is replay; a cursor ahead of
``next_seq`` is deduplication: what a recovering task rebuilds before it is retained but not sent again.

A body is in memory, or at a place on disk, or both: while it is written it can still be sent, and what is to be sent
soon is read back ahead of the cursor. Others read and write; this log says what, and notes the outcome.


Invariants: first <= next_seq; retained sequence numbers are contiguous; nothing is dropped that the restart point of
the receiver does not cover; a body leaves memory only when it can be read back.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

from clonos_py.channel.frames import Frame, FrameKind
from clonos_py.model.errors import ProtocolError

AHEAD_BYTES = 8 << 20
"""So much of a channel is read ahead of its cursor; one frame in any case."""


@dataclass(slots=True)
class RetainedFrame:
    """A retained frame. ``frame.rows`` is gone; the body is in memory (``body``) or on disk (``place``) or both.

    ``asked``: it is being written (without a place) or read (with one)."""

    frame: Frame
    row_count: int
    body: Any
    size_bytes: int
    checksum: int
    place: Any = None
    asked: bool = False

    @property
    def here(self) -> bool:
        """Whether it can be sent now."""
        return self.body is not None or not self.size_bytes


class InFlightLog:
    """Frames of one channel that the receiver's restart point does not cover, and which of them the receiver has."""

    def __init__(self, next_seq: int) -> None:
        self._entries: deque[RetainedFrame] = deque()
        self.first = next_seq
        self.next_seq = next_seq
        self.cursor = next_seq
        self.covered = next_seq
        """The restart point of the receiver covers the frames below."""
        self.sent_before = next_seq
        """Frames below this number were sent at least once."""
        self.acked = next_seq
        self._owed = next_seq
        """Frames below this number were here when the receiver connected."""
        self.epoch = 0
        """Of the newest frame."""
        self.connected = False
        self.retain = True
        """False for at-most-once: what was sent is forgotten."""
        self.memory_bytes = 0
        """Of bodies that are nowhere but in memory."""
        self.writing_bytes = 0
        """How much of that is being written."""
        self.ahead_bytes = 0
        """Of bodies on disk that are in memory, too, or are being read: at most a little."""
        self.spilled_bytes = 0
        self._write_from = self._read_from = next_seq
        self._ahead: dict[int, RetainedFrame] = {}
        self._unused: list[Any] = []

    @property
    def unreceived(self) -> int:
        """Frames cut since a receiver connected that it has not taken yet: what back-pressure counts. What is replayed
        to it was let through once."""
        return self.next_seq - max(self.acked, self._owed) if self.connected else 0

    def append(self, entry: RetainedFrame) -> None:
        """Raises ProtocolError if the frame is not the next one."""
        if entry.frame.seq != self.next_seq:
            raise ProtocolError(f"frame {entry.frame.seq} was cut where {self.next_seq} is next")
        self._entries.append(entry)
        self.epoch = entry.frame.epoch
        self.next_seq += 1
        self.memory_bytes += entry.size_bytes
        if entry.frame.seq < self.covered:
            self._drop_first()
            self.cursor = max(self.cursor, self.first)
            return
        if not self.retain and not self.connected and entry.frame.kind is not FrameKind.END:
            self._forget_sent(self.next_seq)

    def between(self, start: int, stop: int) -> Iterator[RetainedFrame]:
        """The frames [start, stop), in their order. Raises ProtocolError if they are not all retained."""
        if start < self.first or stop > self.next_seq:
            raise ProtocolError(
                f"frames [{start}, {stop}) are to be stored, those of [{self.first}, {self.next_seq}) are retained"
            )
        return islice(self._entries, start - self.first, stop - self.first)

    # ---- sending

    def connect(self, next_seq: int) -> None:
        """A receiver that wants ``next_seq`` next has subscribed. Raises ProtocolError if that is gone."""
        if next_seq < self.first:
            raise ProtocolError(f"frame {next_seq} was asked for, the in-flight log starts at {self.first}")
        self.disconnect()
        self.cursor = self.acked = self._read_from = next_seq
        self._owed = self.next_seq
        self.connected = True

    def disconnect(self) -> None:
        """Nothing is sent any more: what was read ahead is on disk all the same."""
        self.connected = False
        for seq in list(self._ahead):
            self._let_go(seq)

    def _keep_ahead(self, entry: RetainedFrame) -> None:
        self._ahead[entry.frame.seq] = entry

    def _let_go(self, seq: int) -> None:
        entry = self._ahead.pop(seq, None)
        if entry is not None:
            entry.body = None
            self.ahead_bytes -= entry.size_bytes

    def _at(self, seq: int) -> RetainedFrame:
        return self._entries[seq - self.first]

    def pending(self, window: int) -> RetainedFrame | None:
        """The frame to send now, None if there is none, it is still on disk, or ``window`` frames are on their way."""
        if not self.connected or self.cursor >= self.next_seq or self.cursor - self.acked >= window:
            return None
        entry = self._at(self.cursor)
        return entry if entry.here else None

    def sent(self) -> None:
        self._let_go(self.cursor)
        self.cursor += 1
        self.sent_before = max(self.sent_before, self.cursor)
        if not self.retain:
            self._forget_sent(self.cursor)

    def _forget_sent(self, below: int) -> None:
        while self._entries and self.first < below and self._entries[0].frame.kind is not FrameKind.END:
            self._drop_first()
        self.cursor = max(self.cursor, self.first)

    def acknowledge(self, next_seq: int) -> None:
        """The receiver's task has taken everything below ``next_seq``. Raises ProtocolError if it cannot have."""
        if next_seq > max(self.cursor, self.acked):
            raise ProtocolError(f"frames below {next_seq} were acknowledged, only those below {self.cursor} were sent")
        self.acked = max(self.acked, next_seq)

    def truncate_below(self, seq: int) -> None:
        """The receiver's restart point covers the frames below ``seq``: they are dropped, those that are to be cut
        again, too."""
        self.covered = max(self.covered, seq)
        while self._entries and self.first < seq:
            self._drop_first()
        self.cursor = max(self.cursor, self.first)
        self.acked = max(self.acked, self.first)

    def _drop_first(self) -> None:
        self._let_go(self.first)
        entry = self._entries.popleft()
        self.first += 1
        asked_bytes = entry.size_bytes if entry.asked else 0
        if entry.place is None:
            self.memory_bytes -= entry.size_bytes
            self.writing_bytes -= asked_bytes
        else:
            self.spilled_bytes -= entry.size_bytes
            self.ahead_bytes -= asked_bytes
            self._unused.append(entry.place)

    def take_unused(self) -> list[Any]:
        """The places that no frame needs any more, each once."""
        unused, self._unused = self._unused, []
        return unused

    # ---- writing

    def to_write(self, bytes_wanted: float, before_epoch: float = float("inf")) -> list[RetainedFrame]:
        """The oldest frames that are not being written, of epochs before ``before_epoch``, until they have
        ``bytes_wanted``. They are being written from now on."""
        found = []
        self._write_from = max(self._write_from, self.first)
        while bytes_wanted > 0 and self._write_from < self.next_seq:
            entry = self._at(self._write_from)
            if entry.frame.epoch >= before_epoch:
                break
            self._write_from += 1
            if entry.size_bytes and entry.place is None and not entry.asked:
                entry.asked = True
                self.writing_bytes += entry.size_bytes
                bytes_wanted -= entry.size_bytes
                found.append(entry)
        return found

    def written(self, seq: int, place: Any) -> None:
        """A frame can be read back from ``place``. Its memory is free, unless it is to be sent next."""
        if seq < self.first:
            self._unused.append(place)
            return
        entry = self._at(seq)
        entry.place, entry.asked = place, False
        self.memory_bytes -= entry.size_bytes
        self.writing_bytes -= entry.size_bytes
        self.spilled_bytes += entry.size_bytes
        if self.connected and self.cursor <= seq <= max(self._read_from, self.cursor) and self._may_read(entry):
            self.ahead_bytes += entry.size_bytes
            self._keep_ahead(entry)
            self._read_from = max(self._read_from, seq + 1)
        else:
            entry.body = None
            self._read_from = max(min(self._read_from, seq), self.cursor)

    def not_written(self, seq: int) -> None:
        """A frame could not be written: it stays in memory, and may be tried again."""
        if seq >= self.first:
            entry = self._at(seq)
            entry.asked = False
            self.writing_bytes -= entry.size_bytes
            self._write_from = min(self._write_from, seq)

    # ---- reading back

    def to_read(self, frames_ahead: int) -> list[RetainedFrame]:
        """Frames on disk that are among the next ``frames_ahead`` to be sent, as far as there is room for them. They
        are being read from now on."""
        found: list[RetainedFrame] = []
        if not self.connected:
            return found
        self._read_from = max(self._read_from, self.cursor, self.first)
        while self._read_from < min(self.cursor + frames_ahead, self.next_seq):
            entry = self._at(self._read_from)
            if not entry.here and not entry.asked:
                if not self._may_read(entry):
                    break
                entry.asked = True
                self.ahead_bytes += entry.size_bytes
                found.append(entry)
            self._read_from += 1
        return found

    def _may_read(self, entry: RetainedFrame) -> bool:
        """What is to be sent next always may."""
        return entry.frame.seq == self.cursor or self.ahead_bytes + entry.size_bytes <= AHEAD_BYTES

    def read(self, seq: int, body: Any) -> None:
        """What ``to_read`` asked for is here; it is let go where the cursor is elsewhere by now."""
        if seq < self.first:
            return
        entry = self._at(seq)
        entry.asked = False
        if self.connected and self.cursor <= seq < self._read_from:
            entry.body = body
            self._keep_ahead(entry)
        else:
            self.ahead_bytes -= entry.size_bytes
            self._read_from = max(min(self._read_from, seq), self.cursor)

    @property
    def checksums(self) -> list[tuple[int, int]]:
        """(sequence number, checksum) of everything retained."""
        return [(e.frame.seq, e.checksum) for e in self._entries]
