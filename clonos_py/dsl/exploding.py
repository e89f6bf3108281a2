"""``stream.explode(column)``: a row for each element of a list."""

from __future__ import annotations

import pyarrow as pa

from clonos_py.dsl.callsite import CallSite
from clonos_py.dsl.changelogs import refuse_changes
from clonos_py.dsl.outputs import OutputPort
from clonos_py.dsl.projection import carried
from clonos_py.dsl.shapes import check_columns
from clonos_py.model.errors import GraphError
from clonos_py.plan.logical import ExplodeRows


def exploded(rows: OutputPort, column: str, keep_empty: bool, site: CallSite) -> OutputPort:
    """Adds the operator. Raises GraphError for a column that is missing or has no lists."""
    refuse_changes(rows, instead="explode the rows that the table is made of")
    check_columns([column], rows.schema)
    at = rows.schema.get_field_index(column)
    lists = rows.schema.field(at)
    if not (pa.types.is_list(lists.type) or pa.types.is_large_list(lists.type)):
        raise GraphError(f"column {column!r} is {lists.type}, and not a list")
    element = lists.type.value_field
    field = pa.field(column, element.type, nullable=element.nullable or keep_empty)
    schema = rows.schema.set(at, field)
    time = carried(rows.time, schema)
    return rows.followed("explode", ExplodeRows(column, keep_empty), (schema,), site, (None,), (time,))
