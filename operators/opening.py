"""Function objects with a method ``open``: each task has its own copy, opened before its first row.

The object's attributes are its configuration. They are copied for each task, so that tasks share no objects. What
``open`` creates, such as a model or a client, is not part of snapshots. Every attempt of a task opens its own copy; a
standby does so when it starts, so that a replacement has its model before it replays.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from typing import Any, TypeVar

from clonos_py.model.errors import Interrupted, UserCodeError
from clonos_py.model.operators import OperatorContext
from clonos_py.model.places import blamed
from clonos_py.operators.failures import problem_of
from clonos_py.services.open_context import OpenContext

T = TypeVar("T")


def opened(function: T, ctx: OperatorContext) -> T:
    """An opened copy of the function, if it has ``open``; otherwise the function itself. Raises UserCodeError."""
    if not _has(function, "open"):
        return function
    own = copied(function)
    call_open(_innermost(own), ctx)
    return own


def close(function: Any, ctx: OperatorContext) -> None:
    """Closes an opened function, if it also has ``close``. Raises UserCodeError."""
    if _has(function, "open") and _has(function, "close"):
        _called(_innermost(function).close, ctx, "close")


def copied(function: T) -> T:
    """A deep copy of the function. Raises UserCodeError if it cannot be copied."""
    try:
        return copy.deepcopy(function)
    except Exception as error:
        name = type(_innermost(function)).__name__
        raise UserCodeError(f"{name} cannot be copied for each task ({error}); make such things in its open") from error


def call_open(function: Any, ctx: OperatorContext) -> None:
    """Calls ``open``. Wraps any error in a UserCodeError."""
    _called(functools.partial(function.open, OpenContext(ctx)), ctx, "open")


def _called(call: Callable[[], object], ctx: OperatorContext, what: str) -> None:
    try:
        call()
    except Interrupted:
        raise
    except BaseException as error:
        message = f"operator {ctx.operator!r} failed in {what}: {problem_of(error)}"
        raise blamed(message, error, call) from error


def _innermost(function: Any) -> Any:
    """The function inside any ``functools.partial`` objects."""
    while isinstance(function, functools.partial):
        function = function.func
    return function


def _has(function: Any, method: str) -> bool:
    """Whether the function is an object whose class defines the method."""
    return callable(getattr(type(_innermost(function)), method, None))
