"""User-defined services: a generator function opens a client, yields the function to call, and closes the client (P5).

A definition opens no connection. A task opens it on the first call that is not replayed, and closes it when the task
ends. Every process that has imported or unpickled a definition registers it by name, since a function names the
services that it calls only in its body.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, Generic, ParamSpec, TypeVar

from clonos_py.model.errors import UserCodeError

P = ParamSpec("P")
R = TypeVar("R")

_defined: dict[str, ServiceDefinition[..., Any]] = {}


@dataclass(frozen=True)
class ServiceDefinition(Generic[P, R]):
    """The definition that ``@service`` creates from a generator function. ``name`` is its module and qualified name."""

    name: str
    function: Callable[[], Iterator[Callable[P, R]]]

    def open(self) -> AbstractContextManager[Callable[P, R]]:
        """Opens the client. Leaving the context runs the code after the ``yield``."""
        return contextmanager(self.function)()

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return service, (self.function,)


def service(function: Callable[[], Iterator[Callable[P, R]]]) -> ServiceDefinition[P, R]:
    """Declares a service that functions call by ``ctx.call(service, ...)``::

    @service
    def owners() -> Iterator[Callable[[int], str]]:
        with connect(DSN) as database:
            yield lambda auction: database.get(auction)
    """
    definition = ServiceDefinition(f"{function.__module__}.{function.__qualname__}", function)
    _defined[definition.name] = definition
    return definition


def named(operator: str, service: object, reconcile: object) -> tuple[str, str | None]:
    """The names of a service and of the one that knows whether it was called. Raises UserCodeError for what is none."""
    if not isinstance(service, ServiceDefinition):
        raise UserCodeError(f"{operator}: ctx.call takes a function declared with @service")
    if reconcile is None:
        return service.name, None
    if not isinstance(reconcile, ServiceDefinition):
        raise UserCodeError(f"{operator}: reconcile={reconcile!r} is not a function declared with @service")
    return service.name, reconcile.name


def defined(name: str) -> ServiceDefinition[..., Any] | None:
    """The service of this name, if it is registered in this process."""
    return _defined.get(name)
