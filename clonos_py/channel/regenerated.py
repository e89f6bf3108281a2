"""Frames that are regenerated for a subscriber that had lost them, in place of retained ones (D3).

Of a frame that is not retained only the checksum is stored; the regenerated frame must have the same one. Each
connection is another run: frames regenerated for an earlier one are of no use.
"""

from __future__ import annotations

from collections import deque

from clonos_py.channel.retained import RetainedFrame


class RegeneratedFrames:
    """The regenerated frames of one subscriber that are to be sent next. Methods that drop some return their bytes."""

    def __init__(self) -> None:
        self.run = 0
        """The number of connections so far."""
        self._frames: deque[RetainedFrame] = deque()
        self._checksum_of: dict[int, int] = {}

    def begin(self) -> None:
        """The subscriber has connected."""
        self.run += 1

    @property
    def first(self) -> RetainedFrame | None:
        return self._frames[0] if self._frames else None

    @property
    def count(self) -> int:
        return len(self._frames)

    def add(self, entry: RetainedFrame) -> None:
        self._frames.append(entry)

    def take(self) -> int:
        """The first frame was sent."""
        return self._frames.popleft().size_bytes

    def clear(self) -> int:
        dropped = sum(entry.size_bytes for entry in self._frames)
        self._frames.clear()
        return dropped

    def drop_below(self, at: int, covered: int) -> int:
        """The subscriber needs no frame below ``at``, and never again one below ``covered``."""
        self._checksum_of = {seq: known for seq, known in self._checksum_of.items() if seq >= covered}
        dropped = 0
        while self._frames and self._frames[0].frame.seq < at:
            dropped += self.take()
        return dropped

    # ---- checksums

    @property
    def lowest_checksum(self) -> int | None:
        """The lowest number of a frame whose checksum is stored; None if there is none."""
        return min(self._checksum_of, default=None)

    def checksum_of(self, seq: int, unknown: int) -> int:
        """The stored checksum of a frame. If there is none, ``unknown`` is stored and returned."""
        return self._checksum_of.setdefault(seq, unknown)
