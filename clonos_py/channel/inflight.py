"""The in-flight log of one output channel: output queue, replay source and deduplication in one (D3).

    truncated | retained: sent and received | sent | not sent yet
              ^ first                       ^ acked ^ cursor     ^ next_seq

The task appends; whoever sends asks for the frame at the cursor. Moving the cursor back is replay; a cursor ahead of
``next_seq`` is deduplication: what a recovering task rebuilds before it is retained but not sent again.

Invariants: first <= next_seq; retained sequence numbers are contiguous; nothing above a completed checkpoint's
barrier is ever dropped.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any, Protocol

from clonos_py.channel.frames import Frame, FrameKind
from clonos_py.model.errors import ProtocolError


class Spill(Protocol):
    """Where bodies live that memory has no room for."""

    def write(self, body: Any) -> Any:
        """Stores a body and gives its handle. Raises CapacityError when it cannot."""
        ...

    def read(self, handle: Any, /) -> Any: ...

    def free(self, handle: Any, /) -> None: ...


@dataclass(slots=True)
class Entry:
    """A retained frame. ``frame.rows`` is gone; the body is in memory or behind a spill handle."""

    frame: Frame
    row_count: int
    body: Any
    size_bytes: int
    checksum: int
    spilled: bool = False


class InFlightLog:
    """Frames of one channel since the last completed checkpoint, and what of them its receiver has."""

    def __init__(self, next_seq: int, spill: Spill | None = None) -> None:
        self._entries: deque[Entry] = deque()
        self._spill = spill
        self.first = next_seq
        self.next_seq = next_seq
        self.cursor = next_seq
        self.sent_before = next_seq
        """Frames below this number were sent at least once."""
        self.acked = next_seq
        self._owed = next_seq
        """Frames below this number were here when the receiver connected."""
        self.connected = False
        self.retain = True
        """False for at-most-once: what was sent is forgotten."""
        self.memory_bytes = 0
        self.spilled_bytes = 0

    @property
    def unreceived(self) -> int:
        """Frames cut since a receiver connected that it has not taken yet: what back-pressure counts. What is replayed
        to it was let through once."""
        return self.next_seq - max(self.acked, self._owed) if self.connected else 0

    def append(self, entry: Entry) -> None:
        """Raises ProtocolError if the frame is not the next one."""
        if entry.frame.seq != self.next_seq:
            raise ProtocolError(f"frame {entry.frame.seq} was cut where {self.next_seq} is next")
        self._entries.append(entry)
        self.next_seq += 1
        self.memory_bytes += entry.size_bytes
        if not self.retain and not self.connected and entry.frame.kind is not FrameKind.END:
            self._forget_sent(self.next_seq)

    def connect(self, next_seq: int) -> None:
        """A receiver that wants ``next_seq`` next has subscribed. Raises ProtocolError if that is gone."""
        if next_seq < self.first:
            raise ProtocolError(f"frame {next_seq} was asked for, the in-flight log starts at {self.first}")
        self.cursor = self.acked = next_seq
        self._owed = self.next_seq
        self.connected = True

    def disconnect(self) -> None:
        self.connected = False

    def pending(self, window: int) -> Entry | None:
        """The frame to send now, None if there is none or ``window`` frames are already on their way."""
        if not self.connected or self.cursor >= self.next_seq or self.cursor - self.acked >= window:
            return None
        return self._entries[self.cursor - self.first]

    def sent(self) -> None:
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

    def body(self, entry: Entry) -> Any:
        if entry.spilled:
            assert self._spill is not None
            return self._spill.read(entry.body)
        return entry.body

    def truncate(self, checkpoint: int) -> None:
        """Checkpoint ``checkpoint`` is complete: frames cut before its barrier, and it, are dropped."""
        while self._entries and self._entries[0].frame.epoch < checkpoint:
            self._drop_first()
        self.cursor = max(self.cursor, self.first)
        self.acked = max(self.acked, self.first)

    def _drop_first(self) -> None:
        entry = self._entries.popleft()
        self.first += 1
        if entry.spilled:
            self.spilled_bytes -= entry.size_bytes
            assert self._spill is not None
            self._spill.free(entry.body)
        else:
            self.memory_bytes -= entry.size_bytes

    def spill_oldest(self, bytes_wanted: int) -> int:
        """Moves the oldest bodies out of memory until ``bytes_wanted`` are free or none is left. What was freed."""
        freed = 0
        if self._spill is None:
            return freed
        for entry in self._entries:
            if freed >= bytes_wanted:
                break
            if not entry.spilled and entry.body is not None:
                entry.body = self._spill.write(entry.body)
                entry.spilled = True
                freed += entry.size_bytes
        self.memory_bytes -= freed
        self.spilled_bytes += freed
        return freed

    @property
    def checksums(self) -> list[tuple[int, int]]:
        """(sequence number, checksum) of everything retained."""
        return [(e.frame.seq, e.checksum) for e in self._entries]
