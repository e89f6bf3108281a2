"""Pickles what users define by value, with what cloudpickle loses.

- cloudpickle creates an empty class and then fills it, which leaves a Record without fields. Here the class is created
  from its fields. Methods and constants are added afterwards, so that they can refer to the class itself.
- The annotations of all classes are resolved before pickling: the receiver has no module to look up their names in.
- A function with a cache and a NewType are pickled by the name of their module, which the receiver has not. Here they
  are made again. Anything else of that kind is refused.
- A file that is open for reading is refused, too: cloudpickle would send what it contains.
"""

from __future__ import annotations

import contextlib
import functools
import io
import pickle
import sys
import types
import typing
from collections.abc import Collection
from typing import Any

import cloudpickle  # type: ignore[import-untyped]
import msgspec

from clonos_py.model.made_again import Field, cached, fill_cached, fill_class, row_class
from clonos_py.model.record import Record, field_types

_AT_CREATION = ("__module__", "__qualname__", "__doc__", "__post_init__")
_OF_THE_TYPE = frozenset({"__annotations__", "__slots__", "__dict__", "__weakref__", "__match_args__"})
"""What the creation of a class adds."""
_Cached = type(functools.cache(len))


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
            parts = (obj.__name__, obj.__bases__, _fields(obj), _at_creation(obj), _options(obj))
            return row_class, parts, _attributes(obj), None, None, fill_class
        for name in ("stdout", "stderr"):
            if obj is getattr(sys, name):
                return getattr, (sys, name)
        if isinstance(obj, io.TextIOWrapper):
            raise pickle.PicklingError(f"cannot pickle the open file {obj.name!r}")
        reduced = super().reducer_override(obj)
        if isinstance(obj, type) and isinstance(reduced, tuple) and len(reduced) > 2:
            _resolve_annotations(obj, reduced)
        if reduced is NotImplemented and self._named_in_a_module(obj):
            return _made_again(obj)
        return reduced

    def _by_value(self, cls: type[Record]) -> bool:
        held: Any = sys.modules.get(cls.__module__)
        for name in cls.__qualname__.split("."):
            held = getattr(held, name, None)
        return held is not cls or cls.__module__ in self._modules

    def _named_in_a_module(self, obj: Any) -> bool:
        """Whether this is no instance of a class, but something that has a name of its own in one of the modules."""
        module, name = getattr(obj, "__module__", None), getattr(obj, "__name__", None)
        if type(obj) in self.dispatch_table or not (isinstance(module, str) and isinstance(name, str)):
            return False
        return module in self._modules or module not in sys.modules


def _made_again(obj: Any) -> Any:
    """The reduction of an object that pickles itself by name. Raises PicklingError for one of an unknown kind."""
    if isinstance(obj, _Cached):
        return cached, (obj.cache_parameters(),), obj.__wrapped__, None, None, fill_cached
    if isinstance(obj, typing.NewType):
        return typing.NewType, (obj.__name__, obj.__supertype__)
    if isinstance(obj.__reduce_ex__(pickle.HIGHEST_PROTOCOL), str):
        raise pickle.PicklingError(f"cannot pickle {obj.__name__!r}: other processes do not have {obj.__module__}")
    return NotImplemented


def _resolve_annotations(cls: type, reduced: tuple[Any, ...]) -> None:
    """Resolves annotations in cloudpickle's reduction of a class: (make, arguments, (attributes, slots)). They stay
    text if a name is unknown."""
    attributes, _ = reduced[2]
    own = attributes.get("__annotations__", {})
    if any(isinstance(annotation, str) for annotation in own.values()):
        with contextlib.suppress(NameError):
            hints = typing.get_type_hints(cls, include_extras=True)
            attributes["__annotations__"] = {name: hints[name] for name in own}


def _fields(cls: type[Record]) -> dict[str, Field]:
    """The fields that the class itself declares, by name."""
    hints = field_types(cls)
    return {
        field.name: Field(hints[field.name], field.default, field.default_factory, field.encode_name)
        for field in msgspec.structs.fields(cls)
        if field.name in vars(cls).get("__annotations__", {})
    }


def _options(cls: type[Record]) -> dict[str, Any]:
    """The options of the class statement, such as ``order``, in which it differs from Record."""
    config, plain = cls.__struct_config__, Record.__struct_config__
    names = [name for name in dir(config) if not name.startswith("_")]
    options = {name: getattr(config, name) for name in names if getattr(config, name) != getattr(plain, name)}
    by_keyword = set(_fields(cls)).difference(cls.__match_args__)
    return {**options, "kw_only": True} if by_keyword else options


def _at_creation(cls: type[Record]) -> dict[str, Any]:
    return {name: vars(cls)[name] for name in _AT_CREATION if name in vars(cls)}


def _attributes(cls: type[Record]) -> dict[str, Any]:
    return {
        name: value
        for name, value in vars(cls).items()
        if name not in _AT_CREATION
        and name not in _OF_THE_TYPE
        and not isinstance(value, types.MemberDescriptorType | types.GetSetDescriptorType)
    }
