"""A handle of a process on this machine. Unlike a process id, it never refers to another process later."""

from __future__ import annotations

import os
import signal
from contextlib import suppress


class ProcessHandle:
    """Refers to one process, even after it has ended (Linux: pidfd_open)."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    @staticmethod
    def of(pid: int) -> ProcessHandle | None:
        """The handle of a running process; None if there is no such process, or the system has no handles."""
        if hasattr(os, "pidfd_open"):
            with suppress(OSError):
                return ProcessHandle(os.pidfd_open(pid))
        return None

    def kill(self) -> bool:
        """Sends SIGKILL. False if the process is dead already."""
        try:
            signal.pidfd_send_signal(self._descriptor, signal.SIGKILL)
        except ProcessLookupError:
            return False
        return True

    def close(self) -> None:
        os.close(self._descriptor)
