"""Decodes keys for process functions: ``ctx.key``."""

from __future__ import annotations

import datetime
import types
from collections.abc import Callable
from decimal import Decimal
from typing import Any, TypedDict

import msgspec
import pyarrow as pa

_TYPES: tuple[tuple[Callable[[pa.DataType], bool], type], ...] = (
    (pa.types.is_decimal, Decimal),
    (pa.types.is_timestamp, datetime.datetime),
    (pa.types.is_date, datetime.date),
    (pa.types.is_time, datetime.time),
    (pa.types.is_duration, datetime.timedelta),
)
"""Python types that encoded keys do not record."""


UNKEYED = b""
"""The encoded key of a row without one: that of a broadcast stream."""


class ProcessKeys:
    """Decodes keys with the columns ``key`` that ``key_states.encoded_keys`` has encoded."""

    def __init__(self, key: pa.Schema) -> None:
        self._names = key.names
        columns: Any = tuple(_python_type(field.type) for field in key)
        self._decoder: msgspec.msgpack.Decoder[tuple[Any, ...]] = msgspec.msgpack.Decoder(
            tuple.__class_getitem__(columns)
        )

    def value(self, encoded: bytes) -> Any:
        """The key: the value of its column, or a tuple if it has several columns; None for UNKEYED."""
        if encoded == UNKEYED:
            return None
        values = self._decoder.decode(encoded)
        return values[0] if len(values) == 1 else values

    def by_name(self, encoded: bytes) -> dict[str, Any]:
        """The key's values by column; none for UNKEYED."""
        return {} if encoded == UNKEYED else dict(zip(self._names, self._decoder.decode(encoded), strict=True))


def _python_type(kind: Any) -> Any:
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return list.__class_getitem__(_python_type(kind.value_type)) | None
    if pa.types.is_struct(kind):
        fields = {field.name: _python_type(field.type) for field in kind}
        return types.new_class("Key", (TypedDict,), {}, lambda body: body.update(__annotations__=fields)) | None
    return next((made | None for applies, made in _TYPES if applies(kind)), Any)
