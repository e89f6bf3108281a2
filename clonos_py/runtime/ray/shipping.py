"""Pickles a job for other processes: one cloudpickle, with the user's modules by value (P8).

The nodes of a cluster have this package and its dependencies, but not the user's files. So every module of the user is
pickled by value, as lambdas are. The script that was started is always pickled by value.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import cloudpickle  # type: ignore[import-untyped]

from clonos_py.model.errors import GraphError
from clonos_py.runtime.ray import class_pickling
from clonos_py.runtime.user_code import user_modules


def pack(thing: Any) -> bytes:
    """Pickles a plan or a part of one. Raises GraphError that names what cannot be pickled."""
    modules = [module for module in user_modules() if module.__name__ != "__main__"]
    with _by_value(modules):
        try:
            packed = class_pickling.dumps(thing, {module.__name__ for module in modules})
        except (pickle.PicklingError, TypeError, AttributeError, ValueError, RecursionError) as error:
            raise GraphError(
                f"the job cannot be sent to other processes: {error}; create clients, locks and open files inside a "
                "service or a function, not outside of it"
            ) from error
    return packed


def unpack(packed: bytes) -> Any:
    """The inverse of ``pack``. It only gets bytes that came through Ray with the actor, never bytes of a socket."""
    return cloudpickle.loads(packed)


@contextmanager
def _by_value(modules: list[ModuleType]) -> Iterator[None]:
    registered = set(cloudpickle.list_registry_pickle_by_value())
    added = [module for module in modules if module.__name__ not in registered]
    for module in added:
        cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        for module in added:
            cloudpickle.unregister_pickle_by_value(module)
