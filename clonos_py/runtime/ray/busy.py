"""Finds silent processes that use their processor, which have not failed.

Native code, such as a regular expression, a sort or a library, may hold Python's interpreter lock for minutes. Then no
thread of the process can answer a heartbeat. Its replacement would be just as silent. A process that is stopped, or
that waits for a lock, uses no processor.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import NamedTuple

_USED_SHARE = 20
"""A process counts as busy if it has used at least one part in this many of the elapsed time. The share is small, since
many processes may share the processors."""


class _Look(NamedTuple):
    at_us: int
    cpu_us: int


class Busy:
    """Watches the processes of one job. A process is looked at when it has sent nothing for ``silence_us``, then every
    ``silence_us``; with 0 never."""

    def __init__(self, silence_us: int) -> None:
        self._silence_us = silence_us
        self._last_seen_us: dict[int, int] = {}
        self._looks: dict[int, _Look] = {}

    def seen(self, number: int, now_us: int) -> None:
        """A process has sent a message."""
        self._last_seen_us[number] = now_us
        self._looks.pop(number, None)

    def find(self, now_us: int, cpu_us: Callable[[int], int | None], running: Container[int]) -> list[int]:
        """The silent processes that have used their processor since the last look. ``cpu_us``: the processor time that
        a process has used, None if it is not available. ``running``: all others are watched no longer."""
        for number in [number for number in self._last_seen_us if number not in running]:
            del self._last_seen_us[number]
            self._looks.pop(number, None)
        found = []
        for number, last_seen_us in self._last_seen_us.items():
            before = self._looks.get(number)
            if now_us - (before.at_us if before else last_seen_us) < self._silence_us or not self._silence_us:
                continue
            if (used_us := cpu_us(number)) is None:
                continue
            if before and (used_us - before.cpu_us) * _USED_SHARE >= now_us - before.at_us:
                found.append(number)
            self._looks[number] = _Look(now_us, used_us)
        return found
