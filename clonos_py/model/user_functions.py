"""Properties of a user's function: the function inside partials, and whether it is declared deterministic."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])

_DETERMINISTIC = "clonos_deterministic"


def deterministic(function: F) -> F:
    """Declares that a function of rows depends only on its arguments, returns the same for the same ones, and has no
    side effects. With ``spill = regenerate`` it is called again for rows that it was called for before."""
    setattr(function, _DETERMINISTIC, True)
    return function


def is_deterministic(function: Callable[..., Any]) -> bool:
    """Whether the function was declared deterministic."""
    return any(getattr(found, _DETERMINISTIC, False) for found in (function, underlying(function)))


def underlying(function: Callable[..., Any]) -> Any:
    """The function inside partials, wrappers such as that of ``functools.cache``, and callable objects."""
    while isinstance(function, functools.partial):
        function = function.func
    if inspect.isfunction(function) or inspect.ismethod(function) or inspect.isbuiltin(function):
        return function
    if callable(wrapped := getattr(function, "__wrapped__", None)):
        return underlying(wrapped)
    return getattr(type(function), "__call__", function)  # noqa: B004 - what is needed is the method itself
