"""Which operator a thread works for, and which call of a user's function: read off its stack, so that it costs nothing.

Only a process that dies at once leaves no stack to read. So the name of the operator at work stands in a note besides,
which the driver may put where it outlives the process. It is written once for each batch.
"""

from __future__ import annotations

from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any, NamedTuple, TypeVar

from clonos_py.model.places import is_users, place_at_work

LABEL_BYTES = 64


class Note:
    """``content`` holds the label of the operator at work."""

    def __init__(self) -> None:
        self.content: Any = bytearray(LABEL_BYTES)


NOTE = Note()
"""That of this process."""

F = TypeVar("F", bound=Callable[..., Any])

_guards: set[CodeType] = set()


def label(operator: str) -> bytes:
    """An operator's name at the length of the note."""
    return operator.encode()[:LABEL_BYTES].ljust(LABEL_BYTES, b"\0")


class Work(NamedTuple):
    """A call of a user's function that goes on. ``call``: its frame, another one for each call."""

    operator: str
    place: str
    call: FrameType


def guards(function: F) -> F:
    """Declares a function that calls operators: its local variable ``stage`` is the one at work."""
    _guards.add(function.__code__)
    return function


def at_work(frame: FrameType | None) -> Work | None:
    """What a thread with this stack does for an operator; None if no user's function is at work."""
    innermost, call = frame, None
    while frame is not None:
        if frame.f_code in _guards:
            place = place_at_work(innermost)
            return Work(frame.f_locals["stage"].name, place, call) if call is not None else None
        if is_users(frame.f_code.co_filename):
            call = frame
        frame = frame.f_back
    return None
