"""A thread of low priority, for work that is not urgent.

All standbys load a checkpoint at once, right after it is complete. On few cores that delayed the running tasks by more
than a tenth of a second. With the lower priority the 99th percentile of q3's latency at half load is a fifth lower
(D15).
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress

from clonos_py.runtime.ray.serial_executor import SerialExecutor

NICENESS = 10
"""Measured: half of it has no effect. Without privileges a thread cannot raise its priority again, hence a separate
thread."""


class Background(SerialExecutor):
    """A thread of low priority, where the system has priorities of threads (Linux)."""

    def _begin(self) -> None:
        """Lowers the priority of this thread, not of the process. If a sandbox forbids it, the thread works at normal
        priority."""
        if sys.platform == "linux":
            with suppress(OSError):
                os.setpriority(os.PRIO_PROCESS, 0, os.getpriority(os.PRIO_PROCESS, 0) + NICENESS)
