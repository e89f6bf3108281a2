"""Pickles classes by value, with what cloudpickle loses: the fields of row classes and the meaning of annotations.

cloudpickle creates an empty class and then fills it, which leaves a Record without fields. Here the class is created
from its fields. Functions are added afterwards, so that they can refer to the class itself. The annotations of all
classes are resolved before pickling, because the receiver has no module to look up their names in.
"""

from __future__ import annotations

import contextlib
import io
import sys
import types
import typing
from collections.abc import Collection
from typing import Any

import cloudpickle  # type: ignore[import-untyped]
import msgspec

from clonos_py.model.record import Record, field_types

_AT_CREATION = ("__module__", "__qualname__", "__doc__", "__post_init__")
_FUNCTIONS = (types.FunctionType, classmethod, staticmethod, property)


def dumps(thing: Any, modules: Collection[str]) -> bytes:
    """Like ``cloudpickle.dumps``, with row classes by value if they are in ``modules`` or in no module."""
    buffer = io.BytesIO()
    _Pickler(buffer, modules).dump(thing)
    return buffer.getvalue()


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    def __init__(self, buffer: io.BytesIO, modules: Collection[str]) -> None:
        super().__init__(buffer)
        self._modules = modules

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, type) and issubclass(obj, Record) and self._by_value(obj):
            return (
                _made,
                (obj.__name__, obj.__bases__, _fields(obj), _at_creation(obj)),
                _attributes(obj),
                None,
                None,
                _fill,
            )
        reduced = super().reducer_override(obj)
        if isinstance(obj, type) and isinstance(reduced, tuple) and len(reduced) > 2:
            _resolve_annotations(obj, reduced)
        return reduced

    def _by_value(self, cls: type[Record]) -> bool:
        held: Any = sys.modules.get(cls.__module__)
        for name in cls.__qualname__.split("."):
            held = getattr(held, name, None)
        return held is not cls or cls.__module__ in self._modules


def _resolve_annotations(cls: type, reduced: tuple[Any, ...]) -> None:
    """Resolves annotations in cloudpickle's reduction of a class: (make, arguments, (attributes, slots)). They stay
    text if a name is unknown."""
    attributes, _ = reduced[2]
    own = attributes.get("__annotations__", {})
    if any(isinstance(annotation, str) for annotation in own.values()):
        with contextlib.suppress(NameError):
            hints = typing.get_type_hints(cls, include_extras=True)
            attributes["__annotations__"] = {name: hints[name] for name in own}


def _fields(cls: type[Record]) -> dict[str, tuple[Any, Any, Any, str]]:
    """The fields that the class itself adds, as (annotation, default, default factory, column)."""
    inherited = {name for base in cls.__bases__ for name in getattr(base, "__struct_fields__", ())}
    hints = field_types(cls)
    return {
        field.name: (hints[field.name], field.default, field.default_factory, field.encode_name)
        for field in msgspec.structs.fields(cls)
        if field.name not in inherited
    }


def _at_creation(cls: type[Record]) -> dict[str, Any]:
    return {name: vars(cls)[name] for name in _AT_CREATION if name in vars(cls)}


def _attributes(cls: type[Record]) -> dict[str, Any]:
    return {
        name: value for name, value in vars(cls).items() if isinstance(value, _FUNCTIONS) and name not in _AT_CREATION
    }


def _made(
    name: str, bases: tuple[type, ...], fields: dict[str, tuple[Any, Any, Any, str]], namespace: dict[str, Any]
) -> type[Record]:
    body = {**namespace, "__annotations__": {field: annotation for field, (annotation, *_) in fields.items()}}
    for field, (_, default, factory, column) in fields.items():
        if factory is not msgspec.NODEFAULT:
            body[field] = msgspec.field(default_factory=factory, name=column)
        elif default is not msgspec.NODEFAULT or column != field:
            body[field] = msgspec.field(default=default, name=column)
    made = types.new_class(name, bases, {}, lambda target: target.update(body))
    return typing.cast("type[Record]", made)


def _fill(cls: type[Record], attributes: dict[str, Any]) -> None:
    for name, value in attributes.items():
        setattr(cls, name, value)
