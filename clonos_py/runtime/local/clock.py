"""Real time for a world in one thread: nothing is delayed, and waiting is sleeping."""

from __future__ import annotations

import time


class RealTime:
    """A scheduler on the wall clock."""

    def now_us(self) -> int:
        return time.time_ns() // 1_000

    def wait_until(self, time_us: int) -> None:
        time.sleep(max(0, time_us - self.now_us()) / 1e6)

    def delay_us(self, kind: str) -> int:
        return 0
