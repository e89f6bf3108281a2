"""Work that is not urgent: a standby loads a checkpoint, and running tasks go first."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

T = TypeVar("T")


class LowPriority(Protocol):
    """Does work when no other work needs the processor."""

    def do(self, work: Callable[[], T]) -> T:
        """Does ``work`` and waits for it. Returns what it returns, and raises what it raises."""
        ...


class AtOnce:
    """The twin without threads and priorities: does the work at once."""

    def do(self, work: Callable[[], T]) -> T:
        return work()
