"""Decides how long a run waits for Ray to start its coordinator: as long as Ray starts any processes.

On an overloaded machine a process may take minutes to start. That alone is no failure. What counts is the time without
a sign that a process is starting. No I/O, no clock.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import NamedTuple

_FIRST_REPORT_US = 2_000_000
_REPORTS_US = 10_000_000
_LIMIT_FACTOR = 10
"""The wait ends after this many start timeouts even with signs: workers that crash again and again also give signs."""


class StartingWorker(NamedTuple):
    """A process that is starting as a worker, and the processor time that it has used."""

    pid: int
    cpu_us: int


@dataclass(frozen=True)
class Signs:
    """Signs of starting processes on the driver's node, where the coordinator is to start. If two of them name the same
    processes with the same times, nothing happened in between."""

    starting: Collection[StartingWorker]
    load: str = ""
    """The load of the machine, as text."""


class StartPatience:
    """Takes signs, and decides when to report and when to give up."""

    def __init__(self, timeout_us: int, now_us: int) -> None:
        """``timeout_us``: the longest time without a sign."""
        self._timeout_us = timeout_us
        self._began_us = self._sign_us = now_us
        self._report_us = now_us + _FIRST_REPORT_US
        self._now_us = now_us
        self._starting: frozenset[StartingWorker] = frozenset()
        self._load = ""

    def update(self, signs: Signs, now_us: int) -> None:
        """Takes the current signs of the node."""
        starting = frozenset(signs.starting)
        if starting != self._starting:
            self._sign_us = now_us
        self._starting, self._load, self._now_us = starting, signs.load, now_us

    @property
    def has_expired(self) -> bool:
        """Whether to give up."""
        silent = self._now_us - self._sign_us >= self._timeout_us
        return silent or self.waited_us >= _LIMIT_FACTOR * self._timeout_us

    @property
    def waited_us(self) -> int:
        return self._now_us - self._began_us

    def reports(self) -> bool:
        """Whether a report is due. If so, the next is due ten seconds later."""
        if self._now_us < self._report_us:
            return False
        self._report_us = self._now_us + _REPORTS_US
        return True

    @property
    def seen(self) -> str:
        """The signs that were taken last, as text."""
        amount = len(self._starting)
        workers = "no worker process starts" if not amount else f"{amount} worker process{'es' * (amount > 1)} starting"
        return ", ".join(part for part in (workers, self._load) if part)

    def error_message(self, job: str) -> str:
        """The error message for a run that gives up."""
        silent_s = (self._now_us - self._sign_us) / 1e6
        return (
            f"the coordinator of {job!r} could not be started: waited {self.waited_us / 1e6:.0f} s for Ray, the last "
            f"{silent_s:.0f} s without a sign of a starting process ({self.seen}); see with `ray status` whether "
            "memory is left and every node answers, or wait longer with --start-timeout"
        )
