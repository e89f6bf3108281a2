"""The retained frames of one output channel: output queue, replay source and deduplication in one (D3).

    dropped | retained                                  | not cut yet
            ^ first                                     ^ next_seq
                    ^ acked ^ at: a cursor of one subscriber

The task appends frames. Each subscriber has a cursor (``channel/cursor.py``): the link sends the frame at the cursor.
Moving a cursor back is replay. A cursor ahead of ``next_seq`` is deduplication: frames that a recovering task rebuilds
below the cursor are retained but not sent again. A frame is dropped when no cursor needs it any more.

A body is in memory, on disk, or both. It can be sent while it is being written, and it is read back ahead of the
cursors. Other parts do the reading and writing: this store states what to write, and records the outcome.

Invariants: first <= kept <= next_seq; the sequence numbers of retained frames are contiguous and begin at ``kept``,
which is ``first`` unless frames below it are to be regenerated; only frames that the restart points of all subscribers
cover are dropped for good; a body leaves memory only when it can be read back.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from itertools import islice
from typing import Any, Protocol

from clonos_py.channel.frames import Frame, FrameKind
from clonos_py.model.errors import ProtocolError
from clonos_py.model.snapshots import FrameRecord


class Retention(Enum):
    """How long a frame is retained."""

    UNTIL_COVERED = "until covered"
    """Until the restart points of all subscribers cover it."""
    UNTIL_TAKEN = "until taken"
    """Until all connected subscribers have taken it: it can be regenerated until it is covered."""
    UNTIL_SENT = "until sent"
    """At most once. The last frame, END, is retained for ever: a subscriber may connect late."""


@dataclass(slots=True)
class RetainedFrame:
    """A retained frame. ``frame.rows`` is cleared; the body is in memory (``body``), on disk (``place``), or both.

    ``io_pending``: it is being written (if ``place`` is None) or read (else). ``held``: the number of cursors for which
    the body of a frame on disk is in memory, or is being read."""

    frame: Frame
    row_count: int
    body: Any
    size_bytes: int
    checksum: int
    place: Any = None
    io_pending: bool = False
    held: int = 0

    @property
    def in_memory(self) -> bool:
        """Whether its body is in memory, so that it can be sent now."""
        return self.body is not None or not self.size_bytes


class Subscriber(Protocol):
    """What the store asks a cursor."""

    connected: bool
    at: int
    """The next frame to send."""
    acked: int
    covered: int
    """Its restart point covers the frames below."""

    def on_written(self, entry: RetainedFrame) -> None:
        """The frame is on disk now. The cursor holds its body if it is to be sent soon."""

    def on_read(self, entry: RetainedFrame) -> None:
        """The body of the frame has been read, and is dropped if the cursor does not hold it."""

    def on_dropped(self, entry: RetainedFrame) -> None:
        """The frame is dropped."""

    def on_continued(self, next_seq: int) -> None:
        """A predecessor has cut the frames below ``next_seq``."""


class RetainedFrames:
    """The frames of one channel that a subscriber may still request."""

    def __init__(
        self, next_seq: int, retention: Retention = Retention.UNTIL_COVERED, regenerates: bool = False
    ) -> None:
        """``regenerates``: frames that are not covered, and that this store does not retain, can be regenerated."""
        self.retention, self.regenerates = retention, regenerates or retention is Retention.UNTIL_TAKEN
        self._entries: deque[RetainedFrame] = deque()
        self._subscribers: list[Subscriber] = []
        self.first = self.kept = self.next_seq = next_seq
        self._covered = next_seq
        self.epoch = 0
        """The epoch of the newest frame."""
        self.memory_bytes = 0
        """Size of the bodies that are only in memory."""
        self.writing_bytes = 0
        """How much of ``memory_bytes`` is being written to disk."""
        self.ahead_bytes = 0
        """Size of the bodies that are in memory for cursors only, or are being read: of frames on disk, and of
        regenerated ones."""
        self.spilled_bytes = 0
        self._write_from = next_seq
        self._unused: list[Any] = []

    @property
    def drops_taken(self) -> bool:
        """Whether a frame is retained only until it is taken."""
        return self.retention is Retention.UNTIL_TAKEN

    def subscribe(self, subscriber: Subscriber) -> None:
        """Retains the frames that the subscriber needs, from now on."""
        self._subscribers.append(subscriber)

    def append(self, entry: RetainedFrame) -> None:
        """Raises ProtocolError if the frame is not the next one. A frame that is covered already is dropped at once."""
        if entry.frame.seq != self.next_seq:
            raise ProtocolError(f"frame {entry.frame.seq} was cut where {self.next_seq} is next")
        self._entries.append(entry)
        self.epoch = entry.frame.epoch
        self.next_seq += 1
        self.memory_bytes += entry.size_bytes
        if entry.frame.seq < self._covered:
            self._drop_below(self._covered)
        self.drop_taken()
        if self.retention is Retention.UNTIL_SENT and entry.frame.kind is not FrameKind.END:
            self.drop_sent()

    def continue_at(self, next_seq: int) -> None:
        """A predecessor has cut the frames from ``first`` on before, which can be regenerated; the next frame to be cut
        is ``next_seq``."""
        self.next_seq = self.kept = next_seq
        for subscriber in self._subscribers:
            subscriber.on_continued(next_seq)

    def entry(self, seq: int) -> RetainedFrame:
        return self._entries[seq - self.kept]

    def between(self, start: int, stop: int) -> Iterator[RetainedFrame]:
        """The frames [start, stop) in order. Raises ProtocolError if they are not all retained."""
        if start < self.kept or stop > self.next_seq:
            raise ProtocolError(
                f"frames [{start}, {stop}) are to be stored, those of [{self.kept}, {self.next_seq}) are retained"
            )
        return islice(self._entries, start - self.kept, stop - self.kept)

    @property
    def checksums(self) -> list[tuple[int, int]]:
        """(sequence number, checksum) of all retained frames."""
        return [(e.frame.seq, e.checksum) for e in self._entries]

    # ---- dropping

    def drop_covered(self) -> None:
        """Drops the frames that the restart points of all subscribers cover. Those that are yet to be rebuilt are
        dropped when they are appended."""
        self._covered = min(subscriber.covered for subscriber in self._subscribers)
        self._drop_below(self._covered)
        if self.regenerates:
            self.first = max(self.first, self._covered)

    def drop_taken(self) -> None:
        """Drops the frames that all connected subscribers have taken, if they are retained no longer."""
        if self.drops_taken:
            self._drop_below(min(s.acked if s.connected else self.next_seq for s in self._subscribers))

    def drop_sent(self) -> None:
        """Drops the frames that were sent to all connected subscribers."""
        below = min(s.at if s.connected else self.next_seq for s in self._subscribers)
        while self._entries and self.kept < below and self._entries[0].frame.kind is not FrameKind.END:
            self._drop_first()

    def _drop_below(self, seq: int) -> None:
        while self._entries and self.kept < seq:
            self._drop_first()

    def _drop_first(self) -> None:
        entry = self._entries.popleft()
        self.kept += 1
        if not self.drops_taken:
            self.first = self.kept
        for subscriber in self._subscribers:
            subscriber.on_dropped(entry)
        if entry.place is None:
            self.memory_bytes -= entry.size_bytes
            self.writing_bytes -= entry.size_bytes if entry.io_pending else 0
        else:
            self.spilled_bytes -= entry.size_bytes
            self._unused.append(entry.place)

    def take_unused(self) -> list[Any]:
        """The places on disk that no frame needs any more, each returned once."""
        unused, self._unused = self._unused, []
        return unused

    # ---- writing

    def to_write(self, bytes_max: float, before_epoch: float = float("inf")) -> list[RetainedFrame]:
        """The oldest frames of epochs before ``before_epoch`` that are not being written, up to ``bytes_max``. They
        count as being written from now on."""
        found = []
        self._write_from = max(self._write_from, self.kept)
        while bytes_max > 0 and self._write_from < self.next_seq:
            entry = self.entry(self._write_from)
            if entry.frame.epoch >= before_epoch:
                break
            self._write_from += 1
            if entry.size_bytes and entry.place is None and not entry.io_pending:
                entry.io_pending = True
                self.writing_bytes += entry.size_bytes
                bytes_max -= entry.size_bytes
                found.append(entry)
        return found

    def written(self, seq: int, place: Any) -> None:
        """The frame can be read back from ``place``. Its body is freed, unless it is to be sent soon."""
        if seq < self.kept:
            self._unused.append(place)
            return
        entry = self.entry(seq)
        entry.place, entry.io_pending = place, False
        self.memory_bytes -= entry.size_bytes
        self.writing_bytes -= entry.size_bytes
        self.spilled_bytes += entry.size_bytes
        for subscriber in self._subscribers:
            subscriber.on_written(entry)
        if not entry.held:
            entry.body = None

    def not_written(self, seq: int) -> None:
        """The frame could not be written. It stays in memory, and writing it may be tried again."""
        if seq >= self.kept:
            entry = self.entry(seq)
            entry.io_pending = False
            self.writing_bytes -= entry.size_bytes
            self._write_from = min(self._write_from, seq)

    # ---- bodies of frames on disk

    def hold(self, entry: RetainedFrame) -> None:
        """A cursor needs the body of a frame on disk in memory."""
        entry.held += 1
        if entry.held == 1:
            self.ahead_bytes += entry.size_bytes

    def release(self, entry: RetainedFrame) -> None:
        """A cursor needs the body no more."""
        entry.held -= 1
        if not entry.held:
            self.ahead_bytes -= entry.size_bytes
            entry.body = None

    def read(self, seq: int, body: Any) -> None:
        """The body of a frame has been read. It is dropped if no cursor needs it any more."""
        if seq < self.kept:
            return
        entry = self.entry(seq)
        entry.io_pending = False
        if entry.held:
            entry.body = body
        for subscriber in self._subscribers:
            subscriber.on_read(entry)


# ---- the stored form of a frame, apart from its body: in checkpoints, and in the feed of standbys


def record_of(entry: RetainedFrame, size_bytes: int) -> FrameRecord:
    """``size_bytes``: that of the body in its stored form."""
    f = entry.frame
    return FrameRecord(f.seq, f.kind, f.epoch, f.watermark, f.idle, f.checkpoint, f.stamp, entry.row_count, size_bytes)


def frame_of(r: FrameRecord) -> Frame:
    """The frame of a record, without rows. Raises ValueError if there are no frames of its kind."""
    return Frame(r.seq, FrameKind(r.kind), r.epoch, r.watermark, r.idle, r.checkpoint, None, 0, r.stamp)
