"""Resolves ``aggregate(R, bids=count(), top=col("price").max())``: aggregates, inputs and the output's schema."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from clonos_py.dsl.aggregates import AggregateExpr
from clonos_py.dsl.callsite import CallSite
from clonos_py.dsl.functions import Shape, record_of
from clonos_py.dsl.outputs import OutputPort
from clonos_py.dsl.projection import carried
from clonos_py.dsl.shapes import filled, refuse_nested
from clonos_py.dsl.timing import timed, window_closed
from clonos_py.expressions.tree import Column, ExpressionNode
from clonos_py.model.aggregates import RUNNING, Aggregate
from clonos_py.model.errors import GraphError
from clonos_py.model.hidden import check_names, hidden
from clonos_py.model.record import Record, schema_of
from clonos_py.model.windows import Counted, Window
from clonos_py.plan.logical import AggregateCounted, AggregateTable, AggregateWindows, ReduceRows


@dataclass(frozen=True)
class Aggregation:
    """``computed``: columns to compute before the aggregate; ``schema`` and ``record`` describe the output."""

    aggregates: tuple[Aggregate, ...]
    computed: list[tuple[str, ExpressionNode]]
    schema: pa.Schema
    record: type[Record] | None


def aggregation(
    schema: pa.Schema,
    keys: tuple[str, ...],
    extra: Mapping[str, pa.Field[Any]],
    into: Shape | None,
    aggregates: Mapping[str, Any],
) -> Aggregation:
    """Checks aggregates against the input. Fills ``into`` by name from keys, ``extra`` columns and aggregates."""
    if not aggregates:
        raise GraphError("it needs at least one aggregate, such as n=count()")
    refuse_nested("key", keys, schema)
    target = None if into is None else schema_of(into)
    check_names(aggregates, "the result")
    fields: dict[str, pa.Field[Any]] = {key: schema.field(key) for key in keys}
    for name in keys:
        if name in extra and (target is None or name in target.names):
            raise GraphError(
                f"{name!r} is a bound of the window, and a key: give the key another name, key_by(key={name!r})"
            )
    fields.update(extra)
    for name, found in aggregates.items():
        if not isinstance(found, AggregateExpr):
            raise GraphError(f"{name}={found} is not an aggregate: write count(), col('x').max(), or aggregate_by(...)")
        if name in fields:
            raise GraphError(f"{name!r} is a key or a bound of the window already; give the aggregate another name")
        fields[name] = found.field(name, schema)
    shape = getattr(into, "__name__", "the schema")
    output = filled(target, fields, aggregates, shape)
    for name, found in aggregates.items():
        if fields[name].nullable and not output.field(name).nullable:
            declared = output.field(name).type
            raise GraphError(f"{shape}.{name} is {declared}, but {found} may be null: declare it with '| None'")
    bound: list[Aggregate] = []
    computed: list[tuple[str, ExpressionNode]] = []
    for name, found in aggregates.items():
        column = _input(found, name, schema, computed)
        bound.append(found.bound(name, column, output.field(name).type))
    return Aggregation(tuple(bound), computed, output, None if into is None else record_of(into))


def aggregated(
    rows: OutputPort,
    keys: tuple[str, ...],
    found: Aggregation,
    site: CallSite,
    weighted: bool = False,
    table_keys: tuple[str, ...] = (),
) -> OutputPort:
    """Adds an aggregate without a window. ``weighted``: its rows are the deltas of a table. ``table_keys``: the columns
    that identify these, if it has to know."""
    work = AggregateTable(keys, found.aggregates, "changes", weighted, table_keys=table_keys)
    return rows.extended(found.computed, site).followed("aggregate", work, (found.schema,), site, (found.record,))


def reduced_by_aggregates(
    rows: OutputPort, keys: tuple[str, ...], into: Shape | None, aggregates: Mapping[str, Any], site: CallSite
) -> OutputPort:
    """Adds running aggregates to the rows, in further columns or in place of their own."""
    for name, found in aggregates.items():
        if isinstance(found, AggregateExpr) and found.function not in RUNNING:
            raise GraphError(
                f"{name}={found}: a result of {found.function} after each row would take longer the more rows a key "
                "has; write .fold(initial, function), or .aggregate(...).changes()"
            )
    others = {field.name: field for field in rows.schema if field.name not in (*keys, *aggregates)}
    found = aggregation(rows.schema, keys, others, into, aggregates)
    if into is None:
        schema = rows.schema
        for name in aggregates:
            made, at = found.schema.field(name), schema.get_field_index(name)
            schema = schema.append(made) if at < 0 else schema.set(at, made)
        found = replace(found, schema=schema)
    time = None if rows.time is None or rows.time.name in aggregates else carried(rows.time, found.schema)
    work = ReduceRows(keys, found.aggregates)
    read = rows.extended(found.computed, site)
    return read.followed("reduce", work, (found.schema,), site, (found.record,), (time,))


def aggregated_in_windows(
    rows: OutputPort, keys: tuple[str, ...], window: Window, lateness_us: int, found: Aggregation, site: CallSite
) -> OutputPort:
    """Adds an aggregate over windows. Output 1 has the late rows."""
    rows, time = rows.extended(found.computed, site), None
    if not window.processing_time:
        rows, time = timed(rows, site)
    work = AggregateWindows(keys, window, found.aggregates, time, lateness_us)
    closed = window_closed(found.schema) if time else None
    schemas, records = (found.schema, rows.schema), (found.record, rows.record)
    return rows.followed("aggregate", work, schemas, site, records, (closed,))


def aggregated_in_count_windows(
    rows: OutputPort, keys: tuple[str, ...], window: Counted, found: Aggregation, site: CallSite
) -> OutputPort:
    """Adds an aggregate over count windows. Its results have no event time: a window may hold rows of any times."""
    work = AggregateCounted(keys, window, found.aggregates)
    return rows.extended(found.computed, site).followed("aggregate", work, (found.schema,), site, (found.record,))


def _input(
    found: AggregateExpr, name: str, schema: pa.Schema, computed: list[tuple[str, ExpressionNode]]
) -> str | None:
    """The column that an aggregate reads. For an expression this is a hidden column, added to ``computed``."""
    if found.argument is None or isinstance(found.argument, Column):
        return None if found.argument is None else found.argument.name
    column = hidden(f"input:{name}", schema.names)
    computed.append((column, found.argument))
    return column
