"""Copies of values that user code may still change, such as a list that a result shares with state.

State of one key belongs to this key, and a result is what it was when the function gave it. So lists, mappings and
other objects that can be changed are copied where they would have a second owner.
"""

from __future__ import annotations

import copy
import functools
import sys
from datetime import date, timedelta
from decimal import Decimal
from typing import Any, TypeVar

import msgspec
import pyarrow as pa

from clonos_py.model.record import Record, schema_of

V = TypeVar("V")
_replace = msgspec.structs.replace

SCALARS = frozenset({type(None), bool, int, float, str, bytes, Decimal})
_UNCHANGING = (*SCALARS, date, timedelta)


def may_change(value: object) -> bool:
    """Whether values of this type, or something within them, may be changed: a list, a record with a list."""
    if isinstance(value, Record):
        return bool(changing_fields(type(value)))
    return not isinstance(value, _UNCHANGING)


def own_value(value: V) -> V:
    """A copy that shares nothing that can be changed, also not within. A value that cannot be changed itself is its own
    copy."""
    return value if type(value) in SCALARS else _copy(value)


def _copy(value: Any) -> Any:
    kind = type(value)
    if kind is list:
        return value.copy() if SCALARS.issuperset(map(type, value)) else list(map(own_value, value))
    if kind is dict:
        return dict(zip(value, map(own_value, value.values()), strict=True))
    if isinstance(value, Record):
        return own_record(value)
    return value if isinstance(value, _UNCHANGING) else copy.deepcopy(value)


def own_record(record: Record) -> Record:
    """The record itself, or a copy if a field of its class may be a list, a mapping or an object."""
    names = changing_fields(type(record))
    if not names:
        return record
    changes = {}
    for name in names:
        changes[name] = own_value(getattr(record, name))
    return _replace(record, **changes)


@functools.cache
def changing_fields(record: type[Record]) -> tuple[str, ...]:
    """The fields whose values may be changed: a record is frozen, a list in it is not."""
    columns = zip(record.__struct_fields__, schema_of(record), strict=True)
    return tuple(name for name, column in columns if pa.types.is_nested(column.type))


def owners(values: dict[str, Any], name: str) -> int:
    """The number of references to a value of a mapping, as the interpreter counts them."""
    return sys.getrefcount(values[name])


_ONE_OWNER = owners({"only": []}, "only")


def own_entry(values: dict[str, Any], name: str) -> None:
    """Replaces a value of a mapping by a copy, if anything else refers to it, or to something within it. A copy that is
    not needed changes nothing, so it does not matter if the interpreter counts a reference that is gone."""
    if name in values and (owners(values, name) > _ONE_OWNER or _shares(values[name])):
        values[name] = own_value(values[name])


def _shares(value: Any) -> bool:
    """Whether something within a list, mapping or record can be changed and is referred to from elsewhere."""
    within = _within(value)
    if SCALARS.issuperset(map(type, within)):
        return False
    counts = _counted(within)
    return any(
        may_change(item) and (count > _WITHIN_ONE or _shares(item)) for item, count in zip(within, counts, strict=True)
    )


def _within(value: Any) -> list[Any]:
    match value:
        case list():
            return list(value)
        case dict():
            return list(value.values())
        case Record():
            return [getattr(value, name) for name in changing_fields(type(value))]
    return []


def _counted(items: list[Any]) -> list[int]:
    """The number of references to each item."""
    return list(map(sys.getrefcount, items))


_ONE_WITHIN: list[list[int]] = [[]]
_WITHIN_ONE = _counted(_within(_ONE_WITHIN))[0]
"""The number of references to an item that only its list, mapping or record refers to, when it is counted."""
