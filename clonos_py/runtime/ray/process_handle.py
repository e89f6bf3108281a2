"""A handle of a process on this machine. Unlike a process id, it never refers to another process later."""

from __future__ import annotations

import os
import select
import signal
from contextlib import suppress

_PIDFD_THREAD = os.O_EXCL
"""Makes ``pidfd_open`` refer to a thread (Linux 6.9)."""


class ProcessHandle:
    """Refers to one process, even after it has ended (Linux: pidfd_open)."""

    def __init__(self, process: int, thread: int | None) -> None:
        """``process``, ``thread``: descriptors of the process and of the thread whose end shows that it ends."""
        self._process, self._thread = process, thread

    @staticmethod
    def of(pid: int, thread: int) -> ProcessHandle | None:
        """The handle of a running process; None if there is no such process, or the system has no handles. ``thread``:
        the id of a thread of it that never ends before. A process that is killed has ended only when its memory is
        freed, which takes some 7 ms for 100 MB; its threads end before, all but the last one. Systems that have no
        handles of threads wait for the process."""
        if not hasattr(os, "pidfd_open"):
            return None
        with suppress(OSError):
            process = os.pidfd_open(pid)
            with suppress(OSError):
                return ProcessHandle(process, os.pidfd_open(thread, _PIDFD_THREAD))
            return ProcessHandle(process, None)
        return None

    @property
    def descriptor(self) -> int:
        """Can be read once the process ends."""
        return self._process if self._thread is None else self._thread

    def is_ending(self) -> bool:
        """Whether the process is ending, or has ended."""
        poll = select.poll()
        poll.register(self.descriptor, select.POLLIN)
        return bool(poll.poll(0))

    def kill(self) -> bool:
        """Sends SIGKILL. False if the process is dead already."""
        try:
            signal.pidfd_send_signal(self._process, signal.SIGKILL)
        except ProcessLookupError:
            return False
        return True

    def close(self) -> None:
        os.close(self._process)
        if self._thread is not None:
            os.close(self._thread)
