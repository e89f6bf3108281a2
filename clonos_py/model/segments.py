"""Segments of determinant logs: the unit in which logs travel, are held and compared (D6)."""

from __future__ import annotations

import msgspec


class Segment(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Offsets [start, start + count) of the log of the task with this ordinal.

    ``epoch`` is the checkpoint that the task had taken last, ``epoch_start`` the offset at which it did.
    """

    task: int
    epoch: int
    epoch_start: int
    start: int
    count: int
    payload: bytes

    @property
    def stop(self) -> int:
        return self.start + self.count
