"""Checks before anything starts that the objects of a job can be sent to other processes."""

from __future__ import annotations

import inspect
import pickle
from collections.abc import Iterator
from functools import partial
from typing import Any

import cloudpickle  # type: ignore[import-untyped]

from clonos_py.model.errors import ClonosError, GraphError

_DEEPEST = 6


def check_portable(factory: Any, name: str, where: str) -> None:
    """Raises GraphError naming the operator and, if it is found, the value that cannot be pickled.

    An error of the engine that an object raises while it is pickled, such as that a file is missing, is raised again
    with the name of the operator.
    """
    error = _refusal(factory)
    if isinstance(error, ClonosError):
        raise type(error)(f"{where}: {name}: {error}") from error
    if error is not None:
        path, value = _culprit(factory, (), 0)
        found = f"{'.'.join(path)} ({type(value).__name__})" if path else type(value).__name__
        raise GraphError(
            f"{where}: {name}: it cannot be sent to a task because of {found}: {error}; create such things inside the "
            "function, or declare a @service"
        )


def _refusal(value: Any) -> Exception | None:
    try:
        cloudpickle.dumps(value)
    except Exception as error:  # noqa: BLE001 - objects raise anything when asked for their state
        return error
    return None


def _culprit(value: Any, path: tuple[str, ...], depth: int) -> tuple[tuple[str, ...], Any]:
    """The innermost part that cannot be pickled by itself, and the names that lead to it."""
    if depth < _DEEPEST:
        for name, part in _parts(value):
            if _refusal(part) is not None:
                return _culprit(part, (*path, name) if name else path, depth + 1)
    return path, value


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    """The parts of an object, with names that its user will recognise."""
    if isinstance(value, partial):
        yield from (("", part) for part in (value.func, *value.args, *value.keywords.values()))
    elif inspect.ismethod(value):
        yield "self", value.__self__
    elif inspect.isfunction(value):
        used = inspect.getclosurevars(value)
        yield from [*used.nonlocals.items(), *used.globals.items()]
        yield from ((f"default {n}", part) for n, part in enumerate(value.__defaults__ or ()))
    elif isinstance(value, tuple | list):
        yield from ((f"[{n}]", part) for n, part in enumerate(value))
    elif isinstance(value, dict):
        yield from ((str(key), part) for key, part in value.items())
    elif isinstance(value, type):
        yield from ((name, part) for name, part in vars(value).items() if inspect.isfunction(part))
    elif not isinstance(value, pickle.PickleBuffer):
        yield from getattr(value, "__dict__", {}).items()
