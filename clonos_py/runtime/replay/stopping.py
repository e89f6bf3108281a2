"""The frames in which a debugger stops: the arguments and variables are what a user wants to see there.

``breakpoint()`` calls pdb, or what ``sys.breakpointhook`` or PYTHONBREAKPOINT names, such as the debugger of an editor.
The next step leads into the user's function. So there is one frame for each kind of function: the body of a generator
or coroutine runs only when it is resumed.
"""

from __future__ import annotations

import inspect
from bdb import BdbQuit
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from clonos_py.model.errors import Interrupted
from clonos_py.model.ids import TaskId
from clonos_py.model.user_functions import underlying


class DebuggerQuit(Interrupted):
    """The user has left the debugger by its command ``quit``, or its input has ended."""


@dataclass(frozen=True)
class Moment:
    """A point of a replay."""

    operator: str
    where: str
    """The line of the user's code that defines the operator."""
    task: TaskId
    row: Any
    """The row, as the user's function gets it; None for a timer."""
    key: Any
    """Its key by column; None if the operator has none."""
    state: Mapping[str, Any] | None
    """The state of its key in a process function; None elsewhere."""
    timer: str | None
    """The name of the timer that fires."""
    time: str
    frame: str

    @property
    def lines(self) -> list[str]:
        """What it is, one thing in a line."""
        shown = {
            "row": None if self.row is None else repr(self.row),
            "timer": self.timer,
            "key": None if self.key is None else repr(self.key),
            "state": None if self.state is None else repr(dict(self.state)),
            "task": str(self.task),
            "frame": self.frame,
            "time": self.time,
        }
        head = f"{self.operator}, {self.where}" if self.where else self.operator
        return [f"operator: {head}", *(f"{name}: {text}" for name, text in shown.items() if text is not None)]


class StopBefore(NamedTuple):
    """A call before which the debugger stops. ``announce`` is called right before."""

    moment: Moment
    announce: Callable[[Moment], None]


def stopped(stop: StopBefore, function: Callable[..., Any], given: tuple[Any, ...], services: Mapping[str, Any]) -> Any:
    """Calls the function with a stop before it. Raises DebuggerQuit, and what the function raises."""
    kind = underlying(function)
    frame: Any = _in_function
    if inspect.isasyncgenfunction(kind):
        frame = _in_async_generator
    elif inspect.iscoroutinefunction(kind):
        frame = _in_coroutine
    elif inspect.isgeneratorfunction(kind):
        frame = _in_generator
    stop.announce(stop.moment)
    return frame(partial(function, *given, **services), **vars(stop.moment))


def before_batch(stop: StopBefore, on_rows: Callable[[Any, int], None], rows: Any, side: int) -> None:
    """As ``stopped``, before an operator gets the batch ``rows``, which has the row that was asked for."""
    stop.announce(stop.moment)
    _in_operator(on_rows, rows, side, **vars(stop.moment))


# The arguments behind the function are the fields of a Moment.


def _in_function(
    function: Callable[[], Any], operator: str, where: str, task: TaskId, row: Any, key: Any, state: Any,
    timer: str | None, time: str, frame: str,
) -> Any:  # fmt: skip
    try:
        breakpoint()
        return function()
    except BdbQuit as error:
        raise DebuggerQuit from error


def _in_generator(
    function: Callable[[], Iterator[Any]], operator: str, where: str, task: TaskId, row: Any, key: Any, state: Any,
    timer: str | None, time: str, frame: str,
) -> Iterator[Any]:  # fmt: skip
    try:
        breakpoint()
        yield from function()
    except BdbQuit as error:
        raise DebuggerQuit from error


async def _in_coroutine(
    function: Callable[[], Coroutine[Any, Any, Any]], operator: str, where: str, task: TaskId, row: Any, key: Any,
    state: Any, timer: str | None, time: str, frame: str,
) -> Any:  # fmt: skip
    try:
        breakpoint()
        return await function()
    except BdbQuit as error:
        raise DebuggerQuit from error


async def _in_async_generator(
    function: Callable[[], AsyncIterator[Any]], operator: str, where: str, task: TaskId, row: Any, key: Any,
    state: Any, timer: str | None, time: str, frame: str,
) -> AsyncIterator[Any]:  # fmt: skip
    try:
        breakpoint()
        async for result in function():
            yield result
    except BdbQuit as error:
        raise DebuggerQuit from error


def _in_operator(
    on_rows: Callable[[Any, int], None], rows: Any, side: int, operator: str, where: str, task: TaskId, row: Any,
    key: Any, state: Any, timer: str | None, time: str, frame: str,
) -> None:  # fmt: skip
    try:
        breakpoint()
        on_rows(rows, side)
    except BdbQuit as error:
        raise DebuggerQuit from error
