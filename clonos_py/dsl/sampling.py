"""``stream.sample(0.01, "user")``: a random part of the rows, chosen by their values."""

from __future__ import annotations

from clonos_py.dsl.callsite import CallSite
from clonos_py.dsl.changelogs import refuse_changes
from clonos_py.dsl.outputs import OutputPort
from clonos_py.dsl.shapes import check_columns
from clonos_py.expressions.tree import Column, KernelCall
from clonos_py.model.errors import GraphError
from clonos_py.plan.logical import FilterRows

_SEEDS = range(-(1 << 63), 1 << 63)


def sample_of(rows: OutputPort, fraction: float, columns: tuple[str, ...], seed: int, site: CallSite) -> OutputPort:
    """Adds a filter by a hash of these columns, or of all columns. Raises GraphError for a wrong fraction, seed or
    column."""
    refuse_changes(rows, instead="sample the rows that the table is made of")
    if isinstance(fraction, bool) or not isinstance(fraction, int | float) or not 0 <= fraction <= 1:
        raise GraphError(f"fraction is {fraction!r}: it must be a number from 0 to 1, such as 0.01 for one row in 100")
    if isinstance(seed, bool) or not isinstance(seed, int) or seed not in _SEEDS:
        raise GraphError(f"seed is {seed!r}: it must be a whole number of at most 64 bits")
    check_columns(columns, rows.schema)
    read = tuple(map(Column, columns or rows.schema.names))
    chosen = KernelCall("sampled", read, (float(fraction), seed))
    chosen.bind(rows.schema)
    return rows.same_rows("sample", FilterRows(chosen), site)
