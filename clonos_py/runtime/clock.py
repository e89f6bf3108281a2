"""A clock that is never set: for everything that is due after a while, and for times that are compared with each other.

The time of day may be set, forwards and backwards, by an administrator or by NTP. Durations that are measured with it
become wrong by as much: rows would linger for an hour, and processes be silent for one. So the engine counts
microseconds of the machine's monotonic clock, moved once, when a run begins, to where the time of day was. ``ctx.time``
and processing-time timers are about the time of day itself and are not counted with it.
"""

from __future__ import annotations

import socket
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True)
class SteadyClock:
    """Microseconds since 1970-01-01 UTC as the time of day had it when the clock was started. Processes of one machine
    share a clock that travels to them, so that what they measure is comparable; on another machine, whose monotonic
    clock counts from elsewhere, ``here`` starts one of its own."""

    machine: str
    """The machine, and its start, to which ``ahead_us`` belongs."""
    ahead_us: int
    """What is to be added to the machine's monotonic clock."""

    @staticmethod
    def start() -> SteadyClock:
        return SteadyClock(_machine(), time_of_day_us() - _monotonic_us())

    def here(self) -> SteadyClock:
        """This clock, or one of its own for a machine that it was not started on."""
        return self if self.machine == _machine() else SteadyClock.start()

    def now_us(self) -> int:
        return _monotonic_us() + self.ahead_us


def time_of_day_us() -> int:
    """Wall-clock time in microseconds UTC; may jump."""
    return time.time_ns() // 1_000


def _monotonic_us() -> int:
    return time.monotonic_ns() // 1_000


def _machine() -> str:
    """The same for all processes that count with one monotonic clock."""
    with suppress(OSError):
        return _BOOT_ID.read_text(encoding="ascii").strip()
    return socket.gethostname()
