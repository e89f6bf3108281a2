"""``over``: each row with aggregates of the last rows of its key."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from clonos_py.dsl.aggregation import aggregation
from clonos_py.dsl.callsite import CallSite
from clonos_py.dsl.functions import Shape
from clonos_py.dsl.outputs import OutputPort
from clonos_py.dsl.shapes import refuse_nested
from clonos_py.dsl.timing import timed
from clonos_py.model.errors import GraphError
from clonos_py.model.windows import Last, LastRows, LastSpan
from clonos_py.plan.logical import AggregateOver


def checked_last(last: object) -> Last:
    if not isinstance(last, LastSpan | LastRows):
        raise GraphError(f'{last!r} does not say which rows: use last("1h") or last(rows=10)')
    return last


def aggregated_over(
    rows: OutputPort,
    keys: tuple[str, ...],
    last: Last,
    into: Shape | None,
    aggregates: Mapping[str, Any],
    site: CallSite,
) -> OutputPort:
    """Adds an aggregate over the last rows of each row. The rows keep their event time."""
    schema, time = rows.schema, rows.time
    refuse_nested("key", keys, schema)
    for name in aggregates:
        if name in schema.names:
            raise GraphError(f"{name!r} is a column of the rows already; give the aggregate another name")
    found = aggregation(schema, (), {field.name: field for field in schema}, into, aggregates)
    given, time_column = timed(rows.extended(found.computed, site), site)
    work = AggregateOver(keys, last, found.aggregates, time_column)
    kept = time if time and time.name in found.schema.names else None
    return given.followed("over", work, (found.schema,), site, (found.record,), (kept,))
