"""The target of print sinks: this process's standard output or, in a worker, the terminal of the run.

A worker's standard output is not shown. So its driver installs another ``Terminal`` before operators are opened, which
carries lines to the process that the user watches.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from typing import Protocol

from clonos_py.model.errors import SinkError

_CHARACTERS_MAX = 1 << 20
"""The limit of characters that wait to be carried; a sink that writes faster blocks."""
_PAUSE_S = 0.02


class Terminal(Protocol):
    """Takes whole lines."""

    def write(self, lines: str) -> None:
        """Accepts lines, each with its line feed. May block until there is room."""
        ...

    def flush(self) -> None:
        """Blocks until all lines are safe from the death of this process. Raises SinkError."""
        ...


class StandardOutput:
    """The terminal of this process."""

    def write(self, lines: str) -> None:
        sys.stdout.write(lines)
        sys.stdout.flush()

    def flush(self) -> None:
        """Does nothing: ``write`` flushes."""


class CarriedLines:
    """Carries lines away in a thread, in order; lines that gather meanwhile form the next piece."""

    def __init__(self, carry: Callable[[str], bool]) -> None:
        """``carry`` returns whether it accepted the lines; if not, they are offered again after a pause."""
        self._carry = carry
        self._changed = threading.Condition()
        self._waiting = ""
        self._under_way = False
        self._carrier: threading.Thread | None = None
        self._problem: Exception | None = None

    def write(self, lines: str) -> None:
        with self._changed:
            self._wait_until(lambda: len(self._waiting) < _CHARACTERS_MAX)
            self._waiting += lines
            if self._carrier is None:
                self._carrier = threading.Thread(target=self._run, name="printed lines", daemon=True)
                self._carrier.start()
            self._changed.notify_all()

    def offer(self, lines: str) -> bool:
        """Accepts lines if there is room for them now. Returns whether it did."""
        with self._changed:
            if self._problem is not None or len(self._waiting) >= _CHARACTERS_MAX:
                return False
            self.write(lines)
            return True

    def flush(self) -> None:
        with self._changed:
            self._wait_until(lambda: not self._waiting and not self._under_way)

    def _wait_until(self, is_done: Callable[[], bool]) -> None:
        self._changed.wait_for(lambda: self._problem is not None or is_done())
        if self._problem is not None:
            raise SinkError(f"printed lines cannot be carried to the terminal of the run: {self._problem}")

    def _run(self) -> None:
        while self._problem is None:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting)
                lines, self._waiting, self._under_way = self._waiting, "", True
                self._changed.notify_all()
            problem = self._carried(lines)
            with self._changed:
                self._under_way, self._problem = False, problem
                self._changed.notify_all()

    def _carried(self, lines: str) -> Exception | None:
        try:
            while not self._carry(lines):
                time.sleep(_PAUSE_S)
        except Exception as problem:  # noqa: BLE001 - any error is raised in the sink that waits
            return problem
        return None


class _Place:
    """The terminal of this process."""

    terminal: Terminal = StandardOutput()


def terminal() -> Terminal:
    """The terminal of the print sinks of this process."""
    return _Place.terminal


def print_on(terminal: Terminal) -> None:
    """Sets the terminal of all print sinks in this process."""
    _Place.terminal = terminal
