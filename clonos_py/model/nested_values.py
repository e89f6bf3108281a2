"""Encodes the values of one field as a column if they may be objects, lists or maps.

A column of objects is one column for each field, a column of lists is one column of all items, a column of maps is one
of keys and one of items. So inner values are checked and converted like fields of a row, and an error names them by
path: ``lines[2].price``.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import is_dataclass
from itertools import accumulate, chain
from operator import attrgetter, itemgetter
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from clonos_py.model.field_values import FieldError, Place, absent, encoded, misfit
from clonos_py.model.numpy_values import plain_value
from clonos_py.model.record import attributes_of


def encoded_nested(values: list[Any], field: pa.Field[Any], place: Place) -> pa.Array[Any]:
    """The values as a column of the field's type. Raises FieldError naming the first that does not fit."""
    kind: Any = field.type
    if pa.types.is_struct(kind) and kind.num_fields:
        return _objects(values, field, place)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _lists(values, field, place)
    if pa.types.is_fixed_size_list(kind):
        return _lists_of_one_size(values, field, place)
    return _maps(values, field, place) if pa.types.is_map(kind) else encoded(values, field, place)


def _objects(values: list[Any], field: pa.Field[Any], place: Place) -> pa.Array[Any]:
    kind: Any = field.type
    held = _not_null(values, field, place)
    objects = values if held is None else [values[index] for index in held]
    _check_objects(objects, kind, _places_of(held, place))
    columns = [_part(objects, part, _places_of(held, place)) for part in kind]
    if held is None:
        return pa.StructArray.from_arrays(columns, fields=list(kind))
    taken, missing = _spread(held, len(values))
    return pa.StructArray.from_arrays([column.take(taken) for column in columns], fields=list(kind), mask=missing)


def _check_objects(objects: list[Any], kind: pa.DataType, place: Place) -> None:
    if all(issubclass(type_, dict | msgspec.Struct) or is_dataclass(type_) for type_ in set(map(type, objects))):
        return
    for index, value in enumerate(objects):
        if not isinstance(value, dict | msgspec.Struct) and not is_dataclass(value):
            raise misfit(value, kind, place(index))


def _part(objects: list[Any], field: pa.Field[Any], place: Place) -> pa.Array[Any]:
    """One field of all objects, none of which is null."""

    def place_of_part(index: int) -> tuple[int, str]:
        row, path = place(index)
        return row, f"{path}.{field.name}"

    name = field.name
    types = set(map(type, objects))
    try:
        if types == {dict}:
            return encoded_nested(list(map(itemgetter(name), objects)), field, place_of_part)
        if dict not in types and len(attributes := {_attribute(type_, name) for type_ in types}) == 1:
            return encoded_nested(list(map(attrgetter(attributes.pop()), objects)), field, place_of_part)
    except (KeyError, AttributeError):
        pass
    found = [_value(value, name, place_of_part, index) for index, value in enumerate(objects)]
    return encoded_nested(found, field, place_of_part)


def _value(value: Any, name: str, place: Place, index: int) -> Any:
    if isinstance(value, dict):
        if name in value:
            return value[name]
    elif hasattr(value, attribute := _attribute(type(value), name)):
        return getattr(value, attribute)
    row, path = place(index)
    raise FieldError(f"field {path!r} is absent: {type(value).__name__} has no field {name!r}", row)


def _attribute(type_: Any, name: str) -> str:
    return attributes_of(type_).get(name, name)


def _lists(values: list[Any], field: pa.Field[Any], place: Place) -> pa.Array[Any]:
    kind: Any = field.type
    held = _not_null(values, field, place)
    lists = _sequences(values, kind, place)
    starts = list(accumulate(map(len, lists), initial=0))
    items = encoded_nested(list(chain.from_iterable(lists)), kind.value_field, _places_of_items(starts, place))
    made: Any = pa.LargeListArray if pa.types.is_large_list(kind) else pa.ListArray
    offsets = pa.array(starts, pa.int64() if pa.types.is_large_list(kind) else pa.int32())
    column: pa.Array[Any] = made.from_arrays(offsets, items, type=kind, mask=_mask(held, len(values)))
    return column


def _lists_of_one_size(values: list[Any], field: pa.Field[Any], place: Place) -> pa.Array[Any]:
    kind: Any = field.type
    held = _not_null(values, field, place)
    lists = _sequences(values, kind, place)
    for index, items in enumerate(lists):
        if len(items) != kind.list_size and values[index] is not None:
            raise misfit(values[index], kind, place(index))
    starts = list(accumulate(map(len, lists), initial=0))
    items = encoded_nested(list(chain.from_iterable(lists)), kind.value_field, _places_of_items(starts, place))
    column: pa.Array[Any] = pa.FixedSizeListArray.from_arrays(items, type=kind)
    return column if held is None else column.take(_spread(held, len(values))[0])


def _maps(values: list[Any], field: pa.Field[Any], place: Place) -> pa.Array[Any]:
    """A column of maps from dicts, or from lists of pairs."""
    kind: Any = field.type
    held = _not_null(values, field, place)
    pairs = _sequences([list(v.items()) if isinstance(v, dict) else v for v in values], kind, place)
    starts = list(accumulate(map(len, pairs), initial=0))
    inner = _places_of_items(starts, place)
    entries = list(chain.from_iterable(pairs))
    for index, entry in enumerate(entries):
        if not isinstance(entry, list | tuple) or len(entry) != 2:
            raise misfit(entry, kind, inner(index))
    keys = encoded_nested([key for key, _ in entries], kind.key_field, inner)
    items = encoded_nested([item for _, item in entries], kind.item_field, inner)
    made: Any = pa.MapArray  # the stubs lack an overload for keys, items and a type
    offsets = pa.array(starts, pa.int32())
    column: pa.Array[Any] = made.from_arrays(offsets, keys, items, type=kind, mask=_mask(held, len(values)))
    return column


def _sequences(values: list[Any], kind: pa.DataType, place: Place) -> list[Any]:
    """Values accepted as lists, as sequences; an empty one for each null."""
    if set(map(type, values)) <= {list, tuple}:
        return values
    return [_sequence(value, kind, place, index) for index, value in enumerate(values)]


def _sequence(value: Any, kind: pa.DataType, place: Place, index: int) -> Any:
    if isinstance(value, np.ndarray) and value.ndim:
        return plain_value(value)
    if value is not None and not isinstance(value, list | tuple | set | frozenset):
        raise misfit(value, kind, place(index))
    return () if value is None else value


def _not_null(values: list[Any], field: pa.Field[Any], place: Place) -> list[int] | None:
    """The indices of the values that are not None; None if all are not. Raises FieldError if the field forbids None."""
    if type(None) not in set(map(type, values)):
        return None
    if not field.nullable:
        raise absent(place(next(index for index, value in enumerate(values) if value is None)))
    return [index for index, value in enumerate(values) if value is not None]


def _places_of(held: list[int] | None, place: Place) -> Place:
    return place if held is None else lambda index: place(held[index])


def _places_of_items(starts: list[int], place: Place) -> Place:
    def found(item: int) -> tuple[int, str]:
        index = bisect_right(starts, item) - 1
        row, path = place(index)
        return row, f"{path}[{item - starts[index]}]"

    return found


def _mask(held: list[int] | None, rows: int) -> Any:
    """Which rows are null."""
    return None if held is None else _spread(held, rows)[1]


def _spread(held: list[int], rows: int) -> tuple[Any, Any]:
    """For each row the position of its value among the held ones, or null; and a mask of the rows without a value."""
    missing = np.ones(rows, bool)
    missing[held] = False
    return pa.array(np.cumsum(~missing) - 1, mask=missing), pa.array(missing)
