"""Column pruning: finds the columns that are read, from the sinks back to the sources, and drops the others (D14).

After it, every node has by side the columns that it reads, every projection makes only columns that are read, and every
source delivers only those. A stream of which only the number of rows matters keeps its narrowest column.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

import pyarrow as pa

from clonos_py.model.tables import WEIGHT_COLUMN
from clonos_py.model.windows import ASSIGNED_BOUNDS, BOUNDS, Assigned
from clonos_py.plan.logical import (
    AGGREGATING,
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
    LogicalGraph,
    LookUpRows,
    LoopHead,
    MergeDeltas,
    Node,
    Port,
    ProjectColumns,
    ReadSource,
    ReduceRows,
    RunProcess,
    ShowChanges,
    SortRows,
    Spread,
    TopCounted,
    TopTable,
    TopWindows,
    Unite,
    WriteSink,
)

RequiredColumns = Mapping[Port, frozenset[str]]


def prune(graph: LogicalGraph) -> LogicalGraph:
    """The graph with unread columns removed. Notes state how many of each source's columns are read."""
    timed = _timed_ports(graph)
    required = {node.tail: frozenset(graph.schema(node.tail).names) for node in graph.nodes if node.tail is not None}
    reads: dict[int, tuple[tuple[str, ...], ...]] = {}
    for node in reversed(graph.nodes):
        for port in range(len(node.schemas)):
            found = Port(node.id, port)
            own = _event_time_column(node, port) if found in timed else frozenset[str]()
            required[found] = required.get(found, frozenset()) | own
        sides = [_some(_read(node, side, graph, required), graph.schema(port)) for side, port in enumerate(node.inputs)]
        reads[node.id] = tuple(_ordered(graph.schema(p), names) for p, names in zip(node.inputs, sides, strict=True))
        for port_read, names in zip(node.inputs, sides, strict=True):
            required[port_read] = required.get(port_read, frozenset()) | names
    pruned: dict[int, Node] = {}
    for node in graph.nodes:
        pruned[node.id] = _pruned(replace(node, reads=reads[node.id]), pruned, required, timed)
    return graph.rebuilt(pruned, *_notes(graph, pruned))


def _timed_ports(graph: LogicalGraph) -> set[Port]:
    """The ports whose event time is used downstream; a function with ctx may ask for the watermark. If one source waits
    for slower ones, those of all sources."""
    timed: set[Port] = set()
    aligned = any(isinstance(n.work, ReadSource) and n.work.event_time.ahead_us is not None for n in graph.nodes)
    for node in reversed(graph.nodes):
        match node.work:
            case AssignEventTimes():
                needs = False
            case ReadSource(event_time=time) if aligned:
                timed.update(Port(node.id, port) for port, column in enumerate(time.columns) if column)
                continue
            case AggregateWindows(time_column=str()) | AggregateWindowTable(time_column=str()) | AggregateOver():
                needs = True
            case TopWindows() | SortRows() | JoinVersions() | CallPerWindow() | RunProcess():
                needs = True
            case JoinWindows(left_time=str()) | JoinHistory(left_time=str()):
                needs = True
            case DistinctRows(time_column=str()) | TopTable(time_column=str()) | AggregateTable(ttl_us=int()):
                needs = True
            case CallPerRow(wants_ctx=True) | CallPerBatch(wants_ctx=True):
                needs = True
            case _:
                needs = any(Port(node.id, port) in timed for port in range(len(node.schemas)))
        if needs:
            timed.update(port for side, port in enumerate(node.inputs) if not node.untimed(side))
    return timed


def _event_time_column(node: Node, port: int) -> frozenset[str]:
    column = node.work.event_time.columns[port] if isinstance(node.work, ReadSource) else None
    return frozenset() if column is None else frozenset([column])


def _read(node: Node, side: int, graph: LogicalGraph, required: RequiredColumns) -> frozenset[str]:
    """The columns that a node reads on a side, given the columns required of its output."""
    every = frozenset(graph.schema(node.inputs[side]).names)
    passed = required[Port(node.id)] if node.schemas else frozenset()
    match node.work:
        case AssignEventTimes(column=column):
            return passed | {column}
        case ExplodeRows(column=column):
            return passed | {column}
        case FilterRows(predicate=predicate):
            return passed | predicate.inputs()
        case ProjectColumns(columns=columns):
            return frozenset(column for name, made in columns if name in passed for column in made.inputs())
        case CallPerRow(kind=kind, row_type=row_type):
            row = every if row_type is None else frozenset(row_type.__struct_encode_fields__)
            return row | passed if kind == "filter" else row
        case Unite() | Spread() | GatherRows() | LimitRows():
            return passed
        case AggregateWindows(late=True):
            return every
        case _ if isinstance(node.work, AGGREGATING):
            work = node.work
            if any(aggregate.user is not None and aggregate.column is None for aggregate in work.aggregates):
                return every
            further = passed - _named(*work.made) if isinstance(work, AggregateOver) else ()
            return _named(*work.keys, *_further(work), *further, *(aggregate.column for aggregate in work.aggregates))
        case TopTable(keys=keys, order=order, table_keys=table_keys) as work:
            of_table = () if table_keys is None else (*table_keys, WEIGHT_COLUMN)
            others = passed - _named(work.rank, work.kind, WEIGHT_COLUMN)
            return _named(*keys, work.time_column, *(key.column for key in order), *of_table, *others)
        case SortRows(keys=keys, time_column=time):
            return _named(*keys, time, *passed)
        case ReduceRows(keys=keys, aggregates=aggregates):
            made = {aggregate.name for aggregate in aggregates}
            return _named(*keys, *(aggregate.column for aggregate in aggregates), *(passed - made))
        case DistinctRows(keys=keys, time_column=time):
            return _named(*keys, time, *passed)
        case JoinWindows() | JoinHistory() | JoinVersions() as work:
            keys, time = ((work.left_keys, work.left_time), (work.right_keys, work.right_time))[side]
            taken = (column for name, from_side, column in work.columns if from_side == side and name in passed)
            end = work.bounds[1] if isinstance(work, JoinHistory) and work.bounds and side == 0 else None
            return _named(*keys, time, end if isinstance(end, str) else None, *taken)
        case TopCounted(keys=keys, order=order, rank=rank):
            return _named(*keys, *(key.column for key in order), *(passed - _named(rank)))
        case TopWindows(keys=keys, order=order, time_column=time, rank=rank):
            own = (*BOUNDS, rank)
            return _named(*keys, time, *(key.column for key in order), *(name for name in passed if name not in own))
        case JoinDeltas() as work:
            taken = (column for name, from_side, column in work.columns if from_side == side and name in passed)
            return _named(*(work.right_keys if side else work.left_keys), *work.sides[side], work.weight, *taken)
        case JoinTable() as work:
            taken = (column for name, from_side, column in work.columns if from_side == side and name in passed)
            if side == 0:
                return _named(*work.left_keys, *taken)
            return _named(*work.right_keys, *work.side, WEIGHT_COLUMN, *taken)
        case ShowChanges() as work:
            return _named(*work.keys, WEIGHT_COLUMN, *(passed - _named(work.kind)))
        case MergeDeltas() as work:
            return _named(*work.keys, *work.moves, WEIGHT_COLUMN, *passed)
        case EnrichRows(keys=keys, columns=columns) | LookUpRows(keys=keys, columns=columns):
            return _named(*keys, *(column for name, from_side, column in columns if not from_side and name in passed))
        case RunProcess(inputs=inputs):
            given = inputs[side]
            fields = every if given.row_type is None else given.row_type.__struct_encode_fields__
            return _named(*given.keys, given.time_column, *fields)
        case CallPerBatch() | CallPerWindow() | WriteSink() | ReadSource() | LoopHead():
            return every


def _further(work: AGGREGATING) -> tuple[str | None, ...]:
    """Columns that the work reads besides keys and aggregated columns."""
    if isinstance(work, AggregateWindowTable) and isinstance(work.window, Assigned):
        return (work.time_column, *ASSIGNED_BOUNDS)
    if isinstance(work, AggregateWindows | AggregateWindowTable | AggregateOver):
        return (work.time_column,)
    return (WEIGHT_COLUMN, *work.table_keys) if isinstance(work, AggregateTable) and work.weighted else ()


def _named(*names: str | None) -> frozenset[str]:
    return frozenset(name for name in names if name is not None)


def _pruned(node: Node, before: Mapping[int, Node], required: RequiredColumns, timed: set[Port]) -> Node:
    """The node with only the required columns; its inputs are pruned already."""
    names = required[Port(node.id)] if node.schemas else frozenset()
    match node.work:
        case ReadSource() as work:
            ports = range(len(node.schemas))
            schemas = tuple(_narrowed(node.schemas[p], required[Port(node.id, p)]) for p in ports)
            times = tuple(c if Port(node.id, p) in timed else None for p, c in enumerate(work.event_time.columns))
            event_time = replace(work.event_time, columns=times)
            columns = tuple(_projection(work.definition.schemas[p], schemas[p]) for p in ports)
            return replace(node, schemas=schemas, work=replace(work, columns=columns, event_time=event_time))
        case ProjectColumns(columns=made):
            kept = tuple((name, expression) for name, expression in made if name in names)
            return replace(node, work=ProjectColumns(kept), schemas=(_narrowed(node.schemas[0], names),))
        case Unite() | Spread() | GatherRows() | LimitRows():
            return replace(node, schemas=(_narrowed(node.schemas[0], frozenset(node.reads[0])),))
        case TopTable() | TopWindows() | TopCounted() | SortRows() | ReduceRows() | DistinctRows():
            return replace(node, schemas=(_narrowed(node.schemas[0], names),))
        case ExplodeRows() | ShowChanges() | MergeDeltas():
            return replace(node, schemas=(_narrowed(node.schemas[0], names),))
        case AggregateOver() as over:
            return replace(node, schemas=(_narrowed(node.schemas[0], names.union(over.made)),))
        case JoinDeltas(mode="deltas", weight=weight) as join:
            kept_columns = tuple(column for column in join.columns if column[0] in names)
            schema = _narrowed(node.schemas[0], names | {weight})
            return replace(node, work=replace(join, columns=kept_columns), schemas=(schema,))
        case (
            JoinWindows() | JoinHistory() | JoinVersions() | JoinTable() | JoinDeltas() | EnrichRows() | LookUpRows()
        ) as join:
            kept_columns = tuple(column for column in join.columns if column[0] in names)
            schemas = (_narrowed(node.schemas[0], names), *node.schemas[1:])
            return replace(node, work=replace(join, columns=kept_columns), schemas=schemas)
        case AssignEventTimes() | FilterRows() | CallPerRow(kind="filter"):
            port = node.inputs[0]
            return replace(node, schemas=(before[port.node].schemas[port.port], *node.schemas[1:]))
        case AggregateWindows():
            return replace(node, schemas=(node.schemas[0], _narrowed(node.schemas[1], frozenset(node.reads[0]))))
        case _:
            return node


def _projection(defined: pa.Schema, delivered: pa.Schema) -> tuple[str, ...] | None:
    return None if defined.names == delivered.names else tuple(delivered.names)


def _narrowed(schema: pa.Schema, names: frozenset[str]) -> pa.Schema:
    return pa.schema([field for field in schema if field.name in names])


def _ordered(schema: pa.Schema, names: Iterable[str]) -> tuple[str, ...]:
    kept = frozenset(names)
    return tuple(name for name in schema.names if name in kept)


def _some(names: frozenset[str], schema: pa.Schema) -> frozenset[str]:
    """At least one column, since a batch without columns has no row count."""
    return names or frozenset([min(schema, key=_width).name])


def _width(field: pa.Field[pa.DataType]) -> int:
    try:
        return field.type.bit_width
    except ValueError:
        return 1 << 16


def _notes(graph: LogicalGraph, pruned: Mapping[int, Node]) -> list[str]:
    notes = []
    for node in graph.nodes:
        if not isinstance(node.work, ReadSource):
            continue
        for port, schema in enumerate(node.schemas):
            kept = pruned[node.id].schemas[port].names
            label = node.name if len(node.schemas) == 1 else f"{node.name} port {port}"
            if len(kept) < len(schema.names):
                notes.append(f"{label}: {len(kept)} of {len(schema.names)} columns read: {', '.join(kept) or 'none'}")
    return notes
