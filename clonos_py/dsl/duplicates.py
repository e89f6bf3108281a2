"""``stream.distinct("user", "page", ttl="1h")``: deduplication by columns, for all time or for a TTL."""

from __future__ import annotations

from clonos_py.dsl.callsite import CallSite
from clonos_py.dsl.changelogs import refuse_changes
from clonos_py.dsl.outputs import OutputPort
from clonos_py.dsl.shapes import check_columns, refuse_nested
from clonos_py.dsl.timing import time_to_live, timed
from clonos_py.model.times import Duration
from clonos_py.plan.logical import DistinctRows


def without_duplicates(rows: OutputPort, columns: tuple[str, ...], ttl: Duration | None, site: CallSite) -> OutputPort:
    """Adds the deduplication by these columns, or by all columns."""
    refuse_changes(rows, instead="leave duplicates out before what makes the table")
    keys = columns or tuple(rows.schema.names)
    check_columns(keys, rows.schema)
    refuse_nested("column", keys, rows.schema)
    if ttl is None:
        return rows.followed("distinct", DistinctRows(keys), (rows.schema,), site, (rows.record,), (rows.time,))
    ttl_us = time_to_live(ttl)
    taken, time = timed(rows, site)
    work = DistinctRows(keys, ttl_us, time)
    return taken.followed("distinct", work, (rows.schema,), site, (rows.record,), (rows.time,))
