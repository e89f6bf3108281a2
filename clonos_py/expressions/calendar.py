"""Parts of times, and times rounded down, as a wall clock shows them in a zone.

Zones are those of Polars, which brings its own database: a machine without one gives the same results. UTC needs
neither.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from clonos_py.columns.times import MOMENT, instants

Values = Any
"""A pyarrow Array or Scalar."""

UTC = "UTC"
NAIVE = pa.timestamp("us")
"""Times as a wall clock shows them, without their zone."""
PARTS = ("year", "quarter", "month", "week", "day", "weekday", "day_of_year", "hour", "minute", "second")
UNITS = ("year", "quarter", "month", "week", "day")
"""Units longer than a day are counted from the beginning of a year or, for weeks, from a Monday."""
DAY_US = 86_400_000_000
_FUNCTIONS = {
    "week": ("iso_week", None),
    "weekday": ("day_of_week", pc.DayOfWeekOptions(count_from_zero=False, week_start=1)),
    "day_of_year": ("day_of_year", None),
}
_CLOCK_UNITS: tuple[tuple[int, Any], ...] = (
    (3_600_000_000, "hour"),
    (60_000_000, "minute"),
    (1_000_000, "second"),
    (1_000, "millisecond"),
    (1, "microsecond"),
)
_HOUR: Values = pa.scalar(3_600_000_000, pa.duration("us"))


def check_zone(zone: str) -> None:
    """Raises ValueError for what is no zone, such as a name with an error in it."""
    if zone == UTC:
        return
    import polars as pl

    try:
        _moved(pl.Series([0]).cast(pl.Datetime("us", UTC)), zone)
    except (pl.exceptions.PolarsError, TypeError) as error:
        raise ValueError(f"{zone!r} is no time zone: they have names such as 'Europe/Berlin'") from error


def part(times: Values, zone: str = UTC, *, name: str) -> Values:
    """A part of each time as int64: one of ``PARTS``. Weeks and days of the week are those of ISO 8601."""
    function, options = _FUNCTIONS.get(name, (name, None))
    return pc.call_function(function, [local(times, zone)], options).cast(pa.int64())


def local(times: Values, zone: str) -> Values:
    """What a wall clock in the zone shows at these times, as ``NAIVE``."""
    moments = moment(times).cast(MOMENT)
    if zone == UTC:
        return moments.cast(NAIVE)
    return _by_polars(moments, lambda series: _moved(series, zone).dt.replace_time_zone(None))


def of_local(clock: Values, zone: str) -> Values:
    """The first time at which a wall clock in the zone shows what ``clock`` says; null where it never does, as it is
    set forward."""
    if zone == UTC:
        return clock.cast(MOMENT)

    def read(series: Any) -> Any:
        return series.dt.replace_time_zone(zone, ambiguous="earliest", non_existent="null").dt.convert_time_zone(UTC)

    return _by_polars(clock, read)


def truncated(times: Values, every: str | int, zone: str = UTC) -> Values:
    """Times rounded down to a unit of the calendar, or to so many microseconds, which are a day or a part of it. The
    type stays; dates are rounded to days at least."""
    clock = local(times, zone)
    if isinstance(every, int) and every < DAY_US:
        past = pc.subtract(clock, _floor(clock, every))
        return _like(pc.subtract(moment(times).cast(MOMENT), past), times.type)
    unit: Any = every if isinstance(every, str) else "day"
    begins: Values = pc.floor_temporal(clock, unit=unit, week_starts_monday=True)
    begins = begins.cast(NAIVE)
    found = of_local(begins, zone)
    if found.null_count if isinstance(found, pa.Array) else not found.is_valid:
        # where the clock is set forward at midnight, the day begins an hour later
        found = pc.coalesce(found, of_local(pc.add(begins, _HOUR), zone))
    return _like(found, times.type)


def moment(times: Values) -> Values:
    """Times as microseconds UTC."""
    if times.type == pa.int64() or pa.types.is_timestamp(times.type) or pa.types.is_date(times.type):
        return instants(times)
    raise pa.ArrowNotImplementedError("a moment is a datetime, a date or an Instant (int64, microseconds UTC)")


def _floor(clock: Values, every_us: int) -> Values:
    """Arrow counts units in 32 bits, so it gets the largest that fits."""
    unit_us, unit = next((us, name) for us, name in _CLOCK_UNITS if every_us % us == 0)
    return pc.floor_temporal(clock, multiple=every_us // unit_us, unit=unit)


def _like(moments: Values, kind: pa.DataType) -> Values:
    if pa.types.is_date(kind):
        return moments.cast(NAIVE).cast(pa.date32())
    return moments.cast(pa.int64()) if kind == pa.int64() else moments.cast(MOMENT)


def _moved(series: Any, zone: str) -> Any:
    return series.dt.convert_time_zone(zone)


def _by_polars(times: Values, change: Any) -> Values:
    import polars as pl

    if isinstance(times, pa.Scalar):
        return _by_polars(pa.array([times.as_py()], times.type), change)[0]
    return change(pl.Series(pl.from_arrow(times))).to_arrow()
