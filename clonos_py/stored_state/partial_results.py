"""Partial results of aggregates as users know them: one row per key and open window, with the named results so far.

Windows share panes and count windows share rows, so a stored row is merged into each open window that contains it. The
checkpoint names functions and types of aggregates, so the code of the job is not needed, but for folds of the user:
their accumulators are shown as JSON.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa

from clonos_py.columns.grouping import Groups, group
from clonos_py.columns.ordering import order_by, stable_order
from clonos_py.columns.views import Ints, fixed
from clonos_py.model.aggregates import Aggregate, accumulator_name
from clonos_py.model.state import GROUP_COLUMN
from clonos_py.model.times import MIN_TIME
from clonos_py.model.windows import BOUNDS, WINDOW_END, WINDOW_START, Counted, Cumulative, Hopping, Tumbling, Window
from clonos_py.operators.aggregation import ROWS_COLUMN, Partials, accumulators_of
from clonos_py.operators.count_windows import NUMBER_COLUMN
from clonos_py.operators.intervals import SESSION_COLUMNS, START_COLUMN
from clonos_py.operators.panes import PANE_COLUMN, PaneClock
from clonos_py.operators.progress import EventTimeProgress
from clonos_py.stored_state.arrow_types import arrow_type
from clonos_py.stored_state.columns import MOMENT, WINDOW_ROWS
from clonos_py.stored_state.contents import OperatorContents


class _Merged(NamedTuple):
    """Partial rows, one per key and window, and the columns that say which window it is."""

    rows: pa.RecordBatch
    window: Mapping[str, Any]


def results_so_far(given: OperatorContents, table: str, rows: pa.RecordBatch, window: Window | Counted | None) -> Any:
    """One row per key and open window: the keys, the window, the aggregates, and the hidden column of the key group.
    ``rows``: partial rows with these keys."""
    keys, aggregates = given.keys(table), _aggregates(given.definition.aggregates, rows.schema)
    folds = [found for found in aggregates if found.function == "user"]
    partials = Partials(keys, [found for found in aggregates if found.function != "user"])
    match window:
        case Tumbling() | Hopping() | Cumulative():
            merged = _of_panes(given, partials, rows, PaneClock(window), folds)
        case Counted():
            merged = _of_counts(partials, rows, window, folds)
        case _:
            stored = SESSION_COLUMNS if START_COLUMN in rows.schema.names else BOUNDS
            pairs = zip(BOUNDS, stored, strict=True)
            bounds = {name: rows.column(column) for name, column in pairs if column in rows.schema.names}
            merged = _Merged(_with_folds(rows, folds), bounds)
    extra = dict(merged.window) | {fold.name: merged.rows.column(_fold_column(fold)) for fold in folds}
    fields = [merged.rows.schema.field(name) for name in keys]
    fields += [pa.field(name, MOMENT if name != WINDOW_ROWS else pa.int64()) for name in merged.window]
    fields += [pa.field(found.name, found.type) for found in aggregates]
    return partials.finish(merged.rows, pa.schema([*fields, pa.field(GROUP_COLUMN, pa.int32())]), extra)


def _of_panes(
    given: OperatorContents, partials: Partials, rows: pa.RecordBatch, clock: PaneClock, folds: Sequence[Aggregate]
) -> _Merged:
    panes, positions, starts = fixed(rows.column(PANE_COLUMN)), [], []
    for pane in np.unique(panes).tolist():
        inside = np.flatnonzero(panes == pane)
        for start in clock.windows(pane):
            positions.append(inside)
            starts.append(np.full(len(inside), start))
    found, start_of = _joined(positions), _joined(starts)
    until = _reached(given)[fixed(rows.column(GROUP_COLUMN))[found]]
    is_open = start_of + clock.size + given.definition.limits.get("lateness", 0) > until
    found, start_of = found[is_open], start_of[is_open]
    rows = rows.take(pa.array(found, pa.int64()))
    groups = group([start_of, *(rows.column(key) for key in partials.keys)], rows.num_rows)
    starts_of = start_of[groups.first]
    begins = [clock.start(window) for window in starts_of.tolist()]
    bounds = {WINDOW_START: pa.array(begins, pa.int64()), WINDOW_END: pa.array(starts_of + clock.size, pa.int64())}
    return _Merged(_merged(partials, rows, groups, folds), bounds)


def _reached(given: OperatorContents) -> Ints:
    """By key group: the time up to which its windows have ended."""
    every, progress = range(given.key_groups), EventTimeProgress()
    progress.restore(given.states, every, given.key_groups)
    if progress.ahead is not None:
        return progress.ahead
    return np.full(given.key_groups, progress.reached if given.states else MIN_TIME, np.int64)


def _of_counts(partials: Partials, rows: pa.RecordBatch, window: Counted, folds: Sequence[Aggregate]) -> _Merged:
    """A window begins with every ``every``-th row. A stored row is a part of the windows of its key that begin with it
    or with one of the parts before it that are stored."""
    keys = group([rows.column(key) for key in partials.keys], rows.num_rows)
    numbers = fixed(rows.column(NUMBER_COLUMN))
    first = np.full(keys.size, np.iinfo(np.int64).max)
    np.minimum.at(first, keys.ids, numbers)
    positions, starts = [], []
    for back in range(0, window.size, window.every):
        inside = np.flatnonzero(numbers - back >= first[keys.ids])
        positions.append(inside)
        starts.append(numbers[inside] - back)
    found, start_of = _joined(positions), _joined(starts)
    order = order_by([keys.ids[found], start_of, numbers[found]])
    found, start_of = found[order], start_of[order]
    rows = rows.take(pa.array(found, pa.int64()))
    merged = _merged(partials, rows, group([keys.ids[found], start_of], len(found)), folds)
    return _Merged(merged, {WINDOW_ROWS: merged.column(ROWS_COLUMN)})


def _joined(parts: Sequence[Ints]) -> Ints:
    return np.concatenate([np.zeros(0, np.int64), *parts])


def _merged(partials: Partials, rows: pa.RecordBatch, groups: Groups, folds: Sequence[Aggregate]) -> pa.RecordBatch:
    accumulators = {_fold_column(fold): _as_json(rows.column(_fold_column(fold)), groups) for fold in folds}
    return partials.merge(rows, groups, accumulators)


def _with_folds(rows: pa.RecordBatch, folds: Sequence[Aggregate]) -> pa.RecordBatch:
    """The rows, with the accumulators of folds as JSON."""
    every = np.arange(rows.num_rows)
    for fold in folds:
        at = rows.schema.get_field_index(_fold_column(fold))
        column = _as_json(rows.column(at), Groups(every, rows.num_rows, every))
        rows = rows.set_column(at, _fold_column(fold), column)
    return rows


def _fold_column(fold: Aggregate) -> str:
    return accumulator_name(fold.name, "user")


def _as_json(accumulators: Any, groups: Groups) -> Any:
    """By group: its accumulators, which only code of the user can merge, as JSON texts."""
    order = stable_order(groups.ids)
    texts = [_json(accumulators[at].as_py()) for at in order.tolist()]
    bounds = np.searchsorted(groups.ids[order], np.arange(groups.size + 1))
    return pa.ListArray.from_arrays(pa.array(bounds, pa.int32()), pa.array(texts, pa.string()))


def _json(packed: bytes) -> str:
    return msgspec.json.encode(msgspec.msgpack.decode(packed)).decode()


def _aggregates(texts: Mapping[str, str], stored: pa.Schema) -> list[Aggregate]:
    """The aggregates of which partial rows with these columns have results. The inputs of aggregates, of which
    definitions say how they are computed, have no columns here."""
    found = []
    for name, text in texts.items():
        called, _, rest = text.partition("(")
        function, _, option = called.removesuffix("]").partition("[")
        column, _, kind = rest.rpartition(") as ")
        if function == "count_distinct" and accumulator_name(name, "count") in stored.names:
            function = "count"  # a table counts values as they come
        named = arrow_type(kind) or pa.null()
        aggregate = Aggregate(function, column or None, name, named, option=float(option) if option else None)
        found.append(replace(aggregate, type=_type(aggregate, stored)))
    return found


def _type(aggregate: Aggregate, stored: pa.Schema) -> Any:
    """The type of a result: the one that the checkpoint names, or else that of the stored accumulator."""
    function = aggregate.function
    if function == "user":
        return pa.list_(pa.string())
    if not pa.types.is_null(aggregate.type):
        return aggregate.type
    if function in ("count", "count_distinct", "mean"):
        return pa.float64() if function == "mean" else pa.int64()
    accumulator: Any = stored.field(accumulators_of(aggregate)[0].name).type
    if function == "collect":
        return pa.list_(accumulator.value_type.field("value").type)
    return accumulator.field("value").type if function in ("first", "last") else accumulator
