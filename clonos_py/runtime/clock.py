"""A clock that is never set, for timeouts, intervals and times that are compared with each other.

An administrator or NTP may set the time of day forwards or backwards. Durations that are measured with it become wrong
by as much: rows would linger for an hour, and processes would seem silent for an hour. So the engine counts
microseconds of the machine's monotonic clock, shifted to the time of day once, when a run begins. ``ctx.time`` and
processing-time timers mean the time of day itself and do not use this clock.
"""

from __future__ import annotations

import os
import socket
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True)
class SteadyClock:
    """Microseconds since 1970-01-01 UTC, by the time of day at which the clock was started. The clock is sent to the
    processes of a run: those on one machine share it, so that their times can be compared. The monotonic clock of
    another machine counts from a different origin, so ``here`` starts a new clock there."""

    machine: str
    """The boot of the machine to which ``ahead_us`` belongs."""
    ahead_us: int
    """Microseconds to add to the machine's monotonic clock."""

    @staticmethod
    def start() -> SteadyClock:
        return SteadyClock(_machine(), time_of_day_us() - _monotonic_us())

    def here(self) -> SteadyClock:
        """This clock on the machine that it was started on, a new clock on another machine."""
        return self if self.machine == _machine() else SteadyClock.start()

    def now_us(self) -> int:
        return _monotonic_us() + self.ahead_us


def time_of_day_us() -> int:
    """Wall-clock time in microseconds UTC; may jump."""
    return time.time_ns() // 1_000


class LostProcessorTime:
    """The processor time of one thread that other threads of the machine could have used: it counts while all
    processors are busy."""

    def __init__(self) -> None:
        self._seen_us = self._lost_us = 0

    def lost_us(self) -> int:
        """Called by that thread. Whether the processors were busy is looked up once for the time since the last
        call."""
        used_us = time.thread_time_ns() // 1_000
        if os.getloadavg()[0] >= (os.cpu_count() or 1):
            self._lost_us += used_us - self._seen_us
        self._seen_us = used_us
        return self._lost_us


def _monotonic_us() -> int:
    return time.monotonic_ns() // 1_000


def _machine() -> str:
    """Identifies the monotonic clock: the same for all processes that share it."""
    with suppress(OSError):
        return _BOOT_ID.read_text(encoding="ascii").strip()
    return socket.gethostname()
