"""Work that is not urgent: a standby takes a checkpoint in while the tasks that run go first."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

T = TypeVar("T")


class LowPriority(Protocol):
    """Does work when no other work needs the processor."""

    def do(self, work: Callable[[], T]) -> T:
        """What ``work`` returns; waits for it. Raises what it raises."""
        ...


class AtOnce:
    """The twin without threads and priorities."""

    def do(self, work: Callable[[], T]) -> T:
        return work()
