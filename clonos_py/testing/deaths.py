"""Simulates the death of a process between any two lines of a connector, by an exception that no code expects.

The connector's ``with`` and ``finally`` blocks still run. So more is cleaned up than after SIGKILL; it corresponds to a
database that rolls back the transactions of a dead client.
"""

from __future__ import annotations

import gc
import sys
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar

import clonos_py.connectors
from clonos_py.model.places import is_users

T = TypeVar("T")

_CONNECTORS = str(Path(clonos_py.connectors.__file__).parent)


class Death(BaseException):
    """Simulates the death of the process."""


def dies_before(line: int | None, action: Callable[[], object]) -> int:
    """Runs ``action`` in another thread up to the given line of a connector, counted from 1, and drops the objects it
    used. Runs it to its end if there is no such line. Returns how many lines were reached."""
    lines_reached = [0]
    try:
        in_thread(lambda: _traced(action, line, lines_reached))
    except Death as death:
        traceback.clear_frames(death.__traceback__)
    gc.collect()
    return lines_reached[0]


def spread(lines: int, most: int) -> list[int]:
    """At most ``most`` line numbers from 1 to ``lines``, evenly spread."""
    count = min(lines, most)
    return [1 + number * lines // count for number in range(count)]


def in_thread(action: Callable[[], T]) -> T:
    """Runs ``action`` in a thread of its own; returns its result or raises its error."""
    given: list[T] = []
    raised: list[BaseException] = []

    def run() -> None:
        try:
            given.append(action())
        except BaseException as problem:  # noqa: BLE001 - raised again in the calling thread
            raised.append(problem)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if raised:
        raise raised[0]
    return given[0]


def _traced(action: Callable[[], object], death_before: int | None, lines_reached: list[int]) -> None:
    def enter(frame: FrameType, event: str, argument: Any) -> Any:
        return step if _is_connector(frame.f_code.co_filename) else None

    def step(frame: FrameType, event: str, argument: Any) -> Any:
        if event == "line":
            lines_reached[0] += 1
            if lines_reached[0] == death_before:
                raise Death
        return step

    before = sys.gettrace()
    sys.settrace(enter)
    try:
        action()
    finally:
        sys.settrace(before)


def _is_connector(file: str) -> bool:
    return is_users(file) or file.startswith(_CONNECTORS)
