"""Restores the order of control messages: calls of an actor with several threads may overtake each other."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class InOrder(Generic[T]):
    """Delivers items in the order of their numbers 0, 1, 2, ... Any thread may call it."""

    def __init__(self, deliver: Callable[[T], None]) -> None:
        self._deliver = deliver
        self._lock = threading.Lock()
        self._next = 0
        self._early: dict[int, T] = {}

    def take(self, number: int, item: T) -> None:
        with self._lock:
            self._early[number] = item
            while self._next in self._early:
                self._deliver(self._early.pop(self._next))
                self._next += 1
