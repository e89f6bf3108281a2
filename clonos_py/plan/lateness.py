"""Where late rows are dropped: before the shuffle, by the watermark that each row finds in its partition.

Sources, and operators that assign event time, give rows a hidden column with this watermark. Filters, projections, row
functions and enrichment pass it on. A step that drops late rows, and the column, is inserted before operators that must
not get them. If late rows are an output themselves, the column is sent to the operator, which separates them.

Operators that get their rows in another way, such as the results of windows, compare them with their own watermark
only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import pyarrow as pa

from clonos_py.columns.row_watermarks import (
    WATERMARK_COLUMN,
    WATERMARK_FIELD,
    has_watermarks,
    schema_without_watermarks,
)
from clonos_py.expressions.tree import Column
from clonos_py.model.plan import OperatorPlan
from clonos_py.model.windows import InPanes, Session, Window
from clonos_py.operators.lateness import BehindWatermark, DropLate, LateForWindows, LateRule
from clonos_py.plan.feeds import feeds
from clonos_py.plan.logical import (
    AggregateOver,
    AggregateWindows,
    AggregateWindowTable,
    AssignEventTimes,
    CallPerRow,
    CallPerWindow,
    EnrichRows,
    ExplodeRows,
    FilterRows,
    JoinHistory,
    JoinVersions,
    JoinWindows,
    LogicalGraph,
    Node,
    Port,
    ProjectColumns,
    ReadSource,
    RunProcess,
    SortRows,
    Spread,
    TopWindows,
    Unite,
)


def marked(graph: LogicalGraph) -> LogicalGraph:
    """The graph with the column of watermarks wherever rows are on their way to an operator that drops late ones."""
    carrying: set[Port] = set()
    taking: set[int] = set()
    for node in graph.nodes:
        for side in range(len(node.inputs)):
            if not takes_watermarks(node) and late_rule(node, side) is None:
                continue
            found = [_carrying(graph, feed.port) for feed in feeds(graph, node.inputs[side], node.reads[side])]
            if takes_watermarks(node):
                if not all(found):
                    continue
                taking.add(node.id)
            carrying.update(port for ports in found if ports for port in ports)
    nodes: dict[int, Node] = {}
    for node in graph.nodes:
        nodes[node.id] = _with_column(node, nodes, carrying, node.id in taking)
    return graph.rebuilt(nodes) if carrying else graph


def dropping_late(name: str, rows: pa.Schema, node: Node, side: int) -> OperatorPlan | None:
    """An operator that drops the late rows before they are sent to a side of a node; None if that side takes them, or
    the node finds them itself."""
    rule = None if takes_watermarks(node) or not has_watermarks(rows) else late_rule(node, side)
    if rule is None:
        return None
    left = schema_without_watermarks(rows)
    return OperatorPlan(name, "drop late", partial(DropLate, rule), (left,), where=node.where, counts_as=node.name)


def takes_watermarks(node: Node) -> bool:
    """Whether the node finds late rows itself."""
    work = node.work
    if not isinstance(work, AggregateWindows) or work.window.processing_time:
        return False
    return work.late or isinstance(work.window, Session)


def late_rule(node: Node, side: int) -> LateRule | None:
    """Which rows of a side are late; None if none is."""
    match node.work:
        case AggregateWindows(window=window, time_column=str(time), lateness_us=lateness_us):
            return None if window.processing_time else _for_windows(window, time, lateness_us)
        case TopWindows(window=window, time_column=time):
            return LateForWindows(window, time)
        case JoinWindows(window=window, left_time=str(left), right_time=str(right)):
            return LateForWindows(window, right if side else left) if isinstance(window, InPanes) else None
        case JoinHistory(bounds=tuple(), left_time=str(left), right_time=str(right)):
            return BehindWatermark(right if side else left)
        case CallPerWindow(window=window, time_column=time):
            return LateForWindows(window, time) if isinstance(window, InPanes) else None
        case AggregateWindowTable(window=window, time_column=str(time), lateness_us=lateness_us):
            return LateForWindows(window, time, lateness_us) if isinstance(window, InPanes) else None
        case SortRows(time_column=time, pass_late=False) | AggregateOver(time_column=time):
            return BehindWatermark(time)
        case JoinVersions(left_time=left):
            return None if side else BehindWatermark(left)
        case RunProcess(in_order=True, inputs=inputs):
            column = inputs[side].time_column
            return None if column is None else BehindWatermark(column)
        case _:
            return None


def _for_windows(window: Window, time: str, lateness_us: int) -> LateRule | None:
    return None if isinstance(window, Session) else LateForWindows(window, time, lateness_us)


def _carrying(graph: LogicalGraph, port: Port) -> set[Port] | None:
    """The ports that must have the column so that ``port`` can have it; None if it cannot."""
    node = graph.by_id[port.node]
    match node.work:
        case ReadSource(event_time=time):
            return {port} if time.columns[port.port] is not None else None
        case AssignEventTimes():
            return {port}
        case FilterRows() | ProjectColumns() | ExplodeRows() | EnrichRows() | CallPerRow(waiting=None) if (
            port.port == 0
        ):
            found = [_carrying(graph, feed.port) for feed in feeds(graph, node.inputs[0], node.reads[0])]
            if None in found:
                return None
            return {port}.union(*(ports for ports in found if ports))
        case _:
            return None


def _with_column(node: Node, before: Mapping[int, Node], carrying: set[Port], takes: bool) -> Node:
    """The node with the column in the rows of its ports in ``carrying``. Filters, unions and rebalances pass it on if
    their input has it. The nodes before it are done already."""
    given = bool(node.inputs) and all(has_watermarks(before[port.node].schemas[port.port]) for port in node.inputs)
    passes = isinstance(node.work, FilterRows | AssignEventTimes | Unite | Spread) or (
        isinstance(node.work, CallPerRow) and node.work.kind == "filter"
    )
    if given and (passes or Port(node.id) in carrying or takes):
        node = replace(node, reads=tuple((*columns, WATERMARK_COLUMN) for columns in node.reads))
    schemas = tuple(
        schema.append(WATERMARK_FIELD)
        if Port(node.id, port) in carrying or (passes and given and port == 0)
        else schema
        for port, schema in enumerate(node.schemas)
    )
    node = replace(node, schemas=schemas)
    if Port(node.id) not in carrying:
        return node
    match node.work:
        case ProjectColumns(columns=columns):
            return replace(node, work=ProjectColumns((*columns, (WATERMARK_COLUMN, Column(WATERMARK_COLUMN)))))
        case EnrichRows(columns=joined) as work:
            return replace(node, work=replace(work, columns=(*joined, (WATERMARK_COLUMN, 0, WATERMARK_COLUMN))))
        case _:
            return node
