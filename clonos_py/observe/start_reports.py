"""Lines that tell what a run waits for before its tasks run, where no live view shows it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from clonos_py.observe.status import RunStatus

FIRST_S = 2.0
"""A line is due when the run has waited this long for one thing."""
NEXT_S = 10.0
"""And when it has waited this long since the last line, or since the first of several things."""
_LOOK_S = 0.25


class StartReports:
    """Decides when a line is due. No clock."""

    def __init__(self) -> None:
        self._waits_for: str | None = None
        self._since_s = 0.0
        self._told = False
        """Whether a line has named what is waited for now."""
        self._next_s = 0.0

    def line(self, waits_for: str | None, detail: str, now_s: float) -> str | None:
        """``waits_for``: what the run waits for at the time ``now_s``; None if for nothing. ``detail``: what is seen
        meanwhile, may be empty. Returns the line to print now, if any."""
        if self._waits_for is None:
            self._next_s = now_s + NEXT_S
        if waits_for != self._waits_for:
            self._waits_for, self._since_s, self._told = waits_for, now_s, False
        due_s = self._next_s if self._told else min(self._next_s, self._since_s + FIRST_S)
        if waits_for is None or now_s < due_s:
            return None
        self._told, self._next_s = True, now_s + NEXT_S
        return f"{waits_for}, {now_s - self._since_s:.0f} s so far" + (f" ({detail})" if detail else "")


@contextmanager
def reported(status: RunStatus, write: Callable[[str], None]) -> Iterator[None]:
    """Within the block, another thread calls ``write`` with the lines."""
    ended = threading.Event()

    def report() -> None:
        reports = StartReports()
        while not ended.wait(_LOOK_S):
            line = reports.line(*status.waits_for, time.monotonic())
            if line is not None:
                write(line)

    thread = threading.Thread(target=report, name="start reports", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
