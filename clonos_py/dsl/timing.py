"""The event time of rows for windows and joins: a column whose value lies in the window of the row."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pyarrow as pa

from clonos_py.columns.times import MOMENT
from clonos_py.dsl.callsite import CallSite
from clonos_py.dsl.expressions import col
from clonos_py.dsl.functions import Shape
from clonos_py.dsl.loops import loop_before
from clonos_py.dsl.outputs import OutputPort
from clonos_py.model.errors import GraphError
from clonos_py.model.hidden import hidden
from clonos_py.model.record import schema_of
from clonos_py.model.times import Duration, micros
from clonos_py.model.windows import BOUNDS, WINDOW_END
from clonos_py.plan.logical import EventTimeColumn, Port, ProjectColumns

EVENT_TIME_COLUMN = hidden("event_time")


def timed(rows: OutputPort, site: CallSite, what: str = "this stream") -> tuple[OutputPort, str]:
    """The rows, and their event-time column in microseconds. A window's result belongs to that window, not to the next
    one, which begins at ``window_end``. So an earlier time is computed for it; a column is also computed for datetimes
    of another unit. Raises GraphError without event time."""
    time = rows.time
    if (head := loop_before(rows)) is not None:
        raise GraphError(
            f"{what} comes out of the loop at {head.where}, and in a loop and behind it no event time passes before "
            "the loop ends; write what needs event time before it, or use processing_time=True, or a table"
        )
    if time is None:
        raise GraphError(
            f"{what} has no event time; say which column it is at job.source(..., event_time='...'), or with "
            ".with_event_time('...') behind it, and keep that column (after a window keep window_end), or use "
            "processing_time=True"
        )
    type_ = rows.schema.field(time.name).type
    if not time.offset_us and type_ in (pa.int64(), MOMENT):
        return rows, time.name
    whole = col(time.name) if type_ in (pa.int64(), MOMENT) else col(time.name).cast(MOMENT)
    offset = time.offset_us if type_ == pa.int64() else timedelta(microseconds=time.offset_us)
    computed = [(EVENT_TIME_COLUMN, (whole + offset if time.offset_us else whole).node)]
    for node in rows.draft.nodes:
        made = isinstance(node.work, ProjectColumns) and node.work.columns[-1:] == tuple(computed)
        if made and node.inputs == (rows.port,):
            return OutputPort(rows.draft, Port(node.id)), EVENT_TIME_COLUMN
    return rows.extended(computed, site), EVENT_TIME_COLUMN


def time_to_live(ttl: Duration) -> int:
    """In microseconds. Raises GraphError if it is not more than 0."""
    if (ttl_us := micros(ttl)) <= 0:
        raise GraphError(f"ttl is {ttl!r}: it must be more than 0")
    return ttl_us


def window_bounds(rows: OutputPort, into: Shape | None) -> Mapping[str, pa.Field[Any]]:
    """The fields ``window_start`` and ``window_end``: datetimes or Instants, as ``into`` declares them, else as the
    event time of the rows is."""
    timed_by = None if rows.time is None else rows.schema.field(rows.time.name).type
    default = pa.int64() if timed_by is None or timed_by == pa.int64() else MOMENT
    target = pa.schema([]) if into is None else schema_of(into)
    return {name: pa.field(name, _bound_type(target, name, default), nullable=False) for name in BOUNDS}


def window_closed(schema: pa.Schema) -> EventTimeColumn | None:
    """The event time of results that have the end of their window: just before it."""
    known = WINDOW_END in schema.names and schema.field(WINDOW_END).type in (pa.int64(), MOMENT)
    return EventTimeColumn(WINDOW_END, -1) if known else None


def _bound_type(target: pa.Schema, name: str, default: pa.DataType) -> pa.DataType:
    declared = target.field(name).type if name in target.names else default
    return declared if declared in (pa.int64(), MOMENT) else default
