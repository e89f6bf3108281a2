"""Maps each node of the logical graph to the operator class that does its work, with its arguments."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Literal

import pyarrow as pa

from clonos_py.columns.row_watermarks import WATERMARK_FIELD, has_watermarks, schema_without_watermarks
from clonos_py.expressions.sharing import compiled
from clonos_py.expressions.tree import Column
from clonos_py.model.connectors import Delivery
from clonos_py.model.errors import GraphError
from clonos_py.model.operators import Operator
from clonos_py.model.plan import OperatorPlan, SourcePlan
from clonos_py.model.windows import Assigned, Cumulative, Hopping, Session, Tumbling
from clonos_py.operators.delta_join import DeltaJoin
from clonos_py.operators.distinct import Distinct, DistinctCombine
from clonos_py.operators.enrichment import Enrich
from clonos_py.operators.event_time import AssignEventTime
from clonos_py.operators.history_join import HistoryJoin
from clonos_py.operators.loops import LoopEntry
from clonos_py.operators.sessions import SessionAggregate, SessionCombine
from clonos_py.operators.stateless import Filter, MapBatches, Project
from clonos_py.operators.table_changes import TableChanges
from clonos_py.operators.table_join import TableJoin
from clonos_py.operators.table_output import TableOutput
from clonos_py.operators.table_top import TableTop
from clonos_py.operators.tables import TableAggregate, TableCombine, combined_table_schema
from clonos_py.operators.top import TopCombine, TopRows
from clonos_py.operators.version_join import VersionJoin
from clonos_py.operators.window_join import WindowJoin
from clonos_py.operators.window_top import WindowTop, WindowTopCombine
from clonos_py.operators.windows import WindowAggregate, WindowCombine, combined_schema
from clonos_py.plan.lasting_state import remedy
from clonos_py.plan.logical import (
    AggregateCounted,
    AggregateOver,
    AggregateTable,
    AggregateWindows,
    AggregateWindowTable,
    AssignEventTimes,
    CallPerBatch,
    CallPerRow,
    CallPerWindow,
    DistinctRows,
    EnrichRows,
    ExplodeRows,
    FilterRows,
    GatherRows,
    JoinDeltas,
    JoinHistory,
    JoinTable,
    JoinVersions,
    JoinWindows,
    LimitRows,
    LookUpRows,
    LoopHead,
    MergeDeltas,
    Node,
    ProjectColumns,
    ReadSource,
    ReduceRows,
    RunProcess,
    ShowChanges,
    SortRows,
    TopCounted,
    TopTable,
    TopWindows,
    WriteSink,
)

Factory = Callable[[], Operator]


def source_plan(node: Node, read_rows: int | None, merge_rows: int, adaptive: bool) -> SourcePlan:
    """The source of a vertex. ``read_rows``: the most rows of a read. Others: see ``SourcePlan``."""
    work = node.work
    assert isinstance(work, ReadSource)
    factory = partial(work.definition.create, work.columns, read_rows=read_rows)
    marked = frozenset(port for port, schema in enumerate(node.schemas) if has_watermarks(schema))
    schemas = tuple(map(schema_without_watermarks, node.schemas))
    return SourcePlan(
        node.name, factory, schemas, work.event_time, merge_rows, adaptive, work.definition.commits, marked
    )


def operator_plan(node: Node, rows: pa.Schema) -> OperatorPlan:
    """The operator of a node whose (first) input has the columns ``rows``."""
    try:
        factory = _factory(node, rows)
    except GraphError as error:
        raise GraphError(f"{node.where}: {node.name}: {error}") from error
    sink = isinstance(node.work, WriteSink)
    causal = isinstance(node.work, WriteSink) and node.work.definition.delivery == Delivery.CAUSAL
    schemas = (
        (node.schemas[0], schema_without_watermarks(rows)) if isinstance(node.work, AggregateWindows) else node.schemas
    )
    return OperatorPlan(
        node.name, node.verb, factory, schemas, node.stateful, sink, causal, node.where, lasting=bool(remedy(node))
    )


def narrowing(name: str, rows: pa.Schema, columns: tuple[str, ...]) -> OperatorPlan:
    """An operator that drops the columns that are not sent on."""
    schema = _some_of(rows, columns)
    made = tuple((column, Column(column).compile(rows, name)) for column in columns)
    return OperatorPlan(name, "narrow", partial(Project, made, schema), (schema,))


def combining(name: str, rows: pa.Schema, node: Node, columns: tuple[str, ...]) -> OperatorPlan | None:
    """An operator that combines a batch before it is sent, and keeps ``columns``; None if nothing can be combined."""
    make: Any = None
    schema = rows
    match work := node.work:
        case AggregateWindows(combined=True):
            schema = combined_schema(rows, work.keys, work.window, work.aggregates)
            if has_watermarks(rows):
                schema = schema.append(WATERMARK_FIELD)
            operator: Any = SessionCombine if isinstance(work.window, Session) else WindowCombine
            make = partial(operator, work.keys, work.window, work.aggregates, work.time_column)
        case AggregateTable(combined=True):
            schema = combined_table_schema(rows, work.keys, work.aggregates)
            make = partial(TableCombine, work.keys, work.aggregates, work.weighted)
        case TopTable(table_keys=None):
            schema = _some_of(rows, columns)
            make = partial(TopCombine, work.keys, work.n, work.order, columns)
        case DistinctRows(keys=keys, ttl_us=None):
            schema = _some_of(rows, columns)
            make = partial(DistinctCombine, keys, columns)
        case LimitRows(n):
            from clonos_py.operators.limit import LimitCombine

            schema = _some_of(rows, columns)
            make = partial(LimitCombine, n, columns)
        case TopWindows():
            schema = _some_of(rows, columns)
            make = partial(WindowTopCombine, work.keys, work.window, work.n, work.order, work.time_column, columns)
    return None if make is None else OperatorPlan(name, "combine", make, (schema,), where=node.where)


def _some_of(rows: pa.Schema, columns: tuple[str, ...]) -> pa.Schema:
    return pa.schema([rows.field(column) for column in columns])


def _factory(node: Node, rows: pa.Schema) -> Factory:
    match node.work:
        case WriteSink(definition):
            return partial(definition.create, rows)
        case AssignEventTimes(column, out_of_order_us):
            return partial(AssignEventTime, column, out_of_order_us, has_watermarks(node.schemas[0]))
        case FilterRows(predicate):
            ((_, only),), shared = compiled([("", predicate)], rows, node.name)
            return partial(Filter, only, shared)
        case LoopHead():
            return LoopEntry
        case GatherRows():
            from clonos_py.operators.broadcast import Gather

            return Gather
        case ProjectColumns(columns):
            made, shared = compiled(columns, rows, node.name)
            return partial(Project, made, node.schemas[0], shared)
        case EnrichRows() as work:
            side = partial(work.definition.create, (None,))
            return partial(
                Enrich, side, work.definition.schemas[0], work.keys, work.side_keys, work.columns, node.schemas[0],
                work.how,
            )  # fmt: skip
        case ExplodeRows(column, keep_empty):
            from clonos_py.operators.explosion import Explode

            return partial(Explode, column, node.schemas[0], keep_empty)
        case CallPerRow() as work:
            return _row_factory(node, work)
        case CallPerBatch(function, wants_ctx, kind, (rows_at_once, wait_us)):
            from clonos_py.operators.gathered_batches import MapGatheredBatches

            return partial(MapGatheredBatches, function, node.schemas[0], rows_at_once, wait_us, wants_ctx, kind)
        case CallPerBatch(function, wants_ctx, kind):
            return partial(MapBatches, function, node.schemas[0], wants_ctx, kind)
        case CallPerWindow(window=Session() as session) as work:
            from clonos_py.operators.window_groups import MapSessions

            return partial(
                MapSessions, work.function, work.given, node.schemas[0], _some_of(rows, work.keys), session,
                work.time_column, work.wants_ctx, work.kind,
            )  # fmt: skip
        case CallPerWindow(window=Tumbling() | Hopping() | Cumulative() | Assigned() as window) as work:
            from clonos_py.operators.window_groups import MapWindows

            return partial(
                MapWindows, work.function, work.given, node.schemas[0], work.keys, window, work.time_column,
                work.wants_ctx, work.kind,
            )  # fmt: skip
        case AggregateTable() as work:
            return partial(
                TableAggregate, work.keys, work.aggregates, node.schemas[0], work.mode, work.weighted, work.combined,
                work.retract_when_changed, work.kind, work.table_keys, work.ttl_us,
            )  # fmt: skip
        case TopTable() as work:
            of_rows = partial(TopRows, ttl_us=work.ttl_us, time_column=work.time_column)
            top = of_rows if work.table_keys is None else partial(TableTop, table_keys=work.table_keys)
            return partial(
                top,
                work.keys,
                work.n,
                work.order,
                node.schemas[0],
                work.mode,
                work.rank,
                work.retract_when_changed,
                work.kind,
            )
        case TopWindows(keys, window, n, order, time_column, rank):
            return partial(WindowTop, keys, window, n, order, node.schemas[0], time_column, rank)
        case LimitRows(n):
            from clonos_py.operators.limit import Limit

            return partial(Limit, n)
        case SortRows(keys, time_column, pass_late):
            from clonos_py.operators.sort import Sort

            return partial(Sort, keys, time_column, node.schemas[0], pass_late)
        case ReduceRows(keys, aggregates):
            from clonos_py.operators.running import RunningAggregate

            return partial(RunningAggregate, keys, aggregates, node.schemas[0])
        case DistinctRows(keys, ttl_us, time_column):
            return partial(Distinct, keys, node.schemas[0], ttl_us, time_column)
        case AggregateWindows() as work:
            return _window_factory(node, work)
        case AggregateCounted() | TopCounted() as work:
            return _count_window_factory(node, work)
        case AggregateWindowTable(window=Session() as session, time_column=str(time_column)) as work:
            from clonos_py.operators.session_table import SessionTable

            return partial(
                SessionTable, work.keys, session, work.aggregates, node.schemas[0], work.emit, work.mode,
                time_column, work.lateness_us, work.retract_when_changed, work.kind,
            )  # fmt: skip
        case AggregateWindowTable(window=None | Tumbling() | Hopping() | Cumulative() | Assigned() as window) as work:
            from clonos_py.operators.window_table import WindowTable

            return partial(
                WindowTable, work.keys, window, work.aggregates, node.schemas[0], work.emit, work.mode,
                work.time_column, work.lateness_us, work.retract_when_changed, work.kind,
            )  # fmt: skip
        case AggregateOver(keys, last, aggregates, time_column):
            from clonos_py.operators.over import Over

            return partial(Over, keys, last, aggregates, node.schemas[0], time_column)
        case JoinWindows(window=Session() as window, left_time=str(left_time), right_time=str(right_time)) as work:
            from clonos_py.operators.session_join import SessionJoin

            return partial(
                SessionJoin, _some_of(rows, work.left_keys), work.right_keys, window, left_time, right_time,
                work.columns, node.schemas[0], work.how,
            )  # fmt: skip
        case JoinWindows(window=Tumbling() | Hopping() as window) as work:
            return partial(
                WindowJoin, work.left_keys, work.right_keys, window, work.left_time or "", work.right_time or "",
                work.columns, node.schemas[0], work.how,
            )  # fmt: skip
        case JoinHistory() as work:
            return partial(
                HistoryJoin, work.left_keys, work.right_keys, work.columns, node.schemas[0], work.bounds,
                work.left_time, work.right_time, work.first, work.how,
            )  # fmt: skip
        case JoinVersions() as work:
            return partial(
                VersionJoin, work.left_keys, work.right_keys, work.left_time, work.right_time, work.columns,
                node.schemas[0], work.oldest_us, work.how,
            )  # fmt: skip
        case JoinTable() as work:
            return partial(
                TableJoin, work.left_keys, work.right_keys, work.side, work.columns, node.schemas[0], work.how,
                work.load_first,
            )  # fmt: skip
        case JoinDeltas() as work:
            left, right = (tuple(name for name in read if name != work.weight) for read in node.reads)
            return partial(
                DeltaJoin, (work.left_keys, work.right_keys), (left, right), work.columns, node.schemas[0], work.how,
                work.weight,
            )  # fmt: skip
        case ShowChanges(keys, kind):
            return partial(TableChanges, keys, TableOutput(node.schemas[0], "changes", kind=kind))
        case MergeDeltas(keys, moves):
            return partial(TableChanges, keys, TableOutput(node.schemas[0], "deltas", moves))
        case LookUpRows() as work:
            return _lookup_factory(node, work)
        case RunProcess() as work:
            return _process_factory(work)
    raise GraphError(f"{node.verb} is no operator")


# Some jobs import what few jobs use and what takes a hundredth of the time of `clonos plan` or more.


def _row_factory(node: Node, work: CallPerRow) -> Factory:
    on_error: Literal["fail", "catch"] = "catch" if work.catch else "fail"
    function, row, schema = work.function, work.row_type, schema_without_watermarks(node.schemas[0])
    if work.waiting is not None:
        from clonos_py.operators.async_rows import MapAsyncRows

        return partial(MapAsyncRows, function, row, schema, work.kind, work.wants_ctx, work.waiting, on_error)
    from clonos_py.operators.rows import MapRows

    return partial(MapRows, function, row, schema, work.kind, work.wants_ctx, on_error)


def _lookup_factory(node: Node, work: LookUpRows) -> Factory:
    from clonos_py.operators.lookup import LookUp

    return partial(
        LookUp, work.keys, work.function, work.wants_ctx, work.answers, work.columns, node.schemas[0], work.options,
        work.how, "catch" if work.catch else "fail",
    )  # fmt: skip


def _window_factory(node: Node, work: AggregateWindows) -> Factory:
    operator: Any = SessionAggregate if isinstance(work.window, Session) else WindowAggregate
    return partial(
        operator, work.keys, work.window, work.aggregates, node.schemas[0], work.time_column, work.lateness_us,
        combined=work.combined,
    )  # fmt: skip


def _count_window_factory(node: Node, work: AggregateCounted | TopCounted) -> Factory:
    from clonos_py.operators.count_windows import CountWindowAggregate, CountWindowTop

    if isinstance(work, TopCounted):
        return partial(CountWindowTop, work.keys, work.window, work.n, work.order, node.schemas[0], work.rank)
    return partial(CountWindowAggregate, work.keys, work.window, work.aggregates, node.schemas[0])


def _process_factory(work: RunProcess) -> Factory:
    from clonos_py.operators.process import ProcessOperator

    operator = ProcessOperator
    if any(given.broadcast for given in work.inputs):
        from clonos_py.operators.broadcast import BroadcastOperator

        operator = BroadcastOperator
    return partial(operator, work.process, work.inputs, work.outputs, work.in_order, work.catch)
