"""How a job's code travels: one cloudpickle of what runs, with the user's modules by value (P8).

The nodes of a cluster have this package and its dependencies, but not the files beside the job. So every module that
was loaded from anywhere else is pickled by value, as lambdas are.
"""

from __future__ import annotations

import pickle
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import cloudpickle  # type: ignore[import-untyped]

import clonos_py
from clonos_py.model.errors import GraphError
from clonos_py.runtime.ray import class_pickling


def pack(thing: Any) -> bytes:
    """The pickle of a plan or a part of one. Raises GraphError, naming what cannot travel."""
    modules = _modules_of_the_user()
    with _by_value(modules):
        try:
            packed = class_pickling.dumps(thing, {module.__name__ for module in modules})
        except (pickle.PicklingError, TypeError, AttributeError, ValueError, RecursionError) as error:
            raise GraphError(
                f"the job cannot be sent to other processes: {error}; create clients, locks and open files inside a "
                "service or a function, not beside it"
            ) from error
    return packed


def unpack(packed: bytes) -> Any:
    """The other end of ``pack``: only ever given what came with the actor itself, never bytes of a socket."""
    return cloudpickle.loads(packed)


def _modules_of_the_user() -> list[ModuleType]:
    known = [Path(path).resolve() for path in sysconfig.get_paths().values()]
    known.append(Path(clonos_py.__file__).resolve().parent)
    known += [(known[-1] / linked).resolve() for linked in ("operators", "services", "bench")]
    found = []
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if name != "__main__" and file and not any(Path(file).resolve().is_relative_to(path) for path in known):
            found.append(module)
    return found


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
