"""The attributes of process functions as columns, from the types that a checkpoint names.

A value is decoded as its declared type: numbers, text, bytes, times and decimals are such columns, lists are lists,
mappings are maps and records are structs. What has no one type (``Any``, unions, a record within itself) is JSON text.
"""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa

from clonos_py.model.state_definitions import EACH, OR, OR_NULL, WITH_DEFAULT

_ONE_OF = "one of "
_SCALARS: dict[str, tuple[Any, pa.DataType | None]] = {
    "int": (int, pa.int64()),
    "float": (float, pa.float64()),
    "str": (str, pa.string()),
    "bool": (bool, pa.bool_()),
    "bytes": (bytes, pa.binary()),
    "Decimal": (decimal.Decimal, None),
    "datetime": (datetime.datetime, pa.timestamp("us", "UTC")),
    "date": (datetime.date, pa.date32()),
    "time": (datetime.time, pa.time64("us")),
    "timedelta": (datetime.timedelta, pa.duration("us")),
}
"""By the name of a type in definitions: the type that stored values are decoded as, and that of a column. Decimals have
the scale of their values."""
_LISTS = ("list", "set", "frozenset", "deque", "tuple", "Sequence")
_MAPS = ("dict", "defaultdict", "Counter", "OrderedDict", "Mapping")


class AttributeForm(NamedTuple):
    """How an attribute becomes a column. ``type``: None if the values decide; ``value``: makes a value of the column
    from a decoded one."""

    type: pa.DataType | None
    value: Callable[[Any], Any]


def attribute_names(attributes: Mapping[str, str]) -> list[str]:
    """The attributes themselves, without the fields and elements in them."""
    return [name for name in attributes if name.isidentifier()]


def column_of(attributes: Mapping[str, str], name: str, stored: Sequence[msgspec.Raw | None]) -> Any:
    """The column of an attribute. ``stored``: its value for each key; None if it has none there."""
    form = form_of(attributes, name)
    decoded = [None if raw is None else msgspec.msgpack.decode(raw) for raw in stored]
    try:
        return pa.array([None if value is None else form.value(value) for value in decoded], form.type)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):  # such as an int of more than 64 bits
        return pa.array([None if value is None else as_json(value) for value in decoded], pa.string())


def form_of(attributes: Mapping[str, str], name: str) -> AttributeForm:
    """The form of an attribute, or of a field or an element in one."""
    text = attributes.get(name, "").removesuffix(WITH_DEFAULT).removesuffix(OR_NULL)
    if text.startswith(_ONE_OF):
        return _of_constants(text)
    members = set(text.split(OR))
    if members == {"int", "float"}:
        return AttributeForm(pa.float64(), float)
    return _of_type(text, attributes, name) or _JSON


def as_json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


_JSON = AttributeForm(pa.string(), as_json)


def _of_constants(text: str) -> AttributeForm:
    first = text.removeprefix(_ONE_OF)[:1]
    if first in "'\"":
        return AttributeForm(pa.string(), lambda value: value if isinstance(value, str) else as_json(value))
    return AttributeForm(None, lambda value: value)


def _of_type(text: str, attributes: Mapping[str, str], name: str) -> AttributeForm | None:
    if text in _SCALARS:
        decoded_as, kind = _SCALARS[text]
        return AttributeForm(kind, lambda value: msgspec.convert(value, decoded_as, builtin_types=(bytes,)))
    if text in _LISTS and f"{name}{EACH}" in attributes:
        return _of_list(form_of(attributes, f"{name}{EACH}"))
    if text in _MAPS and f"{name}[key]" in attributes:
        return _of_map(form_of(attributes, f"{name}[key]"), form_of(attributes, f"{name}[value]"))
    if text == "record":
        return _of_fields(name, ".", attributes)
    return _of_tuple(name, attributes) if text.startswith("tuple of ") else None


def _of_list(each: AttributeForm) -> AttributeForm:
    kind = None if each.type is None else pa.list_(each.type)
    return AttributeForm(kind, lambda values: [None if value is None else each.value(value) for value in values])


def _of_map(key: AttributeForm, of_value: AttributeForm) -> AttributeForm | None:
    if key.type is None or of_value.type is None:
        return None
    return AttributeForm(
        pa.map_(key.type, of_value.type),
        lambda entries: [
            (key.value(name), None if value is None else of_value.value(value)) for name, value in entries.items()
        ],
    )


def _of_fields(name: str, mark: str, attributes: Mapping[str, str]) -> AttributeForm | None:
    """A record, whose fields are stored by name. None if the checkpoint does not list them: it holds itself."""
    begin = f"{name}{mark}"
    fields = {
        found.removeprefix(begin): form_of(attributes, found)
        for found in attributes
        if found.startswith(begin) and not any(sign in found[len(begin) :] for sign in ".[")
    }
    if not fields:
        return None

    def value(stored: Mapping[str, Any]) -> dict[str, Any]:
        return {
            field: None if stored.get(field) is None else form.value(stored[field]) for field, form in fields.items()
        }

    return AttributeForm(_struct(fields), value)


def _of_tuple(name: str, attributes: Mapping[str, str]) -> AttributeForm:
    """A tuple of different types, as a struct whose fields are numbers."""
    forms, position = [], 0
    while f"{name}[{position}]" in attributes:
        forms.append(form_of(attributes, f"{name}[{position}]"))
        position += 1

    def value(stored: Sequence[Any]) -> dict[str, Any]:
        return {
            str(at): None if found is None else form.value(found)
            for at, (form, found) in enumerate(zip(forms, stored, strict=True))
        }

    return AttributeForm(_struct({str(at): form for at, form in enumerate(forms)}), value)


def _struct(forms: Mapping[str, AttributeForm]) -> pa.DataType | None:
    """The type of a struct; None if the values decide the type of one of its fields."""
    fields = [pa.field(name, form.type) for name, form in forms.items() if form.type is not None]
    return pa.struct(fields) if len(fields) == len(forms) else None
