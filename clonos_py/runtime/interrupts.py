"""Handling of Ctrl-C and SIGTERM in the main thread.

``interrupts`` distinguishes Ctrl-C from a KeyboardInterrupt that a user's function raises. ``held_back`` delays Ctrl-C
while a library runs that must not be interrupted half-way. A command handles SIGTERM in the same places as Ctrl-C once
it has called ``end_in_order``; the two differ in the exit code only.

Python handles a signal between two instructions. One that comes behind the last instruction before a call that waits,
such as ``sleep``, or that the system gives to another thread, would be handled when the call returns. So a thread sends
it to the main thread again, which interrupts the call."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

from clonos_py.model.errors import Interrupted, Terminated

Handler = Callable[[int, FrameType | None], object]


def on_termination(number: int, frame: FrameType | None) -> None:
    """The handler of SIGTERM in a command."""
    raise Terminated


_OURS: dict[signal.Signals, Handler] = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: on_termination}
"""The handlers that raise KeyboardInterrupt."""


def end_in_order() -> None:
    """Lets SIGTERM interrupt the main thread, as Ctrl-C does."""
    signal.signal(signal.SIGTERM, on_termination)


def _raised_for(number: int) -> KeyboardInterrupt:
    return Terminated() if number == signal.SIGTERM else Interrupted()


class Interrupts:
    """Whether a signal has asked the run to stop. The exception alone is not enough: a user's function may catch it."""

    def __init__(self) -> None:
        self._came: int | None = None

    def check(self) -> None:
        """Raises Interrupted or Terminated if a signal has come."""
        if self._came is not None:
            raise _raised_for(self._came)

    @property
    def came(self) -> bool:
        return self._came is not None

    def take(self, number: int, frame: FrameType | None) -> None:
        """The handler of the signals."""
        self._came = number
        raise _raised_for(number)


@contextmanager
def interrupts() -> Iterator[Interrupts]:
    """Handles the signals that would raise KeyboardInterrupt. In other threads than the main one there are none."""
    found = Interrupts()
    with _handled_by(found.take) as taken, _sent_again(taken, lambda: found.came):
        yield found


@contextmanager
def held_back() -> Iterator[None]:
    """Delays KeyboardInterrupt to the end of the block, if a signal would raise it inside."""
    came: list[int] = []
    with _handled_by(lambda number, frame: came.append(number)):
        yield
    if came:
        raise _raised_for(came[-1])


@contextmanager
def _handled_by(handler: Handler) -> Iterator[Sequence[signal.Signals]]:
    """Sets ``handler`` for the signals that would raise KeyboardInterrupt, which they do in the main thread only. Gives
    these signals."""
    taken: list[signal.Signals] = []
    if threading.current_thread() is threading.main_thread():
        taken = [number for number, ours in _OURS.items() if signal.getsignal(number) is ours]
    for number in taken:
        signal.signal(number, handler)
    try:
        yield taken
    finally:
        for number in taken:
            signal.signal(number, _OURS[number])


_AGAIN_S = 0.1


@contextmanager
def _sent_again(numbers: Sequence[signal.Signals], handled: Callable[[], bool]) -> Iterator[None]:
    """Sends these signals to this thread, the main one, again and again after they have come, until they are
    ``handled``. Python tells of each by a pipe, at once and in whatever thread it comes."""
    former = signal.set_wakeup_fd(-1) if numbers else -1
    if former != -1:
        signal.set_wakeup_fd(former)  # an event loop of the user reads it
    if former != -1 or not numbers:
        yield
        return
    main, ended = threading.get_ident(), threading.Event()
    reading, writing = os.pipe()
    os.set_blocking(writing, False)

    def send_again() -> None:
        while not ended.is_set():
            for number in os.read(reading, 1):
                if number in numbers and not ended.wait(_AGAIN_S) and not handled():
                    signal.pthread_kill(main, number)

    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    thread = threading.Thread(target=send_again, name="signals", daemon=True)
    thread.start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(-1)
        ended.set()
        os.write(writing, b"\0")
        thread.join()
        os.close(reading)
        os.close(writing)
