"""Windows as users write them: ``tumbling("10s")``, ``hopping("10s", "2s")``, ``cumulative("1d", "1h")``,
``session("30s")``, ``counted(10)``; ``last("1h")`` of a row; and for joins ``between("-5m", "0s")``,
``until("expires")``, ``as_of()`` and ``forever()``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from clonos_py.dsl.callsite import located
from clonos_py.dsl.row_counts import check_row_count
from clonos_py.model.errors import GraphError
from clonos_py.model.times import Duration, micros
from clonos_py.model.windows import (
    AtClose,
    Counted,
    Cumulative,
    Every,
    Hopping,
    Last,
    LastRows,
    LastSpan,
    OnChange,
    Session,
    Tumbling,
)


@dataclass(frozen=True)
class Forever:
    """A join without a window: every row is matched with all earlier rows of the other side. ``ttl_us`` limits this to
    rows at most so far apart in event time; None is no limit."""

    ttl_us: int | None = None


@dataclass(frozen=True)
class Between:
    """A join by distance in event time: ``lower <= right.time - left.time <= upper``."""

    lower_us: int
    upper_us: int


@dataclass(frozen=True)
class Until:
    """A join bounded by the left row: the right row lies between the left one's time and its ``column``."""

    column: str


@dataclass(frozen=True)
class AsOf:
    """A temporal join: the latest right row that is not later than the left one, and at most ``oldest_us`` older."""

    oldest_us: int | None


def tumbling(size: Duration, *, processing_time: bool = False) -> Tumbling:
    """Windows of a fixed size that do not overlap, aligned to the epoch. A duration is text or a ``timedelta``."""
    with located("tumbling"):
        return Tumbling(_positive("size", size), processing_time)


def hopping(size: Duration, slide: Duration, *, processing_time: bool = False) -> Hopping:
    """Windows of ``size`` that begin every ``slide``, so that a row belongs to size / slide of them."""
    with located("hopping"):
        size_us, slide_us = _positive("size", size), _positive("slide", slide)
        if size_us % slide_us:
            raise GraphError(f"the size ({size}) must be a multiple of the slide ({slide})")
        return Hopping(size_us, slide_us, processing_time)


def cumulative(size: Duration, step: Duration, *, processing_time: bool = False) -> Cumulative:
    """Windows that grow: of each ``size``, aligned to the epoch, the first ``step``, the first two, and so on to the
    whole. The sales of the day so far, each hour: ``cumulative("1d", "1h")``."""
    with located("cumulative"):
        size_us, step_us = _positive("size", size), _positive("step", step)
        if size_us % step_us:
            raise GraphError(f"the size ({size}) must be a multiple of the step ({step})")
        return Cumulative(size_us, step_us, processing_time)


def session(gap: Duration, *, processing_time: bool = False) -> Session:
    """Session windows: the rows of a key that are at most ``gap`` apart; the window ends ``gap`` after its last row."""
    with located("session"):
        return Session(_positive("gap", gap), processing_time)


def counted(size: int, *, every: int | None = None, incomplete: bool = False) -> Counted:
    """Windows of ``size`` rows of a key, in their order of arrival. One begins with every ``every``-th row, so that a
    row belongs to size / every of them; without it windows do not overlap. A window is emitted with its last row.
    Windows that are incomplete at the end of all input are dropped, or emitted if ``incomplete``."""
    with located("counted"):
        slide = size if every is None else every
        for name, number in (("size", size), ("every", slide)):
            check_row_count(name, number)
        if size % slide:
            raise GraphError(f"the size ({size} rows) must be a multiple of every ({slide})")
        if type(incomplete) is not bool:
            raise GraphError(f"incomplete is {incomplete!r}, it must be True or False")
        return Counted(size, slide, incomplete)


@dataclass(frozen=True)
class AssignedBy:
    """Windows that a function of the user assigns."""

    function: Callable[..., Any]


def assign(function: Callable[..., Any]) -> AssignedBy:
    """Windows of your own. ``function`` takes a batch of rows (a ``pyarrow.RecordBatch``, or the frame that its
    parameter is annotated with) and returns a frame with a row for each, in order, and the columns ``window_start`` and
    ``window_end``: times, or Instants, or lists of these for rows of several windows. A row with nulls is in no window.
    A window closes when the watermark reaches its end."""
    with located("assign"):
        if not callable(function):
            raise GraphError(f"{function!r} is not a function")
        return AssignedBy(function)


def at_close() -> AtClose:
    """For ``emit=``: the results of a window come when it closes, and again when a late row changes them."""
    return AtClose()


def on_change() -> OnChange:
    """For ``emit=``: results come with each batch that changes them, before their window closes."""
    return OnChange()


def every(period: Duration, *, processing_time: bool = False) -> Every:
    """For ``emit=``: results that have changed come when event time, or with ``processing_time`` the clock, reaches the
    next multiple of ``period``, and when their window closes."""
    with located("every"):
        return Every(_positive("period", period), processing_time)


def last(span: Duration | None = None, *, rows: int | None = None) -> Last:
    """For ``over``: of each row, the rows of its key that are at most ``span`` earlier in event time, itself and all
    others of its own time included; or the last ``rows`` rows of its key, itself included, in the order of event time,
    then of arrival."""
    with located("last"):
        if span is not None and rows is None:
            return LastSpan(_positive("span", span))
        if span is not None or rows is None:
            raise GraphError('it takes a duration, last("1h"), or a number of rows, last(rows=10)')
        check_row_count("rows", rows)
        return LastRows(rows)


def forever(*, ttl: Duration | None = None) -> Forever:
    """Matches all rows with equal keys, without a window. With ``ttl`` only rows at most so far apart in event time
    match, and a row is dropped once the watermark is so far past it. As the window of an aggregate with ``emit=``: all
    rows of a key."""
    with located("forever"):
        return Forever(None if ttl is None else _positive("ttl", ttl))


def between(lower: Duration, upper: Duration) -> Between:
    """Matches rows by distance in event time: ``lower <= right.time - left.time <= upper``. For ``("-5m", "0s")`` the
    right row lies in the five minutes up to the left one. Late rows of either side are dropped and counted."""
    with located("between"):
        if micros(lower) > micros(upper):
            raise GraphError(f"{lower!r} is after {upper!r}: the lower bound must not exceed the upper")
        return Between(micros(lower), micros(upper))


def until(column: str) -> Until:
    """Matches right rows from the left row's event time up to the time in one of its columns, such as the bids for an
    auction until it expires. Late rows of either side are dropped and counted."""
    return Until(column)


def as_of(*, oldest: Duration | None = None) -> AsOf:
    """Matches the right row that is valid at the left row's event time: the latest one of its key that is not later,
    such as the exchange rate at that moment; with ``oldest`` only if it is at most that much older. A left row makes at
    most one pair, once the watermark of both sides has passed it. Late left rows are dropped and counted; a late right
    row is valid for the left rows that have not been joined yet."""
    with located("as_of"):
        return AsOf(None if oldest is None else _positive("oldest", oldest))


def _positive(what: str, duration: Duration) -> int:
    found = micros(duration)
    if found <= 0:
        raise GraphError(f"{what} is {duration!r}, it must be more than 0")
    return found
