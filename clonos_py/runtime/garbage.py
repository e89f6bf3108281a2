"""Objects that a process makes to start, and keeps to its end.

Imports and classes make some 80,000 objects, of which few become garbage. Python's garbage collector looks at them
again and again while they are made: a tenth of the time of ``clonos plan``.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass
class _Process:
    starts: bool = True
    """Whether it has not run a job yet."""


_PROCESS = _Process()


def keep() -> None:
    """Makes the garbage collector skip all objects that there are. It still finds the garbage of later ones."""
    gc.freeze()


@contextmanager
def kept(last: bool = False) -> Iterator[None]:
    """Objects that are made in this block stay: the garbage collector neither runs meanwhile nor looks at them later.

    ``last``: the process has then started. In a block after that one the collector does not run either, but it looks at
    these objects later: a process may run one job after the other, and is not to keep what it had made for each. Where
    the collector is off already, as in a block within a block, it stays off."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        if _PROCESS.starts:
            keep()
            _PROCESS.starts = not last
        gc.enable()
