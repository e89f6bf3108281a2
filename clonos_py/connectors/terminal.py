"""Where the lines of a print sink go: this process's standard output, or, from a worker, the terminal of the run.

A worker's standard output is not shown. So its driver puts another ``Terminal`` in place before operators are
opened, one that carries lines to the process that the user looks at.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from typing import Protocol

from clonos_py.model.errors import SinkError

_CHARACTERS_MAX = 1 << 20
"""So much may wait to be carried; a sink that writes faster waits."""
_PAUSE_S = 0.02


class Terminal(Protocol):
    """Takes whole lines."""

    def write(self, lines: str) -> None:
        """Takes lines, each with its line feed. May wait until there is room for them."""
        ...

    def flush(self) -> None:
        """Waits until all lines are where the death of this process cannot undo them. Raises SinkError."""
        ...


class StandardOutput:
    """The terminal of this process."""

    def write(self, lines: str) -> None:
        sys.stdout.write(lines)
        sys.stdout.flush()

    def flush(self) -> None:
        """Nothing waits."""


class CarriedLines:
    """Lines in the order written, carried away by a thread: as one piece, what has gathered during the last trip."""

    def __init__(self, carry: Callable[[str], bool]) -> None:
        """``carry`` says whether it could take the lines; if not, they are offered again after a pause."""
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

    def flush(self) -> None:
        with self._changed:
            self._wait_until(lambda: not self._waiting and not self._under_way)

    def _wait_until(self, come: Callable[[], bool]) -> None:
        self._changed.wait_for(lambda: self._problem is not None or come())
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
        except Exception as problem:  # noqa: BLE001 - whatever it is, the sink that waits must know
            return problem
        return None


class _Place:
    """What is in place in this process."""

    terminal: Terminal = StandardOutput()


def terminal() -> Terminal:
    """The terminal of the print sinks of this process."""
    return _Place.terminal


def print_on(terminal: Terminal) -> None:
    """Puts another terminal in place, for all print sinks of this process."""
    _Place.terminal = terminal
