"""The signature of a user's function: its row type, whether it takes ``ctx``, its return type (P1, P2, P5)."""

from __future__ import annotations

import inspect
import typing
from collections import abc
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from clonos_py.model.errors import GraphError
from clonos_py.model.record import Record
from clonos_py.model.user_functions import underlying

_MANY = (
    abc.Iterator, abc.Iterable, abc.Generator, abc.Sequence, list, tuple, abc.AsyncIterator, abc.AsyncGenerator
)  # fmt: skip
_ANY_NUMBER = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
_FIX = "annotate what it returns with a Record class, or give returns="

Shape = type[Record] | pa.Schema
"""A schema, given by a Record class or as a pyarrow schema."""


@dataclass(frozen=True)
class Signature:
    """``arguments``: the annotations of the parameters without ``ctx``; ``result``: the return annotation; None where
    there is none."""

    name: str
    wants_ctx: bool
    arguments: tuple[Any, ...]
    result: Any
    asynchronous: bool = False

    @property
    def row(self) -> Any:
        """The annotation of the first parameter."""
        return self.arguments[0]


def signature_of(
    function: Callable[..., Any],
    names: Mapping[str, Any],
    async_allowed: bool = False,
    takes: Sequence[str] = ("row",),
    spelled: str = "a row",
) -> Signature:
    """Reads a function's parameters and annotations. ``names`` helps to resolve annotations with local classes.

    Raises GraphError if the function does not take what ``takes`` names, by default one row, and, optionally, ``ctx``.
    ``async_allowed``: it may be asynchronous. ``spelled``: what it takes, for errors.
    """
    if not callable(function):
        raise GraphError(f"{function!r} is not a function of {spelled}: give one, such as a def or a lambda")
    plain = underlying(function)
    named = function if isinstance(function, type) else plain
    name = getattr(named, "__qualname__", repr(plain)).replace("<locals>.", "")
    asynchronous = inspect.iscoroutinefunction(plain) or inspect.isasyncgenfunction(plain)
    if asynchronous and not async_allowed:
        raise GraphError(f"{name}: it takes a plain function; `async def` is for map, flat_map, filter and lookup")
    parameters = _parameters(function, name)
    given = [p for p in parameters if p.name != "ctx"]
    required = [p for p in given[len(takes) :] if p.default is p.empty and p.kind not in _ANY_NUMBER]
    if (len(given) < len(takes) and not any(p.kind is p.VAR_POSITIONAL for p in given)) or required:
        raise GraphError(f"{name}: it takes {spelled} and, if it wants, `ctx`; it has {len(parameters)} parameters")
    hints = _hints(plain, name, names)
    arguments = tuple(hints.get(p.name) for p in (*given, *given[-1:] * len(takes))[: len(takes)])
    return Signature(name, len(given) < len(parameters), arguments, hints.get("return"), asynchronous)


def returned(signature: Signature, returns: Shape | None, many: bool) -> Shape:
    """The shape of a function's results; of one element where it returns ``many``. Raises GraphError if neither the
    annotation nor ``returns`` gives it."""
    if returns is not None:
        return _shape(returns, f"returns={returns!r}")
    result = signature.result
    if result is None:
        raise GraphError(f"{signature.name} does not say what it returns: {_FIX}")
    origin = typing.get_origin(result)
    if many:
        if origin not in _MANY:
            raise GraphError(f"{signature.name} returns {_spelled(result)}: annotate Iterator[R], or give returns=R")
        result = typing.get_args(result)[0]
    elif origin in _MANY:
        raise GraphError(f"{signature.name} returns {_spelled(result)}, any number of rows: use flat_map, not map")
    return _shape(result, f"{signature.name} returns {_spelled(result)}")


def record_of(shape: Shape) -> type[Record] | None:
    return None if isinstance(shape, pa.Schema) else shape


def is_record(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, Record)


def _shape(found: Any, subject: str) -> Shape:
    if not isinstance(found, pa.Schema) and not is_record(found):
        raise GraphError(f"{subject}, which is not a Record class: {_FIX}")
    return typing.cast("Shape", found)


def _parameters(function: Callable[..., Any], name: str) -> list[inspect.Parameter]:
    try:
        return list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError) as error:
        raise GraphError(f"{name}: its parameters cannot be read ({error}); wrap it in a lambda or a def") from error


def _hints(function: Any, name: str, names: Mapping[str, Any]) -> dict[str, Any]:
    try:
        return typing.get_type_hints(function, localns=dict(names))
    except NameError as error:
        raise GraphError(f"{name}: {error}; its annotations must be importable where it is defined") from error
    except TypeError:
        return {}


def _spelled(annotation: Any) -> str:
    return annotation.__name__ if isinstance(annotation, type) else str(annotation).replace("typing.", "")
