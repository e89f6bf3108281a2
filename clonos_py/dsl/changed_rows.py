"""Tables of rows that come from elsewhere as changes: the last row of each key, unless that deletes it."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from clonos_py.dsl.callsite import CallSite
from clonos_py.dsl.expressions import Expr, col, lit, when
from clonos_py.dsl.outputs import OutputPort
from clonos_py.dsl.projection import condition_of, node_with
from clonos_py.dsl.shapes import listed
from clonos_py.dsl.tables import UpdatingRows, updating_rows
from clonos_py.expressions.tree import Cast
from clonos_py.model.errors import GraphError
from clonos_py.model.record import record_type
from clonos_py.model.tables import CHANGE_COLUMN, DELETE, WEIGHT_COLUMN, weighted_schema, without
from clonos_py.plan.logical import TopTable


def table_of_changes(rows: OutputPort, keys: tuple[str, ...], deleted: Expr | None, site: CallSite) -> UpdatingRows:
    """Each row replaces the one before of the same ``keys``, or only deletes it. ``deleted``: which rows do so; None:
    what the column for the kind of change says, which is then left out, and no row if there is none."""
    if not keys:
        raise GraphError("it needs at least one column that identifies a row: .to_table('id')")
    schema = without(rows.schema, CHANGE_COLUMN) if deleted is None else rows.schema
    if unknown := [key for key in keys if key not in schema.names]:
        raise GraphError(f"no column {unknown[0]!r} among {listed(schema.names)}")
    if nested := [key for key in keys if pa.types.is_nested(schema.field(key).type)]:
        raise GraphError(f"{nested[0]!r} is {schema.field(nested[0]).type}, which cannot identify a row")
    shrinks = deleted is not None or schema is not rows.schema
    if deleted is None and shrinks:
        deleted = col(CHANGE_COLUMN) == DELETE
    weight = lit(1) if deleted is None else when(_condition(deleted, rows)).then(-1).otherwise(1)
    columns = [*((name, node_with(name)) for name in schema.names), (WEIGHT_COLUMN, Cast(weight.node, pa.int8()))]
    deltas = rows.projected("changes", columns, site)
    record: Any = rows.record if schema is rows.schema else record_type(schema)
    work = TopTable(keys, 1, (), "changes", None, keys)
    assert deltas.schema == weighted_schema(schema)
    return updating_rows(deltas.followed("to_table", work, (schema,), site, (record,)), keys, shrinks)


def _condition(deleted: Expr, rows: OutputPort) -> Expr:
    condition_of(deleted, rows.schema)
    return deleted
