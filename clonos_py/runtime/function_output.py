"""What users' functions print and log in a worker: lines for the terminal of the run.

Ray writes the standard output of a worker to a file of its session, where nobody looks. What the engine and libraries
print by themselves stays there.
"""

from __future__ import annotations

import io
import sys
import threading
from collections.abc import Callable, Iterator
from enum import Enum
from types import FrameType
from typing import NamedTuple, TextIO

from clonos_py.model.ids import Attempt, TaskId
from clonos_py.model.places import is_users
from clonos_py.task.at_work import at_work

_SEPARATOR = "\t"


class LineOrigin(Enum):
    """What has written lines in a worker: a print sink, users' functions, or the engine, which has logged a warning."""

    SINK = "sink"
    FUNCTION = "function"
    ENGINE = "engine"


class WorkerLines(NamedTuple):
    """Lines of functions or of the engine from a process of ``task``; ``attempt``: None if it is a standby."""

    task: TaskId
    lines: str
    origin: LineOrigin
    attempt: Attempt | None = None


class PrintedLine(NamedTuple):
    """A line of a user's function. ``operator`` is empty where it is not known, as in a coroutine."""

    operator: str
    text: str


def printed_lines(taken: str) -> Iterator[PrintedLine]:
    """The lines in what a ``FunctionOutput`` has passed on."""
    for line in taken.split("\n")[:-1]:
        operator, _, text = line.partition(_SEPARATOR)
        yield PrintedLine(operator, text)


class FunctionOutput(io.TextIOBase):
    """A text stream in place of ``sys.stdout`` or ``sys.stderr``. ``take`` gets the whole lines that users' functions
    write, as text of which ``printed_lines`` makes lines again. All text also goes to ``original``."""

    def __init__(self, original: TextIO, take: Callable[[str], None]) -> None:
        self._original, self._take = original, take
        self._begun = threading.local()

    def write(self, text: str) -> int:
        written = self._original.write(text)
        operator = _writer(sys._getframe(1))
        if operator is not None:
            *lines, self._begun.line = (getattr(self._begun, "line", "") + text).split("\n")
            if lines:
                self._take("".join(f"{operator}{_SEPARATOR}{line}\n" for line in lines))
        return written

    def writable(self) -> bool:
        return True

    def flush(self) -> None:
        self._original.flush()

    def fileno(self) -> int:
        return self._original.fileno()

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self._original.encoding


def _writer(frame: FrameType | None) -> str | None:
    """The operator whose function writes; empty if it is not known, None if no user's function does."""
    if (work := at_work(frame)) is not None:
        return work.operator
    while frame is not None:
        if is_users(frame.f_code.co_filename):
            return ""
        frame = frame.f_back
    return None


def install(take: Callable[[str], None]) -> None:
    """Replaces the standard streams of this process."""
    sys.stdout, sys.stderr = FunctionOutput(sys.stdout, take), FunctionOutput(sys.stderr, take)
