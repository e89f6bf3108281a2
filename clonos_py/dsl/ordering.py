"""``stream.limit(10)``, ``stream.sort()`` and ``stream.key_by("user").sort()``: the first rows, and rows in order."""

from __future__ import annotations

from typing import Literal

from clonos_py.dsl.callsite import CallSite
from clonos_py.dsl.changelogs import refuse_changes
from clonos_py.dsl.outputs import OutputPort
from clonos_py.dsl.row_counts import check_row_count
from clonos_py.dsl.shapes import refuse_nested
from clonos_py.dsl.timing import timed
from clonos_py.model.errors import GraphError
from clonos_py.plan.logical import LimitRows, SortRows

Late = Literal["drop", "pass"]


def limited(rows: OutputPort, n: int, site: CallSite) -> OutputPort:
    """Adds the limit. Raises GraphError for a number that is none."""
    refuse_changes(rows, instead="limit the rows that the table is made of, or write .top(n, by=...) on the table")
    check_row_count("n", n)
    return rows.same_rows("limit", LimitRows(n), site)


def sorted_by_time(rows: OutputPort, keys: tuple[str, ...], late: Late, site: CallSite) -> OutputPort:
    """Adds the sort. Raises GraphError without event time."""
    refuse_changes(rows, instead="sort the rows that the table is made of")
    if late not in ("drop", "pass"):
        raise GraphError(f"late is {late!r}: it must be 'drop' or 'pass'")
    refuse_nested("key", keys, rows.schema)
    taken, time = timed(rows, site)
    work = SortRows(keys, time, late == "pass")
    return taken.followed("sort", work, (rows.schema,), site, (rows.record,), (rows.time,))
