"""Windows with ``emit=``: their results are a table, which changes before they close and when late rows come."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from clonos_py.dsl.aggregation import Aggregation
from clonos_py.dsl.callsite import CallSite
from clonos_py.dsl.outputs import OutputPort
from clonos_py.dsl.timing import timed
from clonos_py.dsl.windows import Forever
from clonos_py.model.errors import GraphError
from clonos_py.model.windows import (
    BOUNDS,
    WINDOW_END,
    Assigned,
    AtClose,
    Bounded,
    Cumulative,
    Emit,
    Every,
    InPanes,
    Session,
)
from clonos_py.plan.logical import AggregateWindowTable


@dataclass(frozen=True)
class EmittingWindows:
    """``window``: None for all rows."""

    window: Bounded | Session | None
    emit: Emit
    lateness_us: int

    @property
    def shrinks(self) -> bool:
        """Whether rows of the table are deleted: a session that grows is another row."""
        return isinstance(self.window, Session)

    @property
    def timed(self) -> bool:
        """Whether it needs event time."""
        return self.window is not None or (isinstance(self.emit, Every) and not self.emit.processing_time)


def emitting(window: object, emit: object, lateness_us: int) -> EmittingWindows:
    """Raises GraphError for windows, and times to emit, that do not go together."""
    if not isinstance(emit, Emit):
        raise GraphError(f'emit is {emit!r}: use at_close(), on_change() or every("10s")')
    if isinstance(window, Forever):
        if window.ttl_us is not None or lateness_us or isinstance(emit, AtClose):
            raise GraphError(
                "forever() never closes, and no row of it is late: leave out ttl= and lateness=, and emit on_change() "
                'or every("10s")'
            )
        return EmittingWindows(None, emit, 0)
    if isinstance(window, Assigned):
        return EmittingWindows(window, emit, lateness_us)
    if not isinstance(window, InPanes | Session) or window.processing_time:
        raise GraphError(
            "emit= takes tumbling, hopping and cumulative windows and sessions in event time, assign(...) and "
            "forever(); other windows give their results once: leave it out"
        )
    return EmittingWindows(window, emit, lateness_us)


def aggregated_in_emitting_windows(
    rows: OutputPort, keys: tuple[str, ...], windows: EmittingWindows, found: Aggregation, site: CallSite
) -> tuple[OutputPort, tuple[str, ...]]:
    """Adds an aggregate, and returns the columns by which rows of the table are identified, too."""
    identity = (*keys, *_bounds(windows.window, found.schema))
    rows, time = rows.extended(found.computed, site), None
    if windows.timed:
        rows, time = timed(rows, site)
    work = AggregateWindowTable(keys, windows.window, found.aggregates, time, windows.lateness_us, windows.emit)
    return rows.followed("aggregate", work, (found.schema,), site, (found.record,)), identity


def _bounds(window: Bounded | Session | None, schema: pa.Schema) -> tuple[str, ...]:
    if window is None:
        return ()
    found = tuple(name for name in BOUNDS if name in schema.names)
    if not found or (isinstance(window, Cumulative | Assigned) and WINDOW_END not in found):
        raise GraphError(f"the result has no field {WINDOW_END!r}: it identifies the row that a later one replaces")
    return found
