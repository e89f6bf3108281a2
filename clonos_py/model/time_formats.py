"""Formats of times in CSV, JSON and Kafka's JSON, declared beside the annotation of a column.

``at: Annotated[datetime, Epoch("ms")]`` reads and writes milliseconds since 1970. ``Annotated[datetime, Iso8601()]`` is
the same as ``datetime``. The format is stored in the metadata of the field and does not change its type.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa

from clonos_py.model.errors import GraphError

EpochUnit = Literal["s", "ms", "us", "ns"]
EPOCH_UNITS = ("s", "ms", "us", "ns")

_EPOCH = b"clonos.epoch"


@dataclass(frozen=True)
class Epoch:
    """Times are numbers: seconds, milliseconds, microseconds or nanoseconds since 1970-01-01 UTC. They may have
    fractions; those of a microsecond are cut off. Raises GraphError for another unit."""

    unit: EpochUnit

    def __post_init__(self) -> None:
        if self.unit not in EPOCH_UNITS:
            raise GraphError(f"Epoch({self.unit!r}): choose one of {', '.join(EPOCH_UNITS)}")


@dataclass(frozen=True)
class Iso8601:
    """Times are text such as ``2026-01-31T09:30:00.5+02:00`` or ``2026-01-31 09:30``; without a zone in UTC."""


def written_as(type_: pa.DataType, extras: Sequence[Any]) -> dict[bytes, bytes] | None:
    """The metadata of a field whose annotation carries ``extras``. Raises GraphError if a format does not fit."""
    formats = [extra for extra in extras if isinstance(extra, Epoch | Iso8601)]
    if not formats:
        return None
    if len(formats) > 1:
        raise GraphError(f"{formats[0]} and {formats[1]}: a column is written in one way")
    (given,) = formats
    if isinstance(given, Iso8601):
        if not pa.types.is_temporal(type_):
            raise GraphError(f"{given} is for datetime, date and timedelta; the column is {type_}")
        return None
    if not pa.types.is_timestamp(type_):
        raise GraphError(f"{given} is for datetime; the column is {type_}")
    return {_EPOCH: given.unit.encode()}


def epoch_unit(field: pa.Field[Any]) -> EpochUnit | None:
    """The unit if a column's times are written as numbers; None if they are text."""
    found = (field.metadata or {}).get(_EPOCH, b"").decode()
    return next((unit for unit in ("s", "ms", "us", "ns") if unit == found), None)
