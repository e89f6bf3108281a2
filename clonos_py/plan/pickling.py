"""Pickles a job for other processes: one cloudpickle, with all that users define by value (P8). Checks before anything
starts that this is possible.

The nodes of a cluster have this package and its dependencies, but not the user's files. So every module of the user is
pickled by value, as lambdas are, and so is ``__main__``: the script that was started, or a notebook.
"""

from __future__ import annotations

import inspect
import pickle
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from functools import partial
from types import CodeType, ModuleType
from typing import Any

import cloudpickle  # type: ignore[import-untyped]

from clonos_py.model.errors import ClonosError, GraphError, one_line
from clonos_py.model.places import user_modules
from clonos_py.plan.class_pickling import dumps

_DEEPEST = 8
_SCRIPT = "__main__"
"""cloudpickle has it by value in any case."""


def pack(thing: Any) -> bytes:
    """Pickles a plan or a part of one. Raises GraphError if it cannot be pickled. ``check_portable`` names more."""
    with _by_value(user_modules()) as names:
        try:
            return dumps(thing, names)
        except (pickle.PicklingError, TypeError, AttributeError, ValueError, RecursionError) as error:
            raise GraphError(
                f"the job cannot be sent to other processes: {error}; create clients, locks and open files inside a "
                "service or a function, not outside of it"
            ) from error


def check_portable(factory: Any, name: str, where: str, *, leaves: bool) -> None:
    """Raises GraphError naming the operator and, if it is found, the value that cannot be pickled.

    ``leaves``: the job runs in other processes than this one, so that the user's modules go with it. An error of the
    engine that an object raises while it is pickled, such as that a file is missing, is raised again with the name of
    the operator.
    """
    with _by_value(user_modules() if leaves else []) as names:
        error = _refusal(factory, names)
        if isinstance(error, ClonosError):
            raise type(error)(f"{where}: {name}: {error}") from error
        if error is not None:
            path, value = _culprit(factory, names)
            found = f"{'.'.join(path)} ({type(value).__name__})" if path else type(value).__name__
            raise GraphError(
                f"{where}: {name}: it cannot be sent to a task because of {found}: {one_line(error)}; create such "
                "things inside the function, or declare a @service"
            )


@contextmanager
def _by_value(modules: list[ModuleType]) -> Iterator[Collection[str]]:
    """Within the block cloudpickle has these modules by value. Gives their names, and that of the script."""
    registered = set(cloudpickle.list_registry_pickle_by_value())
    added = [module for module in modules if module.__name__ not in registered | {_SCRIPT}]
    for module in added:
        cloudpickle.register_pickle_by_value(module)
    try:
        yield {_SCRIPT, *(module.__name__ for module in modules)}
    finally:
        for module in added:
            cloudpickle.unregister_pickle_by_value(module)


def _refusal(value: Any, modules: Collection[str]) -> Exception | None:
    try:
        dumps(value, modules)
    except Exception as error:  # noqa: BLE001 - objects raise anything when asked for their state
        return error
    return None


def _culprit(value: Any, modules: Collection[str]) -> tuple[list[str], Any]:
    """The innermost part that cannot be pickled by itself, and the names that lead to it."""
    path: list[str] = []
    seen: list[Any] = []
    while len(seen) < _DEEPEST:
        seen.append(value)
        for name, part in _parts(value):
            if not any(part is known for known in seen) and _refusal(part, modules) is not None:
                path += [name] * (name != "")
                value = part
                break
        else:
            break
    return path, value


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    """The parts of an object, with names that its user will recognise."""
    if isinstance(value, partial):
        yield from (("", part) for part in (value.func, *value.args, *value.keywords.values()))
    elif inspect.ismethod(value):
        yield "self", value.__self__
    elif inspect.isfunction(value):
        yield from inspect.getclosurevars(value).nonlocals.items()
        used = _names(value.__code__)
        yield from ((name, part) for name, part in value.__globals__.items() if name in used)
        yield from ((f"default {n}", part) for n, part in enumerate(value.__defaults__ or ()))
        yield from (value.__kwdefaults__ or {}).items()
    elif isinstance(value, tuple | list | set | frozenset):
        yield from ((f"[{n}]", part) for n, part in enumerate(value))
    elif isinstance(value, dict):
        yield from ((str(key), part) for key, part in value.items())
    elif isinstance(value, property):
        yield from (("", part) for part in (value.fget, value.fset, value.fdel))
    elif isinstance(value, type):
        yield from ((name, part) for name, part in vars(value).items() if not inspect.isdatadescriptor(part))
        yield from ((name, part) for name, part in vars(value).items() if isinstance(part, property))
        yield from (("", base) for base in value.__bases__)
    elif hasattr(value, "__wrapped__"):
        yield "", value.__wrapped__
    elif isinstance(value, staticmethod | classmethod):
        yield "", value.__func__
    elif not isinstance(value, pickle.PickleBuffer):
        yield "", type(value)
        yield from getattr(value, "__dict__", {}).items()


def _names(code: CodeType) -> set[str]:
    """The names of globals that a function or a function within it may use."""
    inner = (_names(constant) for constant in code.co_consts if isinstance(constant, CodeType))
    return set(code.co_names).union(*inner)
