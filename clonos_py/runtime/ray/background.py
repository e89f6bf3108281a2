"""Work that is not urgent yet, at a lower priority.

Standbys take in each checkpoint right after it, all at once. On few cores that held up the tasks that run for a good
tenth of a second: with the lower priority the 99th percentile of q3's latency at half load is a fifth lower (D15).
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress

from clonos_py.runtime.ray.serial_executor import SerialExecutor

NICENESS = 10
"""Measured: half of it changes nothing. Who has no privileges can never take it back, hence a thread of its own."""


class Background(SerialExecutor):
    """A thread that lets others go first, where the system knows priorities of threads (Linux)."""

    def _begin(self) -> None:
        """The priority is that of this thread, not of the process. Some sandboxes forbid it: the work is done all the
        same."""
        if sys.platform == "linux":
            with suppress(OSError):
                os.setpriority(os.PRIO_PROCESS, 0, os.getpriority(os.PRIO_PROCESS, 0) + NICENESS)
