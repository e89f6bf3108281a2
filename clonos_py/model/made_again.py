"""Makes row classes and cached functions in a process that does not have the user's module (P8).

``plan/class_pickling.py`` takes them apart; the parts come with a job.
"""

from __future__ import annotations

import functools
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import msgspec

from clonos_py.model.record import Record


class Field(NamedTuple):
    """A field that a class itself declares. ``default`` and ``factory`` are msgspec.NODEFAULT where it has none."""

    annotation: Any
    default: Any
    factory: Any
    column: str


def row_class(
    name: str,
    bases: tuple[type, ...],
    fields: Mapping[str, Field],
    namespace: Mapping[str, Any],
    options: Mapping[str, Any],
) -> type[Record]:
    """The class without its methods. ``namespace``: what has to be there when it is created; ``options``: those of the
    class, such as ``kw_only``."""
    body: dict[str, Any] = {**namespace, "__annotations__": {name: field.annotation for name, field in fields.items()}}
    for field_name, (_, default, factory, column) in fields.items():
        if factory is not msgspec.NODEFAULT:
            body[field_name] = msgspec.field(default_factory=factory, name=column)
        elif default is not msgspec.NODEFAULT or column != field_name:
            body[field_name] = msgspec.field(default=default, name=column)
    found = types.new_class(name, bases, dict(options), lambda target: target.update(body))
    return typing.cast("type[Record]", found)


def fill_class(cls: type[Record], attributes: Mapping[str, Any]) -> None:
    """Adds methods and constants, which may refer to the class itself."""
    for name, value in attributes.items():
        setattr(cls, name, value)


def cached(parameters: Mapping[str, Any]) -> Any:
    """A function with the cache of ``functools.lru_cache``. ``fill_cached`` gives it its function, which may refer to
    it."""
    functions: list[Callable[..., Any]] = []

    def call(*arguments: Any, **named: Any) -> Any:
        return functions[0](*arguments, **named)

    call.functions = functions  # type: ignore[attr-defined]
    return functools.lru_cache(**parameters)(call)


def fill_cached(made: Any, function: Callable[..., Any]) -> None:
    made.__wrapped__.functions.append(function)
    functools.update_wrapper(made, function)
