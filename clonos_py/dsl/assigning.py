"""``stream.with_event_time("at", delay="5s")``: where event time can be assigned after a source, and where it cannot.

A watermark asserts that no partition will deliver an earlier row. Only the source's task has the partition of a row,
and only while it processes that partition's rows. So everything between the source and the assignment must run in that
task, synchronously.
"""

from __future__ import annotations

from clonos_py.dsl.callsite import CallSite
from clonos_py.dsl.loops import loop_before
from clonos_py.dsl.outputs import OutputPort
from clonos_py.dsl.projection import is_event_time
from clonos_py.dsl.shapes import check_columns
from clonos_py.model.errors import GraphError
from clonos_py.model.times import Duration, micros
from clonos_py.plan.logical import (
    AssignEventTimes,
    CallPerRow,
    EventTimeColumn,
    Node,
    Port,
    Spread,
    Unite,
)


def with_assigned_time(
    rows: OutputPort, column: str, delay: Duration, idle: Duration | None, site: CallSite
) -> OutputPort:
    """Adds the assignment. Raises GraphError naming the operator that prevents it."""
    check_columns([column], rows.schema)
    if not is_event_time(found := rows.schema.field(column).type):
        raise GraphError(
            f"column {column!r} is {found}; make it a datetime first, such as "
            f".with_columns({column}=col({column!r}).strptime('%d/%m/%Y %H:%M'))"
        )
    delay_us, idle_us = micros(delay), None if idle is None else micros(idle)
    if delay_us < 0 or (idle_us is not None and idle_us <= 0):
        raise GraphError(f"delay={delay!r}, idle={idle!r}: neither can be negative, nor idle 0")
    if (head := loop_before(rows)) is not None:
        raise GraphError(f"it is in the loop at {head.where} or after it, where there is no event time")
    _check_upstream(rows, rows.port, together=True)
    work = AssignEventTimes(column, delay_us, idle_us)
    time = EventTimeColumn(column)
    return rows.followed("with_event_time", work, (rows.schema,), site, (rows.record,), (time,))


def _check_upstream(rows: OutputPort, port: Port, together: bool) -> None:
    """``together``: only unions and rebalances follow ``port``; the assignment is moved before them."""
    node = rows.draft.nodes[port.node]
    if (problem := _problem(node, together)) is not None:
        raise GraphError(
            f"{problem}: event time is assigned in the tasks of the source, before rows are brought together"
        )
    passes = together and isinstance(node.work, Unite | Spread)
    for before in node.inputs:
        _check_upstream(rows, before, passes)


def _problem(node: Node, together: bool) -> str | None:
    place = f"{node.verb} at {node.where}"
    if node.stateful or any(node.exchange(side) is not None for side in range(len(node.inputs))):
        return f"the stream comes from the {place}; write with_event_time before that, or before its key_by"
    if isinstance(node.work, CallPerRow) and node.work.waiting is not None:
        return (
            f"the stream comes from the `async def` function of the {place}, whose answers come later; write it before"
        )
    if isinstance(node.work, Unite | Spread) and not together:
        return f"the stream comes from the {place}; write with_event_time, and what makes its column, before that"
    return None
