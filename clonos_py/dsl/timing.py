"""Event time of rows as windows and joins need it: a column whose value lies in the window of the row."""

from __future__ import annotations

from clonos_py.dsl.callsite import CallSite
from clonos_py.dsl.expressions import col
from clonos_py.dsl.loops import loop_before
from clonos_py.dsl.outputs import OutputPort
from clonos_py.model.errors import GraphError
from clonos_py.model.hidden import hidden
from clonos_py.plan.logical import Port, ProjectColumns

EVENT_TIME_COLUMN = hidden("event_time")


def timed(rows: OutputPort, site: CallSite, what: str = "this stream") -> tuple[OutputPort, str]:
    """The rows and their event-time column. A result of a window belongs to the window it came from, not to the next
    one, which begins at its ``window_end``: for these a column is computed. Raises GraphError without event time."""
    time = rows.time
    if (head := loop_before(rows)) is not None:
        raise GraphError(
            f"{what} comes out of the loop at {head.where}, and in a loop and behind it no event time passes before "
            "the loop ends; write what needs event time before it, or use processing_time=True, or a table"
        )
    if time is None:
        raise GraphError(
            f"{what} has no event time; say which column it is at job.source(..., event_time='...') and keep that "
            "column (after a window keep window_end), or use processing_time=True"
        )
    if not time.offset_us:
        return rows, time.name
    computed = [(EVENT_TIME_COLUMN, (col(time.name) + time.offset_us).node)]
    for node in rows.draft.nodes:
        made = isinstance(node.work, ProjectColumns) and node.work.columns[-1:] == tuple(computed)
        if made and node.inputs == (rows.port,):
            return OutputPort(rows.draft, Port(node.id)), EVENT_TIME_COLUMN
    return rows.extended(computed, site), EVENT_TIME_COLUMN
