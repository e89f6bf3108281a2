"""Finds the operator and the call of a user's function that a thread executes, by reading the thread's stack.

Reading the stack costs nothing while rows are processed. But a process that is killed leaves no stack. So the name of
the running operator is also written to a note, once per batch. The driver may place the note in memory that outlives
the process.
"""

from __future__ import annotations

from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any, NamedTuple, TypeVar

from clonos_py.model.places import is_users, place_at_work

LABEL_BYTES = 64


class Note:
    """``content`` holds the label of the operator that is running."""

    def __init__(self) -> None:
        self.content: Any = bytearray(LABEL_BYTES)


NOTE = Note()
"""The note of this process."""

F = TypeVar("F", bound=Callable[..., Any])

_operator_runners: set[CodeType] = set()


def label(operator: str) -> bytes:
    """An operator's name, cut or padded to the length of the note."""
    return operator.encode()[:LABEL_BYTES].ljust(LABEL_BYTES, b"\0")


class Work(NamedTuple):
    """A call of a user's function that has not returned. ``call``: its stack frame, which differs for each call."""

    operator: str
    place: str
    call: FrameType


def runs_operators(function: F) -> F:
    """Marks a function that calls operators. Its local variable ``stage`` holds the stage of the running operator."""
    _operator_runners.add(function.__code__)
    return function


def at_work(frame: FrameType | None) -> Work | None:
    """The operator and the user's call in this stack; None if no user's function is running."""
    innermost, call = frame, None
    while frame is not None:
        if frame.f_code in _operator_runners:
            place = place_at_work(innermost)
            return Work(frame.f_locals["stage"].name, place, call) if call is not None else None
        if is_users(frame.f_code.co_filename):
            call = frame
        frame = frame.f_back
    return None
