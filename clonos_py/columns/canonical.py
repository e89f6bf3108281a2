"""Equal values with equal bits: the equality of keys, as values that can be encoded or compared by their bytes.

As keys -0.0 equals 0.0, and all NaN are equal, also within lists and structs.
"""

from __future__ import annotations

import math
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc


def canonical(column: Any) -> Any:
    """The column with 0.0 for -0.0 and one NaN for all, at each depth; unchanged if it has no floats."""
    kind = column.type
    if pa.types.is_floating(kind):
        column = pc.add(column, pa.scalar(0.0, kind))
        return pc.if_else(pc.is_nan(column), pa.scalar(math.nan, kind), column)
    return _nested(column) if has_floats(kind) else column


def has_floats(kind: Any) -> bool:
    """Whether values of a type hold floats, at any depth."""
    if pa.types.is_nested(kind):
        return any(has_floats(kind.field(number).type) for number in range(kind.num_fields))
    return bool(pa.types.is_floating(kind))


def _nested(column: Any) -> Any:
    kind = column.type
    missing = column.is_null() if column.null_count else None
    if pa.types.is_struct(kind):
        inner = [canonical(values) for values in column.flatten()]
        return pa.StructArray.from_arrays(inner, fields=list(kind), mask=missing)
    if pa.types.is_fixed_size_list(kind):
        start, stop = column.offset * kind.list_size, (column.offset + len(column)) * kind.list_size
        inner = canonical(column.values.slice(start, stop - start))
        made: Any = pa.FixedSizeListArray
        return made.from_arrays(inner, type=kind, mask=missing)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        made = pa.LargeListArray if pa.types.is_large_list(kind) else pa.ListArray
        first, last = column.offsets[0].as_py(), column.offsets[-1].as_py()
        offsets = pc.subtract(column.offsets, column.offsets[0])
        return made.from_arrays(offsets, canonical(column.values.slice(first, last - first)), type=kind, mask=missing)
    return column
