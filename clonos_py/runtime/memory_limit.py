"""Watches the memory of this process against the limit of its task, so that it fails alone and says why, before Ray's
or the kernel's killer picks a process of the node.

What counts is memory that only this process has: neither libraries that all processes of a node share, nor files that
are mapped, which the kernel drops when it needs room. Limits of the kernel would not do: they count addresses, of which
allocators reserve far more than they use.
"""

from __future__ import annotations

import mmap
import threading
from collections.abc import Callable
from pathlib import Path

from clonos_py.model.errors import MemoryLimitError
from clonos_py.observe.units import memory_text

_CHECK_S, _CHECK_S_MAX = 0.05, 1.0
"""The least and the most time between two looks. In the least one a process that fills memory takes some tens of MB."""
_GROWTH_BYTES_PER_S = 4 << 30
"""No process fills memory faster: the kernel clears each page first."""
_STATM = Path("/proc/self/statm")


def private_bytes() -> int:
    """The memory that only this process has; 0 where the system does not tell."""
    try:
        _, resident, shared, *_ = map(int, _STATM.read_bytes().split())
    except OSError:
        return 0
    return (resident - shared) * mmap.PAGESIZE


class MemoryWatch:
    """Watches this process in a thread, from its own start until ``stop``."""

    def __init__(
        self,
        limit_bytes: int,
        exceeded: Callable[[MemoryLimitError], None],
        held_bytes: Callable[[], int] = private_bytes,
    ) -> None:
        """``exceeded`` is called once, in the thread of the watch."""
        self._limit_bytes, self._exceeded, self._held_bytes = limit_bytes, exceeded, held_bytes
        self._stopped = threading.Event()
        threading.Thread(target=self._run, name="watch of memory", daemon=True).start()

    def stop(self) -> None:
        """Ends the watch."""
        self._stopped.set()

    def _run(self) -> None:
        wait_s = _CHECK_S
        while not self._stopped.wait(wait_s):
            if (held_bytes := self._held_bytes()) > self._limit_bytes:
                self._exceeded(_outgrown(held_bytes, self._limit_bytes))
                return
            wait_s = until_next_look_s(held_bytes, self._limit_bytes)


def until_next_look_s(held_bytes: int, limit_bytes: int) -> float:
    """A process cannot reach its limit before: each look wakes a thread, which the task has to let run."""
    return min(max((limit_bytes - held_bytes) / _GROWTH_BYTES_PER_S, _CHECK_S), _CHECK_S_MAX)


def _outgrown(held_bytes: int, limit_bytes: int) -> MemoryLimitError:
    return MemoryLimitError(
        f"its process holds {memory_text(held_bytes)} of memory and may hold {memory_text(limit_bytes)}: give its "
        "operators more with resources(memory=...), run more tasks of them, or have them keep less"
    )
