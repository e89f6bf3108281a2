"""Conversion of columns of times to Python values: datetimes in UTC, dates and timedeltas."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from clonos_py.model.errors import UserCodeError

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


_YEARS_US = tuple((moment - _EPOCH.replace(tzinfo=None)) // _MICROSECOND for moment in (datetime.min, datetime.max))


def instant_of(moment: datetime) -> int:
    """An aware datetime as microseconds UTC. Raises UserCodeError for a naive one."""
    if is_naive(moment):
        raise UserCodeError(f"{moment!r} has no time zone: write datetime.now(UTC), or tzinfo=UTC for a time in UTC")
    return (moment - _EPOCH) // _MICROSECOND


def moment_of(instant: int) -> datetime:
    """Microseconds UTC as a datetime. Raises OverflowError for a time outside the years 1 to 9999."""
    return _EPOCH + instant * _MICROSECOND


def is_naive(moment: datetime) -> bool:
    """Whether a datetime has no time zone."""
    return moment.tzinfo is None or moment.utcoffset() is None


def moment_values(column: pa.Array[Any]) -> list[datetime | None]:
    """The times of a column as aware datetimes. Raises UserCodeError for a time outside the years 1 to 9999."""
    micros = _microseconds(column)
    _check_years(micros)
    values: list[Any] = micros.to_numpy(zero_copy_only=False).tolist()
    return [None if value is None else value.replace(tzinfo=UTC) for value in values]


def day_values(column: pa.Array[Any]) -> list[Any]:
    """The values of a column as dates."""
    return column.to_pylist()


def duration_values(column: pa.Array[Any]) -> list[Any]:
    """The values of a column as timedeltas. Raises pa.ArrowInvalid for one that 64 bits of microseconds cannot hold."""
    finer = column.type.unit == "ns"  # what is finer than a microsecond is cut off
    values: list[Any] = column.cast(pa.duration("us"), safe=not finer).to_numpy(zero_copy_only=False).tolist()
    return values


def _check_years(micros: pa.Array[Any]) -> None:
    extremes: Any = pc.min_max(micros.cast(pa.int64())).as_py()
    for far in (extremes["min"], extremes["max"]):
        if far is not None and not _YEARS_US[0] <= far <= _YEARS_US[1]:
            raise UserCodeError(
                f"{far} microseconds since 1970 are no datetime, whose years are 1 to 9999: the unit of the column is "
                "probably another one than it is read with"
            )


def _microseconds(column: pa.Array[Any]) -> pa.Array[Any]:
    """The times of a column in microseconds, rounded down."""
    if column.type.unit == "ns":
        column = pc.floor_temporal(column, unit="microsecond")
    found: pa.Array[Any] = column.cast(pa.timestamp("us"))
    return found


def python_values(column: pa.Array[Any]) -> list[Any]:
    """The values of a column as Python values, nanoseconds included."""
    if pa.types.is_timestamp(column.type):
        return moment_values(column)
    return duration_values(column) if pa.types.is_duration(column.type) else column.to_pylist()


def shown_rows(rows: pa.RecordBatch) -> list[dict[str, Any]]:
    """The rows of a batch as dicts of Python values, for messages. Values that Python does not have, such as a date in
    the year 10000, are text."""
    columns = [_shown_values(column) for column in rows.columns]
    return [dict(zip(rows.schema.names, values, strict=True)) for values in zip(*columns, strict=True)]


def _shown_values(column: pa.Array[Any]) -> list[Any]:
    try:
        return python_values(column)
    except (UserCodeError, ValueError, OverflowError):
        return [" ".join(str(column.slice(row, 1)).split()) for row in range(len(column))]
