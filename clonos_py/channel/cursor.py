"""How far one subscriber has got in the retained frames of a channel (D3).

    dropped | retained: sent and taken | sent, in flight | not sent yet
            ^ first                    ^ acked           ^ at           ^ next_seq

A subscriber is a receiver. Its replacement takes over the cursor and requests the frames that it lacks.

If frames can be regenerated, those below ``kept`` need not be retained. When the subscriber requests them, ``missing``
says which are to be regenerated; they arrive in order.
"""

from __future__ import annotations

from clonos_py.channel.regenerated import RegeneratedFrames
from clonos_py.channel.retained import RetainedFrame, RetainedFrames, Retention
from clonos_py.model.errors import ProtocolError

AHEAD_BYTES = 8 << 20
"""How much of a channel is read ahead of a cursor; always at least one frame."""


class Cursor:
    """The position of one subscriber, and the bodies that are in memory because it gets them soon."""

    def __init__(self, frames: RetainedFrames) -> None:
        self._frames = frames
        self.regenerated = RegeneratedFrames() if frames.regenerates else None
        self.at = self.acked = self.covered = self.sent_before = frames.next_seq
        """``sent_before``: frames below this number were sent at least once."""
        self._retained_at_connect = self._read_from = frames.next_seq
        self.connected = False
        self._ahead: dict[int, RetainedFrame] = {}
        self._ahead_bytes = 0
        frames.subscribe(self)

    @property
    def unreceived(self) -> int:
        """The number of frames cut since the subscriber connected that it has not taken yet. Back-pressure counts
        these. Frames that are replayed do not count: back-pressure admitted them when they were cut."""
        return self._frames.next_seq - max(self.acked, self._retained_at_connect) if self.connected else 0

    def connect(self, next_seq: int) -> None:
        """The subscriber gets the frames from ``next_seq`` on. Raises ProtocolError if that frame is not retained any
        more, and cannot be regenerated."""
        if next_seq < self._frames.first:
            raise ProtocolError(f"frame {next_seq} was requested, the in-flight log starts at {self._frames.first}")
        self.disconnect()
        self.at = self.acked = self._read_from = next_seq
        self._retained_at_connect = self._frames.next_seq
        self.connected = True
        if self.regenerated is not None:
            self.regenerated.begin()

    def disconnect(self) -> None:
        """Stops sending and drops bodies that were read ahead; they are still on disk."""
        self.connected = False
        for seq in list(self._ahead):
            self._release(seq)
        if self.regenerated is not None:
            self._frames.ahead_bytes -= self.regenerated.clear()
        self._frames.drop_taken()

    # ---- sending

    def pending(self, window: int) -> RetainedFrame | None:
        """The frame to send now. None if there is none, it is still on disk, or ``window`` frames are in flight."""
        frames, at = self._frames, self.at
        if not self.connected or at >= frames.next_seq or at - self.acked >= window:
            return None
        entry = frames.entry(at) if at >= frames.kept else self._regenerated_next
        return entry if entry is not None and entry.in_memory else None

    @property
    def _regenerated_next(self) -> RetainedFrame | None:
        return self.regenerated.first if self.regenerated is not None else None

    def sent(self) -> None:
        """The frame that ``pending`` has returned was sent."""
        if self.regenerated is not None and self.at < self._frames.kept:
            self._frames.ahead_bytes -= self.regenerated.take()
        elif self._ahead:
            self._release(self.at)
        self.at += 1
        self.sent_before = max(self.sent_before, self.at)
        if self._frames.retention is Retention.UNTIL_SENT:
            self._frames.drop_sent()

    def acknowledge(self, next_seq: int) -> None:
        """The subscriber has taken all frames below ``next_seq``. Raises ProtocolError if some were not sent."""
        if next_seq > max(self.at, self.acked):
            raise ProtocolError(f"frames below {next_seq} were acknowledged, only those below {self.at} were sent")
        self.acked = max(self.acked, next_seq)
        self._frames.drop_taken()

    def cover(self, below: int) -> bool:
        """The restart point of the subscriber covers the frames below ``below``. Returns whether it covers more than it
        did."""
        if below <= self.covered:
            return False
        self.covered = below
        self._frames.drop_covered()
        first = self._frames.first
        self.at, self.acked = max(self.at, first), max(self.acked, first)
        if self.regenerated is not None:
            self._frames.ahead_bytes -= self.regenerated.drop_below(self.at, first)
        return True

    # ---- reading back

    def to_read(self, frames_ahead: int) -> list[RetainedFrame]:
        """Frames to be read from disk, of the next ``frames_ahead`` to be sent, as far as the limit allows. They count
        as being read from now on."""
        found: list[RetainedFrame] = []
        if not self.connected:
            return found
        self._read_from = max(self._read_from, self.at, self._frames.kept)
        while self._read_from < min(self.at + frames_ahead, self._frames.next_seq):
            entry = self._frames.entry(self._read_from)
            if entry.place is not None and self._read_from not in self._ahead:
                if not self._may_hold(entry):
                    break
                self._hold(entry)
                if entry.body is None and not entry.io_pending:
                    entry.io_pending = True
                    found.append(entry)
            self._read_from += 1
        return found

    def _may_hold(self, entry: RetainedFrame) -> bool:
        """Whether the limit allows it. The frame at the cursor may always be read."""
        return entry.frame.seq == self.at or self._ahead_bytes + entry.size_bytes <= AHEAD_BYTES

    def _hold(self, entry: RetainedFrame) -> None:
        self._ahead[entry.frame.seq] = entry
        self._ahead_bytes += entry.size_bytes
        self._frames.hold(entry)

    def _release(self, seq: int) -> None:
        entry = self._ahead.pop(seq, None)
        if entry is not None:
            self._ahead_bytes -= entry.size_bytes
            self._frames.release(entry)

    # ---- what the store reports

    def on_written(self, entry: RetainedFrame) -> None:
        seq = entry.frame.seq
        if self.connected and self.at <= seq <= max(self._read_from, self.at) and self._may_hold(entry):
            self._hold(entry)
            self._read_from = max(self._read_from, seq + 1)
        else:
            self._read_from = max(min(self._read_from, seq), self.at)

    def on_read(self, entry: RetainedFrame) -> None:
        if entry.frame.seq not in self._ahead:
            self._read_from = max(min(self._read_from, entry.frame.seq), self.at)

    def on_dropped(self, entry: RetainedFrame) -> None:
        self._release(entry.frame.seq)
        self.at = max(self.at, self._frames.first)

    def on_continued(self, next_seq: int) -> None:
        self._retained_at_connect = max(self._retained_at_connect, next_seq)
        self.sent_before = max(self.sent_before, next_seq)

    # ---- regenerated frames

    @property
    def missing(self) -> range:
        """The frames that must be regenerated for the subscriber, in this order."""
        if self.regenerated is None or not self.connected:
            return range(0)
        return range(self.at + self.regenerated.count, self._frames.kept)

    def take_regenerated(self, entry: RetainedFrame) -> bool:
        """Takes the next missing frame. Returns False if the frame is not missing (any more)."""
        missing = self.missing
        if self.regenerated is None or not missing or entry.frame.seq != missing.start:
            return False
        self.regenerated.add(entry)
        self._frames.ahead_bytes += entry.size_bytes
        return True
