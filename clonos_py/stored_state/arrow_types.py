"""Arrow types from the texts by which checkpoints name them: the inverse of ``str``, for the types that rows have."""

from __future__ import annotations

import re
from typing import Any

import pyarrow as pa

_DECIMAL = re.compile(r"decimal(\d+)\((\d+), (-?\d+)\)")
_ZONED = re.compile(r"timestamp\[(s|ms|us|ns), tz=(.+)\]")
_LIST = re.compile(r"(large_)?list<\w+: (.+)>")
_FIXED_BINARY = re.compile(r"fixed_size_binary\[(\d+)\]")
_DECIMALS: dict[str, Any] = {"32": pa.decimal32, "64": pa.decimal64, "128": pa.decimal128, "256": pa.decimal256}


def arrow_type(text: str) -> pa.DataType | None:
    """``int64``, ``timestamp[us, tz=UTC]``, ``list<item: struct<n: int64>>``; None for a text of any other form."""
    text = text.strip().removesuffix(" not null")
    if found := _DECIMAL.fullmatch(text):
        decimal = _DECIMALS.get(found[1])
        return None if decimal is None else decimal(int(found[2]), int(found[3]))
    if found := _ZONED.fullmatch(text):
        unit: Any = found[1]
        return pa.timestamp(unit, found[2])
    if found := _FIXED_BINARY.fullmatch(text):
        return pa.binary(int(found[1]))
    if found := _LIST.fullmatch(text):
        inner = arrow_type(found[2])
        return None if inner is None else pa.large_list(inner) if found[1] else pa.list_(inner)
    if text.startswith("struct<") and text.endswith(">"):
        return _struct(text[len("struct<") : -1])
    alias: Any = text
    try:
        return pa.type_for_alias(alias)  # type: ignore[no-any-return]
    except ValueError:
        return None


def _struct(text: str) -> pa.DataType | None:
    fields = []
    for part in _parts(text):
        name, colon, kind = part.partition(": ")
        if not colon or (found := arrow_type(kind)) is None:
            return None
        fields.append(pa.field(name, found))
    return pa.struct(fields)


def _parts(text: str) -> list[str]:
    """Splits at the commas that no bracket encloses."""
    parts, depth, start = [], 0, 0
    for at, sign in enumerate(text):
        depth += (sign in "<[(") - (sign in ">])")
        if sign == "," and depth == 0:
            parts.append(text[start:at].strip())
            start = at + 1
    return [*parts, text[start:].strip()] if text else []
