"""Handling of Ctrl-C in the main thread.

``interrupts`` distinguishes Ctrl-C from a KeyboardInterrupt that a user's function raises. ``held_back`` delays Ctrl-C
while a library runs that must not be interrupted half-way."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from clonos_py.model.errors import Interrupted

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupts:
    """Whether a signal has asked the run to stop. The exception alone is not enough: a user's function may catch it."""

    def __init__(self) -> None:
        self._requested = False

    def check(self) -> None:
        """Raises Interrupted if a signal has come."""
        if self._requested:
            raise Interrupted

    def take(self, number: int, frame: FrameType | None) -> None:
        """The handler of the signals."""
        self._requested = True
        raise Interrupted


@contextmanager
def interrupts() -> Iterator[Interrupts]:
    """Handles the signals that would raise KeyboardInterrupt. In other threads than the main one there are none."""
    found = Interrupts()
    with _handled_by(found.take):
        yield found


@contextmanager
def held_back() -> Iterator[None]:
    """Delays KeyboardInterrupt to the end of the block, if a signal would raise it inside."""
    came: list[int] = []
    with _handled_by(lambda number, frame: came.append(number)):
        yield
    if came:
        raise KeyboardInterrupt


@contextmanager
def _handled_by(handler: Callable[[int, FrameType | None], object]) -> Iterator[None]:
    """Sets ``handler`` for the signals that would raise KeyboardInterrupt, which they do in the main thread only."""
    taken = []
    if threading.current_thread() is threading.main_thread():
        taken = [number for number in _SIGNALS if signal.getsignal(number) is signal.default_int_handler]
    for number in taken:
        signal.signal(number, handler)
    try:
        yield
    finally:
        for number in taken:
            signal.signal(number, signal.default_int_handler)
