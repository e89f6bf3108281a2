"""Resolves the columns of a verb: names, expressions and keywords become (name, node) pairs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from clonos_py.dsl.expressions import Expr, node_of
from clonos_py.dsl.functions import Shape, is_record, record_of
from clonos_py.dsl.shapes import assignable, listed
from clonos_py.expressions.tree import Cast, Column, ExpressionNode
from clonos_py.model.errors import GraphError
from clonos_py.model.hidden import check_names
from clonos_py.model.record import Record, schema_of
from clonos_py.plan.logical import EventTimeColumn

Columns = list[tuple[str, ExpressionNode]]


def node_with(name: str) -> ExpressionNode:
    """The unchanged column of that name."""
    return Column(name)


def projected(columns: Sequence[str | Expr], named: Mapping[str, object], schema: pa.Schema) -> Columns:
    """The (name, node) pairs in order. Raises GraphError for a missing or repeated name, or a wrong expression."""
    made: Columns = [_named(column) for column in columns]
    made += [(name, Column(value) if isinstance(value, str) else node_of(value)) for name, value in named.items()]
    check_names([name for name, _ in made], "the result")
    for _, node in made:
        node.bind(schema)
    return made


def exactly(into: Shape, named: Mapping[str, object], schema: pa.Schema) -> Columns:
    """The columns that fill the fields of a class by name. Raises GraphError if a field cannot be filled."""
    target = schema_of(into)
    given = dict(projected((), named, schema))
    name = getattr(into, "__name__", "the schema")
    for unknown in [column for column in given if target.get_field_index(column) < 0]:
        raise GraphError(f"{name} has no field {unknown!r}; its fields are {listed(target.names)}")
    made: Columns = []
    for field in target:
        if field.name not in given and schema.get_field_index(field.name) < 0:
            raise GraphError(f"{name}.{field.name}: no column of that name; there are {listed(schema.names)}")
        node = given.get(field.name, Column(field.name))
        found = node.bind(schema).type
        if not assignable(found, field.type):
            raise GraphError(f"{name}.{field.name} is {field.type}, but {node} is {found}; cast() changes types")
        made.append((field.name, node if found == field.type else Cast(node, field.type)))
    return made


def selected(
    columns: Sequence[Any], named: Mapping[str, object], schema: pa.Schema
) -> tuple[Columns, type[Record] | None]:
    """The columns of ``select`` and, if it begins with one, the class of its rows."""
    first: Any = next(iter(columns), None)
    if not is_record(first) and not isinstance(first, pa.Schema):
        return projected(columns, named, schema), None
    if len(columns) > 1:
        raise GraphError("with a class first, write everything else as name=expression")
    return exactly(first, named, schema), record_of(first)


def replaced(schema: pa.Schema, made: Columns) -> Columns:
    """All columns of the schema, with those in ``made`` in the place of columns of the same name, or after all."""
    left = dict(made)
    return [*((name, left.pop(name, node_with(name))) for name in schema.names), *left.items()]


def condition_of(condition: Any, schema: pa.Schema) -> ExpressionNode:
    """The condition of a filter. Raises GraphError for what is no expression, or not a bool."""
    if not isinstance(condition, Expr):
        raise GraphError(f"{condition!r} is not an expression, such as col('price') > 100")
    found = condition.node.bind(schema).type
    if not pa.types.is_boolean(found):
        raise GraphError(f"{condition} is {found}, not bool")
    return condition.node


def result_fields(columns: Columns, schema: pa.Schema) -> pa.Schema:
    return pa.schema([node.field(name, schema) for name, node in columns])


def is_event_time(type_: pa.DataType) -> bool:
    """Whether a column can carry event time: datetimes of any unit, and Instants."""
    return type_ == pa.int64() or pa.types.is_timestamp(type_)


def carried(time: EventTimeColumn | None, schema: pa.Schema, columns: Columns | None = None) -> EventTimeColumn | None:
    """The event-time column after a verb: the renamed column, else the one with the same name, else None."""
    if time is None:
        return None
    taken = [name for name, node in columns or () if isinstance(node, Column) and node.column == time.name]
    name = time.name if not taken or time.name in taken else taken[0]
    index = schema.get_field_index(name)
    if index < 0 or not is_event_time(schema.field(index).type):
        return None
    return EventTimeColumn(name, time.offset_us)


def _named(column: str | Expr | Any) -> tuple[str, ExpressionNode]:
    if isinstance(column, str):
        return column, Column(column)
    if not isinstance(column, Expr):
        raise GraphError(f"{column!r} is neither the name of a column nor an expression such as col('name')")
    if column.name is None:
        raise GraphError(f"{column} has no name: write name={column} or {column}.alias('name')")
    return column.name, column.node
