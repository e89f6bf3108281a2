"""Windows of the user's own: an assigner adds their bounds to rows; and functions of whole windows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa

from clonos_py.dsl.aggregation import Aggregation
from clonos_py.dsl.callsite import CallSite
from clonos_py.dsl.emitting import EmittingWindows, aggregated_in_emitting_windows
from clonos_py.dsl.functions import Shape, record_of, returned, signature_of
from clonos_py.dsl.mapping import frame_kind
from clonos_py.dsl.outputs import OutputPort
from clonos_py.dsl.projection import carried
from clonos_py.dsl.shapes import refuse_nested
from clonos_py.dsl.timing import timed, window_bounds, window_closed
from clonos_py.dsl.windows import AssignedBy
from clonos_py.model.errors import GraphError
from clonos_py.model.hidden import is_hidden
from clonos_py.model.record import schema_of
from clonos_py.model.windows import ASSIGNED_BOUNDS, BOUNDS, Assigned, AtClose, Bounded, InPanes, Session
from clonos_py.operators.assigners import Assigner
from clonos_py.plan.logical import CallPerBatch, CallPerWindow


def assigned(rows: OutputPort, window: AssignedBy, site: CallSite) -> OutputPort:
    """Adds the assigner."""
    _refuse_bounds(rows)
    signature = signature_of(window.function, site.names)
    if signature.wants_ctx:
        raise GraphError("a function that assigns windows takes rows only, no ctx: windows follow from the rows alone")
    timed(rows, site)
    bounds: list[Any] = [pa.field(name, pa.int64(), nullable=False) for name in ASSIGNED_BOUNDS]
    schema = pa.schema([*rows.schema, *bounds])
    work = CallPerBatch(Assigner(window.function, frame_kind(signature), schema), False)
    return rows.followed("assign", work, (schema,), site, (None,), (carried(rows.time, schema),))


def aggregated_in_assigned_windows(
    rows: OutputPort, keys: tuple[str, ...], found: Aggregation, site: CallSite
) -> OutputPort:
    """Adds an aggregate over assigned windows. Each gives its result once, when it closes."""
    windows = EmittingWindows(Assigned(), AtClose(), 0)
    output, _ = aggregated_in_emitting_windows(rows, keys, windows, found, site)
    work: Any = output.node.work
    return output.changed(work=replace(work, mode="at_end"), times=(window_closed(found.schema),))


def mapped_windows(
    rows: OutputPort,
    keys: tuple[str, ...],
    window: Bounded | Session,
    function: Callable[..., Any],
    returns: Shape,
    site: CallSite,
) -> OutputPort:
    """Adds a function of whole windows."""
    _refuse_bounds(rows)
    refuse_nested("key", keys, rows.schema)
    signature = signature_of(function, site.names)
    shape = returned(signature, returns, many=False)
    seen = [field for field in rows.schema if not is_hidden(field.name)]
    given = pa.schema([*seen, *window_bounds(rows, None).values()])
    rows, time = timed(rows, site)
    work = CallPerWindow(keys, window, function, given, time, signature.wants_ctx, frame_kind(signature))
    schema = schema_of(shape)
    return rows.followed("map_groups", work, (schema,), site, (record_of(shape),), (window_closed(schema),))


def whole_windows(window: object, lateness_us: int) -> InPanes | Session:
    """The window of ``map_groups``. Raises GraphError for one that it does not take."""
    if not isinstance(window, InPanes | Session) or window.processing_time or lateness_us:
        raise GraphError(
            "it takes tumbling, hopping, cumulative and session windows in event time, or assign(...), and no "
            "lateness: a function is called once for each window"
        )
    return window


def _refuse_bounds(rows: OutputPort) -> None:
    if taken := [name for name in BOUNDS if name in rows.schema.names]:
        raise GraphError(f"the rows have a column {taken[0]!r} already, of other windows: leave it out, or rename it")
