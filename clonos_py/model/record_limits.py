"""How much of its past a job keeps for replays (F1)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class RecordLimit:
    """For how long a record is kept, or up to which size. With neither there is no record, and it is false."""

    time_us: int = 0
    size_bytes: int = 0

    def __bool__(self) -> bool:
        return self.time_us > 0 or self.size_bytes > 0


NO_RECORD = RecordLimit()
