"""``stream.union(*others, by_name=...)``: brings the columns of streams into line."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from clonos_py.dsl.callsite import CallSite
from clonos_py.dsl.outputs import OutputPort
from clonos_py.dsl.projection import Columns, carried, node_with
from clonos_py.dsl.shapes import same_columns
from clonos_py.expressions.tree import Cast, Literal
from clonos_py.model.errors import GraphError
from clonos_py.plan.logical import ProjectColumns, Unite


def united(streams: Sequence[OutputPort], by_name: bool, site: CallSite) -> OutputPort:
    """Adds the union. Raises GraphError for streams that differ, and for one that is there twice."""
    if len({rows.port for rows in streams}) < len(streams):
        raise GraphError("a stream cannot be united with itself: every row would count twice")
    if by_name:
        schema = _all_columns([rows.schema for rows in streams])
        streams = [_with_all(rows, schema, site) for rows in streams]
    first, *others = streams
    for other in others:
        if different := same_columns(first.schema, other.schema):
            raise GraphError(
                f"the streams differ: {different}; select() brings them into line, or by_name=True, which gives null "
                "where a stream lacks a column"
            )
    times = (first.time if all(other.time == first.time for other in others) else None,)
    return first.followed("union", Unite(), (first.schema,), site, (first.record,), times, others=tuple(others))


def _all_columns(schemas: Sequence[pa.Schema]) -> pa.Schema:
    """The columns of all, in the order of their first appearance. Those that one lacks take null."""
    fields: dict[str, pa.Field[pa.DataType]] = {}
    for schema in schemas:
        for field in schema:
            known = fields.setdefault(field.name, field)
            if known.type != field.type:
                raise GraphError(f"column {field.name!r} is {known.type} in one, {field.type} in the other: cast() one")
            fields[field.name] = known.with_nullable(known.nullable or field.nullable)
    lacking = {name for name in fields if any(name not in schema.names for schema in schemas)}
    return pa.schema([field.with_nullable(field.nullable or name in lacking) for name, field in fields.items()])


def _with_all(rows: OutputPort, schema: pa.Schema, site: CallSite) -> OutputPort:
    if rows.schema.equals(schema):
        return rows
    columns: Columns = [
        (field.name, node_with(field.name) if field.name in rows.schema.names else Cast(Literal(None), field.type))
        for field in schema
    ]
    time = carried(rows.time, schema, columns)
    return rows.followed("union", ProjectColumns(tuple(columns)), (schema,), site, (None,), (time,))
