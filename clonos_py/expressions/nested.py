"""Functions of structs, lists and JSON text."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from clonos_py.columns.views import fixed, valid

Values = Any
"""A pyarrow Array or Scalar."""


def struct_field(structs: Values, name: str) -> Values:
    """A field of each struct; null where the struct is."""
    if not pa.types.is_struct(structs.type):
        raise pa.ArrowNotImplementedError("a field is one of a struct")
    if structs.type.get_field_index(name) < 0:
        names = ", ".join(field.name for field in structs.type)
        raise pa.ArrowInvalid(f"it has no field {name!r}; there are {names}")
    return pc.struct_field(structs, name)


def list_length(lists: Values) -> Values:
    return pc.list_value_length(lists).cast(pa.int64())


def list_element(lists: Values, index: int) -> Values:
    """Element ``index`` of each list, from 0, or from its end if negative; null if the list is shorter."""
    if isinstance(lists, pa.Scalar):
        return list_element(pa.array([lists.as_py()], lists.type), index)[0]
    if isinstance(lists, pa.DictionaryArray):
        return list_element(lists.dictionary, index).take(lists.indices)
    lengths: Values = pc.list_value_length(lists)
    starts: Values = lists.offsets.slice(0, len(lists))
    offset = pa.scalar(index, starts.type) if index >= 0 else pc.add(lengths, pa.scalar(index, lengths.type))
    inside = pc.greater(lengths, offset) if index >= 0 else pc.greater_equal(offset, pa.scalar(0, lengths.type))
    return lists.values.take(pc.if_else(inside, pc.add(starts, offset), pa.scalar(None, starts.type)))


def list_contains(lists: Values, value: object) -> Values:
    """Whether one of the elements is the value; null elements are none."""
    if isinstance(lists, pa.Scalar):
        return list_contains(pa.array([lists.as_py()], lists.type), value)[0]
    if not pa.types.is_list(lists.type):
        raise pa.ArrowNotImplementedError("it takes a list")
    equal: Values = pc.equal(pc.list_flatten(lists), pa.scalar(value, lists.type.value_type))
    owners: Values = pc.list_parent_indices(lists)
    found = np.zeros(len(lists), bool)
    found[fixed(owners.cast(pa.int64()).filter(pc.fill_null(equal, pa.scalar(False))))] = True
    known = valid(lists)
    return pa.array(found, mask=None if known is None else ~known)


def json_value(text: Values, path: str) -> Values:
    """The value at a JSON path as text; null where there is none, and where the text is no JSON."""
    import polars as pl

    if isinstance(text, pa.Scalar):
        return json_value(pa.array([text.as_py()], text.type), path)[0]
    if not pa.types.is_string(text.type):
        raise pa.ArrowNotImplementedError("JSON is read from text")
    try:
        found = pl.Series(pl.from_arrow(text)).str.json_path_match(path)
    except pl.exceptions.PolarsError as error:
        raise pa.ArrowInvalid(f"{path!r} is no JSON path: they are such as '$.user.names[0]'") from error
    return found.to_arrow().cast(pa.string())
