"""Arrow's cast, extended to inner types: null structs and lists, and nullability of inner fields. A decimal becomes the
nearest float, and a float the text that Python writes.

Arrow's own cast refuses a null struct whose fields are not nullable, although they are null only because it is. It also
accepts null items in a list whose items are not nullable.
"""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from clonos_py.columns.decimals import as_floats

_FEW = 256
"""For up to as many values Python takes less time than Polars, whose import takes 0.1 s."""
_FLOAT_MIN = 1e-4
_FLOATS_MAX = {pa.float32(): 1e10, pa.float64(): float("inf")}
"""Between these Polars writes the same text as Python; beyond, the form of exponents differs."""


def cast(column: Any, target: pa.DataType) -> Any:
    """Casts an array to another type. Raises pa.ArrowInvalid for values that do not fit, including nulls."""
    if column.type == target:
        return column
    if isinstance(target, pa.Decimal128Type):
        return _decimals(column, target)
    if pa.types.is_decimal(column.type) and pa.types.is_floating(target):
        return as_floats(column, target)
    if pa.types.is_floating(column.type) and is_text(target):
        return floats_as_text(column, target)
    if not pa.types.is_nested(target):
        return column.cast(target)
    return _without_nulls(_with_texts(column, target).cast(with_nulls(target)), target, "")


def _decimals(column: Any, target: pa.Decimal128Type[Any, Any]) -> Any:
    """Integers are accepted even if their type allows more digits; floats are refused, as most are inexact."""
    if pa.types.is_floating(column.type):
        raise pa.ArrowInvalid(f"a float is not exact, {target} is: declare the column float, and round it where needed")
    if pa.types.is_integer(column.type):
        column = column.cast(pa.decimal128(38, target.scale))
    return column.cast(target)


def is_text(kind: pa.DataType) -> bool:
    return pa.types.is_string(kind) or pa.types.is_large_string(kind)


def floats_as_text(floats: Any, target: pa.DataType) -> Any:
    """Floats of an array or a scalar as Python writes them: ``1.0``, ``1e+16``, ``1e-05``, ``nan``. They have the
    fewest digits that give the same value in their type: 0.1 as float32 is ``0.1``."""
    if isinstance(floats, pa.Scalar):
        return floats_as_text(pa.array([floats.as_py()], floats.type), target)[0]
    if len(floats) <= _FEW or pa.types.is_float16(floats.type):
        return pa.array(_as_python_writes(floats), target)
    import polars as pl

    text = pl.Series(pl.from_arrow(floats)).cast(pl.String).to_arrow().cast(target)
    sizes = np.abs(floats.to_numpy(zero_copy_only=False))  # NaN where there is null
    other = ~(((sizes >= _FLOAT_MIN) & (sizes < _FLOATS_MAX[floats.type])) | (sizes == 0.0))
    if floats.null_count:
        other &= floats.is_valid().to_numpy(zero_copy_only=False)
    if not other.any():
        return text
    mask = pa.array(other)
    return pc.replace_with_mask(text, mask, pa.array(_as_python_writes(floats.filter(mask)), target))


def _as_python_writes(floats: Any) -> list[str | None]:
    """Each float as text. NumPy finds the digits of narrow types, in which Python has no floats."""
    if floats.type == pa.float64():
        return [None if value is None else repr(value) for value in floats.to_pylist()]
    digits = map(str, floats.to_numpy(zero_copy_only=False))
    return [
        repr(float(text)) if known else None for text, known in zip(digits, floats.is_valid().to_pylist(), strict=True)
    ]


def with_nulls(kind: Any) -> pa.DataType:
    """The same type with nullable inner values, at each depth."""
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, with_nulls(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(pa.field(kind.value_field.name, with_nulls(kind.value_type)))
    if pa.types.is_large_list(kind):
        return pa.large_list(pa.field(kind.value_field.name, with_nulls(kind.value_type)))
    found: pa.DataType = kind
    return found


def with_null_structs(kind: Any, nullable: bool = True) -> Any:
    """The same type with nullable fields in structs that may be null: Arrow's writer of Parquet takes the fields of a
    null struct for nulls of their own. ``nullable``: whether values of the type may be null."""
    if pa.types.is_struct(kind):
        return pa.struct(
            [pa.field(f.name, with_null_structs(f.type, nullable or f.nullable), nullable or f.nullable) for f in kind]
        )
    if pa.types.is_list(kind):
        return pa.list_(_with_null_structs(kind.value_field))
    if pa.types.is_large_list(kind):
        return pa.large_list(_with_null_structs(kind.value_field))
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(_with_null_structs(kind.value_field), kind.list_size)
    if pa.types.is_map(kind):
        item: Any = _with_null_structs(kind.item_field)
        return pa.map_(kind.key_field.type, item)
    return kind


def _with_null_structs(field: pa.Field[Any]) -> pa.Field[Any]:
    return field.with_type(with_null_structs(field.type, field.nullable))


def _without_nulls(column: Any, target: Any, path: str) -> Any:
    """Marks inner values as not nullable as in ``target``; apart from that ``column`` has the type ``target``."""
    if pa.types.is_struct(target):
        inner = [
            _checked(values, field, f"{path}.{field.name}", column.null_count)
            for values, field in zip(column.flatten(), target, strict=True)
        ]
        mask = column.is_null() if column.null_count else None
        return pa.StructArray.from_arrays(inner, fields=list(target), mask=mask)
    if pa.types.is_list(target) or pa.types.is_large_list(target):
        return _list_of(column, _checked(column.flatten(), target.value_field, f"{path}[]", 0), target)
    return column


def _list_of(column: Any, items: Any, target: Any) -> Any:
    """A list column of this type with other items in the lists of ``column``."""
    large = pa.types.is_large_list(target)
    lengths = column.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
    offsets = pa.array(np.concatenate([[0], np.cumsum(lengths)]), pa.int64() if large else pa.int32())
    mask = column.is_null() if column.null_count else None
    made: Any = pa.LargeListArray if large else pa.ListArray
    return made.from_arrays(offsets, items, type=target, mask=mask)


def _with_texts(column: Any, target: Any) -> Any:
    """The column with text in place of the inner floats that ``target`` has as text; the column itself if there are
    none."""
    kind: Any = column.type
    if pa.types.is_floating(kind) and is_text(target):
        return floats_as_text(column, target)
    if pa.types.is_struct(kind) and pa.types.is_struct(target):
        inner, types = column.flatten(), {field.name: field.type for field in target}
        made = [
            _with_texts(values, types[field.name]) if field.name in types else values
            for values, field in zip(inner, kind, strict=True)
        ]
        if all(map(operator.is_, made, inner)):
            return column
        fields = [field.with_type(values.type) for field, values in zip(kind, made, strict=True)]
        return pa.StructArray.from_arrays(made, fields=fields, mask=column.is_null() if column.null_count else None)
    if all(pa.types.is_list(one) or pa.types.is_large_list(one) for one in (kind, target)):
        items = column.flatten()
        texts = _with_texts(items, target.value_type)
        if texts is items:
            return column
        lists: Any = pa.large_list if pa.types.is_large_list(kind) else pa.list_
        field: pa.Field[Any] = column.type.value_field
        return _list_of(column, texts, lists(field.with_type(texts.type)))
    return column


def _checked(values: Any, field: pa.Field[Any], path: str, null_count: int) -> Any:
    """``null_count``: the number of null structs around the values, in which they are null, too."""
    if values.null_count > null_count and not field.nullable:
        raise pa.ArrowInvalid(f"{path.lstrip('.')} is null, but may not be")
    return _without_nulls(values, field.type, path)
