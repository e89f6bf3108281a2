"""Describes the state of each operator of a plan, so that a run can compare it with that of a checkpoint."""

from __future__ import annotations

import enum
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
import pyarrow as pa

from clonos_py.columns.views import plain_type
from clonos_py.expressions.tree import Column
from clonos_py.expressions.tree import ExpressionNode as Expression
from clonos_py.model.aggregates import Aggregate
from clonos_py.model.hidden import is_hidden
from clonos_py.model.joins import JoinType
from clonos_py.model.record import Record, field_types
from clonos_py.model.state_definitions import (
    ANY,
    EACH,
    OR,
    OR_NULL,
    WITH_DEFAULT,
    StateDefinition,
    one_of,
    seconds_text,
)
from clonos_py.model.tables import SortKey
from clonos_py.model.window_texts import emit_text, last_text, window_text
from clonos_py.plan.logical import (
    AGGREGATING,
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
    FilterRows,
    JoinDeltas,
    JoinHistory,
    JoinTable,
    JoinVersions,
    JoinWindows,
    LimitRows,
    LogicalGraph,
    LookUpRows,
    Node,
    Port,
    ProjectColumns,
    ReduceRows,
    RunProcess,
    SortRows,
    Spread,
    TopCounted,
    TopTable,
    TopWindows,
    Unite,
    WriteSink,
)


def state_definition(
    graph: LogicalGraph, node: Node, tables: Mapping[str, pa.Schema], written: LogicalGraph
) -> StateDefinition | None:
    """The definition of the state that a node's operator keeps in ``tables``; None if it keeps none that depends on
    the job. ``written``: the graph before rewrites, with the columns that nothing reads."""
    columns = {
        table: {field.name: _stored_type(field) for field in schema if not is_hidden(field.name)}
        for table, schema in tables.items()
    }

    unread = {table: sorted(names - columns[table].keys()) for table, names in _offered(node, tables, written).items()}

    def defined(facts: Mapping[str, str | None], **more: Any) -> StateDefinition:
        given = {**facts, "only rows with": ", ".join(sorted(node.filtered))}
        stated = {name: text for name, text in given.items() if text}
        return StateDefinition(
            stated,
            tables=columns,
            unread={t: names for t, names in unread.items() if names},
            keys=_keys(graph, node, tables),
            **more,
        )

    def order(keys: Sequence[SortKey]) -> str:
        return ", ".join(
            f"{_origin(graph, node, key.column)} {'descending' if key.descending else 'ascending'}" for key in keys
        )

    def keys(names: Sequence[str], side: int = 0) -> str:
        return ", ".join(name + _computed(written, node, side, name) for name in names) or "none"

    match work := node.work:
        case AggregateWindows():
            facts = {"keys": keys(work.keys), "window": window_text(work.window), "event time": work.time_column}
            return defined(
                facts | _distinct_counts(graph, node, work.aggregates, columns),
                limits={"lateness": work.lateness_us},
                aggregates=_aggregates(graph, node, work.aggregates),
            )
        case AggregateTable():
            facts = {"keys": keys(work.keys), "emits": work.mode, "of a table": "yes" if work.weighted else None}
            facts |= {"ttl": _ttl(work.ttl_us)}
            return defined(
                facts | _distinct_counts(graph, node, work.aggregates, columns),
                aggregates=_aggregates(graph, node, work.aggregates),
            )
        case AggregateCounted():
            facts = {"keys": keys(work.keys), "window": window_text(work.window)}
            return defined(
                facts | _distinct_counts(graph, node, work.aggregates, columns),
                aggregates=_aggregates(graph, node, work.aggregates),
            )
        case AggregateWindowTable():
            facts = {
                "keys": keys(work.keys),
                "windows": "all rows" if work.window is None else window_text(work.window),
                "event time": work.time_column,
                "emits": f"{work.mode}, {emit_text(work.emit)}",
            }
            return defined(
                facts,
                limits={"lateness": work.lateness_us},
                aggregates=_aggregates(graph, node, work.aggregates),
            )
        case CallPerWindow():
            return defined(
                {"keys": keys(work.keys), "windows": window_text(work.window), "event time": work.time_column}
            )
        case AggregateOver():
            facts = {"keys": keys(work.keys), "over": last_text(work.last), "event time": work.time_column}
            return defined(
                facts | _distinct_counts(graph, node, work.aggregates, columns),
                aggregates=_aggregates(graph, node, work.aggregates),
            )
        case TopCounted():
            facts = {"keys": keys(work.keys), "window": window_text(work.window)}
            return defined(facts | {"rows per key": str(work.n), "order": order(work.order)})
        case TopTable():
            of_table = None if work.table_keys is None else _names(work.table_keys)
            facts = {"keys": keys(work.keys), "rows per key": str(work.n), "order": order(work.order)}
            facts |= {"ttl": _ttl(work.ttl_us), "event time": work.time_column}
            return defined(facts | {"emits": work.mode, "keys of the table": of_table})
        case TopWindows():
            facts = {"keys": keys(work.keys), "window": window_text(work.window), "event time": work.time_column}
            return defined(facts | {"rows per key": str(work.n), "order": order(work.order)})
        case LimitRows():
            return defined({})
        case SortRows():
            return defined({"keys": keys(work.keys), "event time": work.time_column})
        case ReduceRows():
            return defined({"keys": keys(work.keys)}, aggregates=_aggregates(graph, node, work.aggregates))
        case DistinctRows():
            return defined({"keys": keys(work.keys), "ttl": _ttl(work.ttl_us), "event time": work.time_column})
        case JoinWindows():
            return defined(_joined(work, keys) | {"window": window_text(work.window)})
        case JoinHistory():
            within = None if work.bounds is None else " to ".join(map(_bound, work.bounds))
            how = None if work.how is JoinType.INNER else work.how.value
            return defined(_joined(work, keys) | {"within": within, "how": how})
        case JoinVersions():
            how = work.how.value if work.how.unmatched[1] else None
            return defined(_joined(work, keys) | {"within": _ttl(work.oldest_us), "how": how})
        case JoinTable():
            facts = {"keys": keys(work.left_keys, 0), "right keys": keys(work.right_keys, 1)}
            return defined(facts | {"keys of the table": _names(work.side)})
        case LookUpRows():
            return defined({"keys": keys(work.keys)})
        case JoinDeltas():
            left, right = map(_names, work.sides)
            facts = {"keys": keys(work.left_keys), "keys of the left table": left, "keys of the right table": right}
            of_right = None if work.right_keys == work.left_keys else keys(work.right_keys, 1)
            how = None if work.how is JoinType.INNER else work.how.value
            at_end = None if work.mode == "deltas" else work.mode
            return defined(facts | {"right keys": of_right, "how": how, "emits": at_end})
        case RunProcess():
            return defined(_process_facts(work, keys), attributes=dict(_attributes(work)))
        case CallPerRow(waiting=waiting) if waiting is not None:
            return defined({})
        case CallPerBatch(gathered=tuple()):
            return defined({})
        case WriteSink():
            return defined({"writes to": work.definition.place}) if work.definition.place else None
        case _:
            return None


def _offered(node: Node, tables: Mapping[str, pa.Schema], written: LogicalGraph) -> dict[str, set[str]]:
    """By table of whole rows: the columns of these rows, as the user wrote them."""
    origin = written.by_id.get(node.id)
    if origin is None or isinstance(node.work, AGGREGATING | ReduceRows | DistinctRows | LookUpRows | WriteSink):
        return {}
    return {
        table: {name for name in written.schema(port).names if not is_hidden(name)}
        for table, port in zip(tables, origin.inputs, strict=False)
    }


def _keys(graph: LogicalGraph, node: Node, tables: Mapping[str, pa.Schema]) -> dict[str, dict[str, str]]:
    """By table: the types of the columns by which its rows are keyed. The tables of an operator with two inputs belong
    to these, in their order."""
    rows = [graph.schema(port) for port in node.inputs]
    match work := node.work:
        case RunProcess():
            of_inputs = [{field.name: _wide(field.type) for field in given.key} for given in work.inputs]
            return {"keys": of_inputs[0], **dict(zip(tables, of_inputs, strict=False))}
        case JoinWindows() | JoinHistory() | JoinVersions():
            sides: Sequence[Sequence[str]] = (work.left_keys, work.right_keys)
        case JoinTable():
            of_table, waiting = _key_types(rows[1], work.right_keys), _key_types(rows[0], work.left_keys)
            return dict(zip(tables, (of_table, waiting), strict=False))
        case JoinDeltas():
            of_right = [table.startswith("right") for table in tables]
            return {
                table: _key_types(rows[right], work.right_keys if right else work.left_keys)
                for table, right in zip(tables, of_right, strict=True)
            }
        case WriteSink() | CallPerRow() | CallPerBatch():
            return {}
        case _:
            sides = [getattr(work, "keys", ())] * len(tables)
    return {
        table: _key_types(rows[min(side, len(rows) - 1)], names)
        for side, (table, names) in enumerate(zip(tables, sides, strict=False))
    }


def _key_types(rows: pa.Schema, names: Sequence[str]) -> dict[str, str]:
    return {name: str(plain_type(rows.field(name).type)) for name in names}


def _joined(work: JoinWindows | JoinHistory | JoinVersions, keys: Callable[..., str]) -> dict[str, str | None]:
    return {
        "left keys": keys(work.left_keys, 0),
        "right keys": keys(work.right_keys, 1),
        "left event time": work.left_time,
        "right event time": work.right_time,
    }


def _process_facts(work: RunProcess, keys: Callable[..., str]) -> dict[str, str | None]:
    facts: dict[str, str | None] = {"in order of event time": "yes" if work.in_order else None}
    for side, (given, of_side) in enumerate(zip(work.inputs, ("", " of the right input"), strict=False)):
        facts[f"keys{of_side}"] = ", ".join(f"{keys([field.name], side)}: {_wide(field.type)}" for field in given.key)
        facts[f"event time{of_side}"] = given.time_column if work.in_order else None
    for name, timer in work.declared.declared_timers.items():
        facts[f"timer {name}"] = "processing time" if timer.processing_time else "event time"
    for name, state in work.declared.declared_states.items():
        facts[f"ttl of {name}"] = _ttl(state.ttl_us)
    return facts


def _wide(type_: pa.DataType) -> str:
    """The type of a key, in the width in which it is stored."""
    type_ = plain_type(type_)
    if pa.types.is_integer(type_):
        return "int64"
    return "double" if pa.types.is_floating(type_) else str(type_).removeprefix("large_")


def _aggregates(graph: LogicalGraph, node: Node, aggregates: Sequence[Aggregate]) -> dict[str, str]:
    found = {}
    for aggregate in aggregates:
        if is_hidden(aggregate.name):
            continue
        column = "" if aggregate.column is None else _origin(graph, node, aggregate.column)
        option = "" if aggregate.option is None else f"[{aggregate.option:g}]"
        found[aggregate.name] = f"{aggregate.function}{option}({column}) as {aggregate.type}"
    return found


def _distinct_counts(
    graph: LogicalGraph, node: Node, aggregates: Sequence[Aggregate], columns: Mapping[str, Mapping[str, str]]
) -> dict[str, str | None]:
    """Counts of distinct values share state that refers to them by position, and to keys and values by type."""
    rows = graph.schema(node.inputs[0])
    counts = [
        f"{aggregate.name} of {_wide(rows.field(aggregate.column).type)}"
        for aggregate in aggregates
        if aggregate.function == "count_distinct" and aggregate.column is not None
    ]
    keys = [f"{name}: {type_}" for stored in columns.values() for name, type_ in stored.items()]
    return {"distinct counts": f"{', '.join(counts)} by {', '.join(keys) or 'nothing'}" if counts else None}


def _origin(graph: LogicalGraph, node: Node, column: str) -> str:
    """The name of a column or, if the job computes it for this node only, its expression."""
    before = graph.by_id[node.inputs[0].node]
    while is_hidden(column):
        if isinstance(before.work, ProjectColumns):
            return str(dict(before.work.columns).get(column, column))
        if not before.inputs:
            break
        before = graph.by_id[before.inputs[0].node]
    return column


def _computed(written: LogicalGraph, node: Node, side: int, column: str) -> str:
    """How the job computes a column of an input, from columns of rows that no expression computes; empty if it is one
    of these. ``written``: the graph before rewrites, which change expressions."""
    if (origin := written.by_id.get(node.id)) is None:
        return ""
    found = _expressions(written, origin.inputs[side], Column(column))
    return "" if found == {column} else f" = {OR.join(sorted(found))}"


def _expressions(graph: LogicalGraph, rows: Port, expression: Expression) -> set[str]:
    """An expression of the columns of a port, with the expressions that compute these in place of them. Several if
    streams were united that compute them in different ways."""
    node = graph.by_id[rows.node]
    match node.work:
        case ProjectColumns(columns):
            return _expressions(graph, node.inputs[0], expression.substitute(dict(columns)))
        case FilterRows() | AssignEventTimes() | Spread() | CallPerRow(kind="filter", catch=False):
            return _expressions(graph, node.inputs[0], expression)
        case Unite():
            return {text for port in node.inputs for text in _expressions(graph, port, expression)}
        case _:
            return {str(expression)}


def _bound(bound: int | str) -> str:
    return bound if isinstance(bound, str) else seconds_text(bound)


def _names(names: Sequence[str]) -> str:
    return ", ".join(names) or "none"


def _stored_type(field: pa.Field[Any]) -> str:
    return f"{plain_type(field.type)}{OR_NULL if field.nullable else ''}"


def _attributes(work: RunProcess) -> Iterator[tuple[str, str]]:
    from clonos_py.operators.key_states import value_types  # a job without processes does not load it

    for name, type_ in value_types(work.declared).items():
        if work.declared.declared_states[name].by_key:
            yield from attribute_types(name, type_)


def attribute_types(
    name: str, type_: Any, around: tuple[Any, ...] = (), default: bool = False
) -> Iterator[tuple[str, str]]:
    """The type of an attribute, and those of the fields and elements in it. ``around``: the records that hold it."""
    type_ = _plain(type_)
    members = [_plain(member) for member in typing.get_args(type_)] if _is_union(type_) else [type_]
    constants = [constant for member in members for constant in _constants(member)]
    others = [member for member in members if member is not type(None) and not _constants(member)]
    names = sorted({_name(member) for member in others})
    if given := [constant for constant in constants if constant is not None]:
        names.append(one_of(given))
    null = OR_NULL if type(None) in members or None in constants else ""
    yield name, OR.join(names) + null + (WITH_DEFAULT if default else "")
    for member in others:
        yield from _inside(name, member, around)


def _inside(name: str, type_: Any, around: tuple[Any, ...]) -> Iterator[tuple[str, str]]:
    """The types of the fields and elements of one type."""
    if isinstance(type_, type) and issubclass(type_, Record) and type_ not in around:
        has_default = {
            field.name: field.default is not msgspec.NODEFAULT or field.default_factory is not msgspec.NODEFAULT
            for field in msgspec.structs.fields(type_)
        }
        for field, of_field in field_types(type_).items():
            yield from attribute_types(f"{name}.{field}", of_field, (*around, type_), has_default[field])
    arguments, origin = typing.get_args(type_), typing.get_origin(type_)
    if origin is tuple and Ellipsis not in arguments:
        for number, argument in enumerate(arguments):
            yield from attribute_types(f"{name}[{number}]", argument, around)
    elif origin is not None and len(arguments) == 2 and Ellipsis not in arguments:
        yield from attribute_types(f"{name}[key]", arguments[0], around)
        yield from attribute_types(f"{name}[value]", arguments[1], around)
    elif arguments:
        yield from attribute_types(f"{name}{EACH}", arguments[0], around)


def _plain(type_: Any) -> Any:
    return typing.get_args(type_)[0] if typing.get_origin(type_) is typing.Annotated else type_


def _is_union(type_: Any) -> bool:
    return typing.get_origin(type_) in (typing.Union, types.UnionType)


def _constants(type_: Any) -> list[Any]:
    """The values of a type that lists them, as they are stored; none for any other type."""
    if typing.get_origin(type_) is typing.Literal:
        return list(typing.get_args(type_))
    if isinstance(type_, type) and issubclass(type_, enum.Enum):
        return [member.value for member in type_]
    return []


def _name(type_: Any) -> str:
    if type_ in (Any, object):
        return ANY
    origin, arguments = typing.get_origin(type_) or type_, typing.get_args(type_)
    if isinstance(origin, type) and issubclass(origin, Record):
        return "record"
    if typing.get_origin(type_) is tuple and Ellipsis not in arguments:
        return f"tuple of {len(arguments)}"
    return str(getattr(origin, "__name__", origin))


def _ttl(ttl_us: int | None) -> str | None:
    return None if ttl_us is None else seconds_text(ttl_us)
