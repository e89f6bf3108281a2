"""The in-flight log of one output channel: output queue, replay source and deduplication in one (D3).

    truncated | retained: sent and received | sent | not sent yet
              ^ first                       ^ acked ^ cursor     ^ next_seq

The task appends frames; the link sends the frame at the cursor. Moving the cursor back is replay. A cursor ahead of
``next_seq`` is deduplication: frames that a recovering task rebuilds below the cursor are retained but not sent again.

A body is in memory, on disk, or both. It can be sent while it is being written, and it is read back ahead of the
cursor. Other parts do the reading and writing: this log states what to read and write, and records the outcome.

Invariants: first <= next_seq; retained sequence numbers are contiguous; only frames that the restart point of the
receiver covers are dropped; a body leaves memory only when it can be read back.
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
"""How much of a channel is read ahead of its cursor; always at least one frame."""


@dataclass(slots=True)
class RetainedFrame:
    """A retained frame. ``frame.rows`` is cleared; the body is in memory (``body``), on disk (``place``), or both.

    ``io_pending``: it is being written (if ``place`` is None) or read (else)."""

    frame: Frame
    row_count: int
    body: Any
    size_bytes: int
    checksum: int
    place: Any = None
    io_pending: bool = False

    @property
    def in_memory(self) -> bool:
        """Whether its body is in memory, so that it can be sent now."""
        return self.body is not None or not self.size_bytes


class InFlightLog:
    """Frames of one channel that the receiver's restart point does not cover, and how far the receiver has got."""

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
        self._retained_at_connect = next_seq
        """Frames below this number were retained when the receiver connected."""
        self.epoch = 0
        """The epoch of the newest frame."""
        self.connected = False
        self.retain = True
        """False for at-most-once: frames are dropped once they are sent."""
        self.memory_bytes = 0
        """Size of the bodies that are only in memory."""
        self.writing_bytes = 0
        """How much of ``memory_bytes`` is being written to disk."""
        self.ahead_bytes = 0
        """Size of the bodies on disk that are also in memory, or are being read; limited by ``AHEAD_BYTES``."""
        self.spilled_bytes = 0
        self._write_from = self._read_from = next_seq
        self._ahead: dict[int, RetainedFrame] = {}
        self._unused: list[Any] = []

    @property
    def unreceived(self) -> int:
        """The number of frames cut since the receiver connected that it has not taken yet. Back-pressure counts these.
        Frames that are replayed to the receiver do not count: back-pressure admitted them when they were cut."""
        return self.next_seq - max(self.acked, self._retained_at_connect) if self.connected else 0

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
            self._drop_sent(self.next_seq)

    def between(self, start: int, stop: int) -> Iterator[RetainedFrame]:
        """The frames [start, stop) in order. Raises ProtocolError if they are not all retained."""
        if start < self.first or stop > self.next_seq:
            raise ProtocolError(
                f"frames [{start}, {stop}) are to be stored, those of [{self.first}, {self.next_seq}) are retained"
            )
        return islice(self._entries, start - self.first, stop - self.first)

    # ---- sending

    def connect(self, next_seq: int) -> None:
        """A receiver has subscribed from ``next_seq`` on. Raises ProtocolError if that frame is no longer retained."""
        if next_seq < self.first:
            raise ProtocolError(f"frame {next_seq} was requested, the in-flight log starts at {self.first}")
        self.disconnect()
        self.cursor = self.acked = self._read_from = next_seq
        self._retained_at_connect = self.next_seq
        self.connected = True

    def disconnect(self) -> None:
        """Stops sending and drops bodies that were read ahead; they are still on disk."""
        self.connected = False
        for seq in list(self._ahead):
            self._release(seq)

    def _keep_ahead(self, entry: RetainedFrame) -> None:
        self._ahead[entry.frame.seq] = entry

    def _release(self, seq: int) -> None:
        entry = self._ahead.pop(seq, None)
        if entry is not None:
            entry.body = None
            self.ahead_bytes -= entry.size_bytes

    def _at(self, seq: int) -> RetainedFrame:
        return self._entries[seq - self.first]

    def pending(self, window: int) -> RetainedFrame | None:
        """The frame to send now. None if there is none, it is still on disk, or ``window`` frames are in flight."""
        if not self.connected or self.cursor >= self.next_seq or self.cursor - self.acked >= window:
            return None
        entry = self._at(self.cursor)
        return entry if entry.in_memory else None

    def sent(self) -> None:
        self._release(self.cursor)
        self.cursor += 1
        self.sent_before = max(self.sent_before, self.cursor)
        if not self.retain:
            self._drop_sent(self.cursor)

    def _drop_sent(self, below: int) -> None:
        while self._entries and self.first < below and self._entries[0].frame.kind is not FrameKind.END:
            self._drop_first()
        self.cursor = max(self.cursor, self.first)

    def acknowledge(self, next_seq: int) -> None:
        """The receiver's task has taken all frames below ``next_seq``. Raises ProtocolError if some were not sent."""
        if next_seq > max(self.cursor, self.acked):
            raise ProtocolError(f"frames below {next_seq} were acknowledged, only those below {self.cursor} were sent")
        self.acked = max(self.acked, next_seq)

    def truncate_below(self, seq: int) -> None:
        """Drops the frames below ``seq``, which the receiver's restart point covers. Frames below it that are yet to be
        rebuilt are dropped when they are appended."""
        self.covered = max(self.covered, seq)
        while self._entries and self.first < seq:
            self._drop_first()
        self.cursor = max(self.cursor, self.first)
        self.acked = max(self.acked, self.first)

    def _drop_first(self) -> None:
        self._release(self.first)
        entry = self._entries.popleft()
        self.first += 1
        pending_bytes = entry.size_bytes if entry.io_pending else 0
        if entry.place is None:
            self.memory_bytes -= entry.size_bytes
            self.writing_bytes -= pending_bytes
        else:
            self.spilled_bytes -= entry.size_bytes
            self.ahead_bytes -= pending_bytes
            self._unused.append(entry.place)

    def take_unused(self) -> list[Any]:
        """The places on disk that no frame needs any more, each returned once."""
        unused, self._unused = self._unused, []
        return unused

    # ---- writing

    def to_write(self, bytes_wanted: float, before_epoch: float = float("inf")) -> list[RetainedFrame]:
        """The oldest frames of epochs before ``before_epoch`` that are not being written, up to ``bytes_wanted``. They
        count as being written from now on."""
        found = []
        self._write_from = max(self._write_from, self.first)
        while bytes_wanted > 0 and self._write_from < self.next_seq:
            entry = self._at(self._write_from)
            if entry.frame.epoch >= before_epoch:
                break
            self._write_from += 1
            if entry.size_bytes and entry.place is None and not entry.io_pending:
                entry.io_pending = True
                self.writing_bytes += entry.size_bytes
                bytes_wanted -= entry.size_bytes
                found.append(entry)
        return found

    def written(self, seq: int, place: Any) -> None:
        """The frame can be read back from ``place``. Its body is freed, unless it is to be sent soon."""
        if seq < self.first:
            self._unused.append(place)
            return
        entry = self._at(seq)
        entry.place, entry.io_pending = place, False
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
        """The frame could not be written. It stays in memory, and writing it may be tried again."""
        if seq >= self.first:
            entry = self._at(seq)
            entry.io_pending = False
            self.writing_bytes -= entry.size_bytes
            self._write_from = min(self._write_from, seq)

    # ---- reading back

    def to_read(self, frames_ahead: int) -> list[RetainedFrame]:
        """Frames on disk among the next ``frames_ahead`` to be sent, as far as the read-ahead limit allows. They count
        as being read from now on."""
        found: list[RetainedFrame] = []
        if not self.connected:
            return found
        self._read_from = max(self._read_from, self.cursor, self.first)
        while self._read_from < min(self.cursor + frames_ahead, self.next_seq):
            entry = self._at(self._read_from)
            if not entry.in_memory and not entry.io_pending:
                if not self._may_read(entry):
                    break
                entry.io_pending = True
                self.ahead_bytes += entry.size_bytes
                found.append(entry)
            self._read_from += 1
        return found

    def _may_read(self, entry: RetainedFrame) -> bool:
        """Whether the limit allows reading it. The frame at the cursor may always be read."""
        return entry.frame.seq == self.cursor or self.ahead_bytes + entry.size_bytes <= AHEAD_BYTES

    def read(self, seq: int, body: Any) -> None:
        """The body that ``to_read`` requested has been read. It is dropped if the cursor has moved elsewhere."""
        if seq < self.first:
            return
        entry = self._at(seq)
        entry.io_pending = False
        if self.connected and self.cursor <= seq < self._read_from:
            entry.body = body
            self._keep_ahead(entry)
        else:
            self.ahead_bytes -= entry.size_bytes
            self._read_from = max(min(self._read_from, seq), self.cursor)

    @property
    def checksums(self) -> list[tuple[int, int]]:
        """(sequence number, checksum) of all retained frames."""
        return [(e.frame.seq, e.checksum) for e in self._entries]
