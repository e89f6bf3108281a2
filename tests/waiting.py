"""Waits of tests: a condition becomes true, however busy the machine is."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from clonos_py.dsl.runs import JobHandle

WAIT_S_MAX = 120.0
"""Only a condition that never becomes true takes so long: a busy machine may stall for several seconds."""

SOON_S = 90.0
"""An answer within this time did not wait for anything: idle machines need a second, the failures that tests look for
take minutes."""


def attempts(shown: Callable[[], object] = str, every_s: float = 0.02) -> Iterator[None]:
    """Yields again and again, until the caller ends its loop.

    Args:
        shown: What the failure shows.
        every_s: Seconds between two attempts.

    Raises:
        AssertionError: The caller has not ended its loop within ``WAIT_S_MAX``.
    """
    until_s = time.monotonic() + WAIT_S_MAX
    while time.monotonic() < until_s:
        yield
        time.sleep(every_s)
    raise AssertionError(f"not true within {WAIT_S_MAX:.0f} s: {shown()}")


def wait_until(condition: Callable[[], object], shown: Callable[[], object] = str, every_s: float = 0.02) -> None:
    """Returns when the condition is true; see :func:`attempts`."""
    for _ in attempts(shown, every_s):
        if condition():
            return


def wait_while_running(run: JobHandle, condition: Callable[[], object], shown: Callable[[], object] = str) -> None:
    """Returns when the condition is true; the run may not end before."""
    for _ in attempts(shown, every_s=0):
        if condition():
            return
        assert not run.wait(0.05), "the run has ended"
