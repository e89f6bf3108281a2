"""Event time of streams as windows and joins need it: a column whose value lies in the window of the row."""

from __future__ import annotations

from typing import Any

from clonos_py.dsl.callsite import CallSite
from clonos_py.dsl.expressions import col
from clonos_py.dsl.stream import Stream
from clonos_py.model.errors import GraphError
from clonos_py.model.hidden import hidden
from clonos_py.plan.logical import Port, ProjectColumns

EVENT_TIME_COLUMN = hidden("event_time")


def timed(stream: Stream[Any], site: CallSite, what: str = "this stream") -> tuple[Stream[Any], str]:
    """The stream and its event-time column. A result of a window belongs to the window it came from, not to the next
    one, which begins at its ``window_end``: for these a column is computed. Raises GraphError without event time."""
    time = stream._time
    if time is None:
        raise GraphError(
            f"{what} has no event time; say which column it is at job.source(..., event_time='...') and keep that "
            "column (after a window keep window_end), or use processing_time=True"
        )
    if not time.offset_us:
        return stream, time.name
    computed = [(EVENT_TIME_COLUMN, (col(time.name) + time.offset_us).node)]
    for node in stream._draft.nodes:
        made = isinstance(node.work, ProjectColumns) and node.work.columns[-1:] == tuple(computed)
        if made and node.inputs == (stream._port,):
            return Stream(stream._draft, Port(node.id)), EVENT_TIME_COLUMN
    return stream._extended(computed, site), EVENT_TIME_COLUMN
