"""From which rows of an operator a result of it came, as far as its kind tells.

Operators with one result for each row, filters and row functions tell it exactly. What an operator computes from many
rows comes from those with the key of the result, and in its window; what joins give, from rows of both sides with its
values. Else it is all that the operator took together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import gcd
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from clonos_py.columns.keys import hash_rows
from clonos_py.columns.times import instants
from clonos_py.columns.views import Bools, Ints, fixed
from clonos_py.model.errors import GraphError
from clonos_py.model.joins import JoinColumns, JoinType
from clonos_py.model.processes import ProcessInput
from clonos_py.model.windows import BOUNDS, WINDOW_END, WINDOW_START, Hopping, Tumbling
from clonos_py.operators.intervals import END_COLUMN, START_COLUMN
from clonos_py.operators.panes import PANE_COLUMN
from clonos_py.plan.logical import (
    AggregateWindows,
    AssignEventTimes,
    CallPerBatch,
    EnrichRows,
    FilterRows,
    GatherRows,
    JoinDeltas,
    JoinHistory,
    JoinTable,
    JoinVersions,
    JoinWindows,
    LimitRows,
    LoopHead,
    MergeDeltas,
    Node,
    ProjectColumns,
    RunProcess,
    ShowChanges,
    TopWindows,
)
from clonos_py.runtime.replay.histories import Emitted, OperatorHistory, Positions, TakenBatch, joined, positions_of

ALL_SO_FAR = "all rows that it had got"
_BOUNDS = (*BOUNDS, START_COLUMN, END_COLUMN, PANE_COLUMN)


class OriginRows(NamedTuple):
    """Rows that an operator took. ``how`` says why these; ``exact``: whether each of them, and no other, counts.
    ``state``: whether rows from before the interval may count, too. ``called``: those of the rows for which a process
    function gave the results."""

    rows: Positions
    how: str
    exact: bool
    state: bool = False
    called: Positions = MappingProxyType({})


class TracedRows(NamedTuple):
    """Results of an operator: rows of a batch that it emitted. ``verb``: of its plan; ``node``: what it does, or for
    one that the planner adds, what the operator behind it does."""

    history: OperatorHistory
    emitted: Emitted
    rows: Ints
    verb: str
    node: Node | None

    @property
    def taken(self) -> Iterator[tuple[int, TakenBatch]]:
        """The batches that the results may have come from, with their numbers. What combines rows keeps none."""
        stop = self.emitted.taken
        for number in range(stop - 1 if self.verb == "combine" else 0, stop):
            yield number, self.history.taken[number]


def inputs_of(asked: TracedRows) -> OriginRows:
    """The rows from which these results came."""
    return next(found for rule in _RULES if (found := rule(asked)) is not None)


# ---- one row for one row


def _noted(asked: TracedRows) -> OriginRows | None:
    """Of a row function, which has noted it."""
    origins = asked.emitted.origins
    if origins is None or asked.emitted.keys is not None:
        return None
    found = [origins[row] for row in asked.rows.tolist()]
    if any(number < 0 for number, _ in found):
        return None
    return OriginRows(positions_of(found), "the rows for which the function gave them", True)


def _in_place(asked: TracedRows) -> OriginRows | None:
    """Of an operator that gives one row for each."""
    work = asked.node.work if asked.node is not None else None
    one_for_one = asked.verb == "narrow" or isinstance(work, ProjectColumns | AssignEventTimes | LoopHead)
    if asked.verb == "combine" or not asked.emitted.at_once or not asked.history.taken:
        return None
    last = asked.emitted.taken - 1
    rows = asked.history.taken[last].rows
    same = rows.num_rows == asked.emitted.rows.num_rows
    if not same or not (one_for_one or _keeps(asked)):
        return None
    return OriginRows({last: asked.rows}, "the same rows, one for each", True)


def _keeps(asked: TracedRows) -> bool:
    """Whether the operator passes some of its rows on."""
    work = asked.node.work if asked.node is not None and asked.verb != "drop late" else None
    return asked.verb == "drop late" or isinstance(work, FilterRows | LimitRows | GatherRows)


def _kept(asked: TracedRows) -> OriginRows | None:
    """Of a filter: its results are its rows without some, in the same order."""
    if not _keeps(asked) or not asked.emitted.at_once:
        return None
    last = asked.emitted.taken - 1
    rows, results = asked.history.taken[last].rows, asked.emitted.rows
    before = _hashes(rows.select(results.schema.names)).tolist()
    places: list[int] = []
    at = 0
    for value in _hashes(results).tolist():
        while at < len(before) and before[at] != value:
            at += 1
        if at == len(before):
            return None
        places.append(at)
        at += 1
    return OriginRows({last: np.array(places, np.int64)[asked.rows]}, "the rows that it kept", True)


# ---- by key, window and values


def _by_keys_in_batch(asked: TracedRows) -> OriginRows | None:
    """Of what merges the deltas of a table, or shows them as changes."""
    work = asked.node.work if asked.node is not None and asked.verb != "narrow" else None
    rows = asked.emitted.rows.take(asked.rows)
    if not isinstance(work, MergeDeltas | ShowChanges) or not set(work.keys) <= set(rows.schema.names):
        return None
    last = asked.emitted.taken - 1
    own = _hashes(asked.history.taken[last].rows.select(list(work.keys)))
    places = np.flatnonzero(np.isin(own, _hashes(rows.select(list(work.keys)))))
    return OriginRows({last: places}, f"the rows of the batch with its keys ({', '.join(work.keys)})", True)


def _by_process(asked: TracedRows) -> OriginRows | None:
    keys, origins = asked.emitted.keys, asked.emitted.origins
    if keys is None or origins is None or asked.node is None or not isinstance(asked.node.work, RunProcess):
        return None
    inputs = asked.node.work.inputs
    called = [origins[row] for row in asked.rows.tolist()]
    ends = [(asked.emitted.taken, 0) if number < 0 else (number, row) for number, row in called]
    keyed = [(dict(keys[row]), end) for row, end in zip(asked.rows.tolist(), ends, strict=True) if keys[row]]
    hashes = _hashes(pa.RecordBatch.from_pylist([key for key, _ in keyed], inputs[0].key))
    of_keys = _until(asked, hashes, [end for _, end in keyed], [taken.keys for taken in inputs]) if keyed else {}
    found = joined([of_keys, _broadcast_until(asked, max(ends), inputs)])
    by = "the rows that the function was called with, and the earlier ones of each key, which its state may be of"
    if all(number < 0 for number, _ in called):
        by = "all rows of the key so far: a timer, or the order of event time, called the function"
    if any(given.broadcast for given in inputs):
        by += ", and the rows of the broadcast stream"
    return OriginRows(found, by, False, True, positions_of(called))


def _broadcast_until(asked: TracedRows, end: tuple[int, int], inputs: Sequence[ProcessInput]) -> dict[int, Ints]:
    """The rows of the broadcast input up to a row (number of the batch, row in it)."""
    rows = {number: taken.rows.num_rows for number, taken in asked.taken if inputs[taken.side].broadcast}
    counts = {number: count if number < end[0] else end[1] + 1 for number, count in rows.items() if number <= end[0]}
    return {number: np.arange(count) for number, count in counts.items()}


def _until(
    asked: TracedRows, hashes: Any, ends: Sequence[tuple[int, int]], columns: Sequence[Sequence[str]]
) -> dict[int, Ints]:
    """The rows that have one of these hashes in the columns of their side, if it has any, up to a row (number of the
    batch, row in it) for each hash."""
    last: dict[int, tuple[int, int]] = {}
    for value, end in zip(hashes.tolist(), ends, strict=True):
        last[value] = max(end, last.get(value, end))
    values = np.array(sorted(last), np.uint64)
    batches, rows = (np.array([last[value][n] for value in sorted(last)]) for n in (0, 1))
    found = {}
    for number, taken in asked.taken:
        if not columns[taken.side]:
            continue
        own = _hashes(taken.rows.select(list(columns[taken.side])))
        at = np.minimum(np.searchsorted(values, own), len(values) - 1)
        before = (number < batches[at]) | ((number == batches[at]) & (np.arange(len(own)) <= rows[at]))
        places = np.flatnonzero((values[at] == own) & before)
        if len(places):
            found[number] = places
    return found


def _by_columns(asked: TracedRows) -> OriginRows | None:
    """Of a join."""
    work = asked.node.work if asked.node is not None and asked.verb not in ("combine", "drop late", "narrow") else None
    if not isinstance(work, JoinWindows | JoinHistory | JoinVersions | JoinTable | JoinDeltas | EnrichRows):
        return None
    rows = asked.emitted.rows.take(asked.rows)
    parts = []
    for side in (0,) if getattr(work, "how", None) is JoinType.ANTI else (0, 1):
        pairs = _joined_columns(work.columns, _join_keys(work), side, rows.schema)
        if not pairs:
            return None
        results, names = zip(*pairs, strict=True)
        window = _windows(rows, asked.node) if isinstance(work, JoinWindows) else None
        time = (work.left_time, work.right_time)[side] if isinstance(work, JoinWindows) else None
        parts.append(_in_windows(asked, rows, results, {side: names}, window, time))
    found = joined(parts)
    count, pairs_asked = sum(map(len, found.values())), len(asked.rows)
    sides = 1 if isinstance(work, EnrichRows) else 2
    exact = count <= sides * pairs_asked and pairs_asked == 1
    others = " and those of the side input" if sides == 1 else ""
    return OriginRows(found, f"the rows with its values and keys, of each side{others}", exact, sides == 2)


def _join_keys(work: Any) -> tuple[Sequence[str], Sequence[str]]:
    if isinstance(work, EnrichRows):
        return work.keys, work.side_keys
    return work.left_keys, work.right_keys


def _joined_columns(
    columns: JoinColumns, keys: tuple[Sequence[str], Sequence[str]], side: int, schema: pa.Schema
) -> list[tuple[str, str]]:
    """Pairs (column of the result, column of this side) that are equal."""
    pairs = [(result, name) for result, of, name in columns if of == side and result in schema.names]
    results = {(of, name): result for result, of, name in columns if result in schema.names}
    for own, other in zip(keys[side], keys[1 - side], strict=True):
        result = results.get((side, own)) or results.get((1 - side, other))
        if result is not None and (result, own) not in pairs:
            pairs.append((result, own))
    return pairs


def _by_key(asked: TracedRows) -> OriginRows | None:
    """Of an operator with keys: its rows with the key of the result, and in its window, if it has one."""
    node = asked.node
    if node is None or not node.stateful or isinstance(node.work, RunProcess):
        return None
    sides = range(len(node.inputs))
    rows = asked.emitted.rows.take(asked.rows)
    keys = {side: node.exchange(side) or () for side in sides}
    if not set(keys[0]) <= set(rows.schema.names):
        return None
    window = _windows(rows, node) if isinstance(node.work, AggregateWindows | TopWindows) else None
    time = node.work.time_column if isinstance(node.work, AggregateWindows | TopWindows) else None
    found = _in_windows(asked, rows, keys[0], keys, window, time)
    of_key = f" with its key ({', '.join(keys[0])})" if keys[0] else ""
    if asked.verb == "combine":
        inside = " in its window" if window else ""
        return OriginRows(found, f"the rows of the batch{of_key}{inside}", True)
    timed = (_inside(batch.rows.slice(0, 0), (0, 0), time) is not None for _, batch in asked.taken)
    if window is not None and all(timed):
        return OriginRows(found, f"all rows{of_key} in its window, but for late ones", True, True)
    return OriginRows(found, f"all rows{of_key} so far", False, True)


def _windows(rows: pa.RecordBatch, node: Node | None) -> list[tuple[int, int]] | None:
    """By row: its window, in microseconds; None if the rows have none. The planner drops a bound that nothing reads."""
    found = {name: fixed(instants(rows.column(name))) for name in _BOUNDS if name in rows.schema.names}
    window: Any = getattr(node.work, "window", None) if node is not None else None
    if not isinstance(window, Tumbling | Hopping):
        names = next((names for names in (_BOUNDS[:2], _BOUNDS[2:4]) if set(names) <= found.keys()), None)
        return None if names is None else list(zip(*(found[name].tolist() for name in names), strict=True))
    width = gcd(window.size_us, window.slide_us) if isinstance(window, Hopping) else window.size_us
    if PANE_COLUMN in found:
        starts, size = found[PANE_COLUMN], width
    elif WINDOW_START in found:
        starts, size = found[WINDOW_START], window.size_us
    elif WINDOW_END in found:
        starts, size = found[WINDOW_END] - window.size_us, window.size_us
    else:
        return None
    return list(zip(starts.tolist(), (starts + size).tolist(), strict=True))


def _in_windows(
    asked: TracedRows,
    rows: pa.RecordBatch,
    results: Sequence[str],
    columns: Mapping[int, Sequence[str]],
    windows: list[tuple[int, int]] | None,
    time: str | None,
) -> dict[int, Ints]:
    """The rows of these sides that are equal to a result in these columns and, if given, are in its window. ``time``:
    the column of their event time."""
    hashes = _hashes(rows.select(list(results)))
    if windows is None:
        return _with_hashes(asked, hashes, columns.get)
    parts = []
    for window in dict.fromkeys(windows):
        of_window = np.array([other == window for other in windows])

        def inside(batch: pa.RecordBatch, side: int, window: tuple[int, int] = window) -> Bools | None:
            return _inside(batch, window, time)

        parts.append(_with_hashes(asked, hashes[of_window], columns.get, inside))
    return joined(parts)


def _inside(batch: pa.RecordBatch, window: tuple[int, int], time: str | None) -> Bools | None:
    """Which rows are in a window; None if they have no time."""
    names = batch.schema.names
    begin, end = window
    if time is not None and time in names:
        times = fixed(instants(batch.column(time)))
    elif PANE_COLUMN in names:
        times = fixed(batch.column(PANE_COLUMN))
    elif START_COLUMN in names:
        times = fixed(batch.column(START_COLUMN))
    else:
        return None
    return (times >= begin) & (times < end)


def _with_hashes(
    asked: TracedRows,
    hashes: Any,
    columns: Callable[[int], Sequence[str] | None],
    inside: Callable[[pa.RecordBatch, int], Bools | None] = lambda batch, side: None,
) -> dict[int, Ints]:
    """The rows so far that have one of these hashes in the columns of their side. None: no row of the side."""
    found = {}
    for number, taken in asked.taken:
        names = columns(taken.side)
        if names is None:
            continue
        mask = np.isin(_hashes(taken.rows.select(list(names))), hashes)
        if (within := inside(taken.rows, taken.side)) is not None:
            mask &= within
        if mask.any():
            found[number] = np.flatnonzero(mask)
    return found


def _hashes(rows: pa.RecordBatch) -> Any:
    """One hash per row. Columns that have none count as text."""
    try:
        return hash_rows(rows, rows.schema.names)
    except GraphError:
        texts = [pa.array([repr(value) for value in column.to_pylist()]) for column in rows.columns]
        return hash_rows(pa.RecordBatch.from_arrays(texts, rows.schema.names), rows.schema.names)


# ---- all of them


def _whole_batch(asked: TracedRows) -> OriginRows | None:
    work = asked.node.work if asked.node is not None else None
    gathers = isinstance(work, CallPerBatch) and work.gathered is not None
    if not asked.emitted.at_once or gathers or (asked.node is not None and asked.node.stateful):
        return None
    last = asked.emitted.taken - 1
    count = asked.history.taken[last].rows.num_rows
    how = f"all {_rows(count)} of the batch{' that its function got' if isinstance(work, CallPerBatch) else ''}"
    return OriginRows({last: np.arange(count)}, how, count == 1)


def _everything(asked: TracedRows) -> OriginRows:
    return OriginRows(dict(_all_so_far(asked)), ALL_SO_FAR, False, True)


def _all_so_far(asked: TracedRows) -> Iterator[tuple[int, Ints]]:
    for number, taken in asked.taken:
        yield number, np.arange(taken.rows.num_rows)


def _rows(count: int) -> str:
    return "row" if count == 1 else f"{count:,} rows"


_RULES: tuple[Callable[[TracedRows], OriginRows | None], ...] = (
    _noted, _by_process, _in_place, _kept, _by_keys_in_batch, _by_columns, _by_key, _whole_batch, _everything
)  # fmt: skip
