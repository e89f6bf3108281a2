"""The in-flight log of a channel whose frames can be regenerated: it retains only frames that are in flight.

    truncated | not held: received, or no receiver is connected | kept: not received yet
              ^ first                                           ^ kept         ^ cursor ^ next_seq

If a receiver requests frames below ``kept``, these are regenerated (``missing`` lists them) and arrive in order. Of a
frame that is not held only the checksum is stored; the regenerated frame must have the same one.

Invariants: those of ``InFlightLog``, except that the retained sequence numbers begin at ``kept``. All frames from
``first`` up to ``kept`` can be regenerated from the log of the task since its restart point.
"""

from __future__ import annotations

from collections import deque

from clonos_py.channel.inflight import InFlightLog, RetainedFrame


class RegeneratedLog(InFlightLog):
    """Frames in flight, and frames regenerated for a receiver that had lost them."""

    def __init__(self, next_seq: int) -> None:
        super().__init__(next_seq)
        self.kept = next_seq
        self.connections = 0
        """How many receivers have connected so far. Frames regenerated for an earlier one are of no use."""
        self._regenerated: deque[RetainedFrame] = deque()
        self._checksum_of: dict[int, int] = {}

    def append(self, entry: RetainedFrame) -> None:
        super().append(entry)
        self._drop_below(self.acked if self.connected else self.next_seq)

    def continue_at(self, next_seq: int) -> None:
        """A predecessor cut the frames from ``first`` on before; the next frame to be cut is ``next_seq``."""
        self.next_seq = self.kept = next_seq
        self._retained_at_connect = max(self._retained_at_connect, next_seq)
        self.sent_before = max(self.sent_before, next_seq)

    def connect(self, next_seq: int) -> None:
        super().connect(next_seq)
        self.connections += 1

    def disconnect(self) -> None:
        self.connected = False
        self._drop_below(self.next_seq)
        self._regenerated.clear()
        self.ahead_bytes = 0

    def _at(self, seq: int) -> RetainedFrame:
        return self._entries[seq - self.kept] if seq >= self.kept else self._regenerated[0]

    def pending(self, window: int) -> RetainedFrame | None:
        if self.cursor < self.kept and not self._regenerated:
            return None
        return super().pending(window)

    def sent(self) -> None:
        if self.cursor < self.kept:
            self.ahead_bytes -= self._regenerated.popleft().size_bytes
        super().sent()

    def acknowledge(self, next_seq: int) -> None:
        super().acknowledge(next_seq)
        self._drop_below(self.acked)

    def _drop_below(self, below: int) -> None:
        while self._entries and self.kept < below:
            self.memory_bytes -= self._entries.popleft().size_bytes
            self.kept += 1

    def truncate_below(self, seq: int) -> None:
        self.covered = max(self.covered, seq)
        self.first = max(self.first, seq)
        self._checksum_of = {seq: known for seq, known in self._checksum_of.items() if seq >= self.first}
        self._drop_below(self.first)
        self.cursor = max(self.cursor, self.first)
        self.acked = max(self.acked, self.first)
        while self._regenerated and self._regenerated[0].frame.seq < self.cursor:
            self.ahead_bytes -= self._regenerated.popleft().size_bytes

    # ---- regenerated frames

    @property
    def lowest_checksum(self) -> int | None:
        """The lowest number of a frame whose checksum is stored; None if there is none."""
        return min(self._checksum_of, default=None)

    @property
    def missing(self) -> range:
        """The frames that must be regenerated for the receiver, in this order."""
        start = self.cursor + len(self._regenerated)
        return range(start, self.kept) if self.connected else range(0)

    def checksum_of(self, seq: int, unknown: int) -> int:
        """The stored checksum of a frame. If there is none, ``unknown`` is stored and returned."""
        return self._checksum_of.setdefault(seq, unknown)

    def regenerated(self, entry: RetainedFrame) -> bool:
        """Takes the next missing frame. Returns False if the frame is not missing (any more)."""
        missing = self.missing
        if not missing or entry.frame.seq != missing.start:
            return False
        self._regenerated.append(entry)
        self.ahead_bytes += entry.size_bytes
        return True
