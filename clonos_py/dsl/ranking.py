"""Top-n rows per key or over all rows: as a running result, or per window."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from clonos_py.dsl.callsite import CallSite
from clonos_py.dsl.expressions import Expr, SortOrder, SortOrders, col
from clonos_py.dsl.functions import Shape, record_of
from clonos_py.dsl.outputs import OutputPort
from clonos_py.dsl.projection import Columns, carried
from clonos_py.dsl.row_counts import check_row_count
from clonos_py.dsl.shapes import filled
from clonos_py.dsl.timing import timed, window_bounds, window_closed
from clonos_py.expressions.tree import Column
from clonos_py.model.errors import GraphError
from clonos_py.model.hidden import check_names, hidden
from clonos_py.model.record import Record, schema_of
from clonos_py.model.tables import SortKey
from clonos_py.model.windows import Counted, Hopping, Tumbling
from clonos_py.plan.logical import TopCounted, TopTable, TopWindows

RANK = "rank_number"
"""The default name of the column in which ``top`` gives the place of a row."""


def first_rows(
    rows: OutputPort,
    keys: tuple[str, ...],
    n: int,
    by: SortOrders,
    into: Shape | None,
    rank: str,
    site: CallSite,
    schema: pa.Schema,
    table_keys: tuple[str, ...] | None = None,
) -> OutputPort:
    """Adds a running top-n with the columns of ``schema``. ``table_keys``: the input is the deltas of a table whose
    rows have these columns as keys."""
    order, computed = sort_order(rows.schema, by)
    rows = rows.extended(computed, site)
    work = TopTable(keys, n, order, "changes", rank if rank in schema.names else None, table_keys)
    once = n == 1 and table_keys is None  # with n > 1 a row is emitted again when its rank changes
    time = carried(rows.time, schema) if once else None
    return rows.followed("top", work, (schema,), site, (_record(into),), (time,))


def first_of_windows(
    rows: OutputPort,
    keys: tuple[str, ...],
    window: Tumbling | Hopping | Counted,
    n: int,
    by: SortOrders,
    into: Shape | None,
    rank: str,
    site: CallSite,
) -> OutputPort:
    """Adds a top-n per window. Rows of count windows have neither bounds nor event time."""
    bounds = {} if isinstance(window, Counted) else window_bounds(rows, into)
    schema = ranked(rows.schema, bounds, n, into, rank)
    order, computed = sort_order(rows.schema, by)
    rows, shown = rows.extended(computed, site), rank if rank in schema.names else None
    if isinstance(window, Counted):
        work = TopCounted(keys, window, n, order, shown)
        return rows.followed("top", work, (schema,), site, (_record(into),))
    rows, time = timed(rows, site)
    timed_work = TopWindows(keys, window, n, order, time, shown)
    return rows.followed("top", timed_work, (schema,), site, (_record(into),), (window_closed(schema),))


def ranked(schema: pa.Schema, further: Mapping[str, pa.Field[Any]], n: int, into: Shape | None, rank: str) -> pa.Schema:
    """The columns of a top-n: those of its input, the ``further`` ones and the rank, or those that ``into`` has."""
    check_row_count("n", n)
    if taken := [name for name in (rank, *further) if schema.get_field_index(name) >= 0]:
        raise GraphError(f"there is a column {taken[0]!r} already: give it another name, or the rank by rank=")
    check_names([rank], "the result")
    target = None if into is None else schema_of(into)
    name = getattr(into, "__name__", "the schema")
    has_rank = n > 1 if target is None else rank in target.names
    if n > 1 and not has_rank:
        raise GraphError(f"with {n} rows per key a row is identified by its rank: {name} needs a field {rank!r}")
    available = {field.name: field for field in schema} | dict(further)
    if has_rank:
        available[rank] = pa.field(rank, pa.int64(), nullable=False)
    return filled(target, available, (), name)


def sort_order(schema: pa.Schema, by: SortOrders) -> tuple[tuple[SortKey, ...], Columns]:
    """The sort keys, and the columns to compute for them."""
    keys: list[SortKey] = []
    computed: Columns = []
    for number, given in enumerate([by] if isinstance(by, str | SortOrder | Expr) else by):
        found = SortOrder(col(given)) if isinstance(given, str) else given
        if not isinstance(found, SortOrder):
            shown = f"col({str(given)!r})" if isinstance(given, Expr) else repr(given)
            raise GraphError(f"by={shown}: write a column, col('price').desc() or col('price').asc()")
        if pa.types.is_nested(found.by.node.bind(schema).type):
            raise GraphError(f"by={found.by}: lists and structs have no order")
        name = found.by.node.name if isinstance(found.by.node, Column) else hidden(f"order:{number}", schema.names)
        if not isinstance(found.by.node, Column):
            computed.append((name, found.by.node))
        keys.append(SortKey(name, found.descending))
    if not keys:
        raise GraphError("by=[]: say in which order the rows are, such as by=col('price').desc()")
    return tuple(keys), computed


def _record(into: Shape | None) -> type[Record] | None:
    return None if into is None else record_of(into)
