"""Window join: joins rows with equal keys whose event times are in the same window (Nexmark q8).

Rows are stored by *pane*, the longest time span that no window boundary divides: a tumbling window is one pane, a
hopping window several. When the watermark passes the end of a window, its panes are joined. A pane is removed when its
last window has closed. Pairs are emitted in the order of windows, then of the left row, then of the right row. An outer
join then gives the rows without a match in the window. A row whose windows have all closed is dropped and counted as
``late_rows``.

A window joins only rows for which it has not fired yet. So each chunk of a snapshot carries the time up to which its
instance had fired: after a change of parallelism, one instance may restore chunks of several that had reached different
times.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import gcd
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from clonos_py.columns.views import Ints, concat, fixed
from clonos_py.model.joins import JoinColumns, JoinType
from clonos_py.model.operators import Operator
from clonos_py.model.state import Chunk, OperatorState
from clonos_py.model.times import MAX_TIME, MIN_TIME
from clonos_py.model.windows import WINDOW_END, WINDOW_START, Hopping, Tumbling
from clonos_py.operators.event_time_range import event_times
from clonos_py.operators.keyed_chunks import grouped_schema, owned, with_groups
from clonos_py.operators.pairs import Pairs
from clonos_py.operators.panes import PANE_COLUMN
from clonos_py.operators.row_filters import matchable

_SIDES = ("left", "right")


class _Stored(NamedTuple):
    """A chunk, with the time up to which the windows of its rows have fired."""

    chunk: Chunk
    fired: int


@dataclass
class _Pane:
    """The rows of one side in one pane."""

    stored: list[_Stored] = field(default_factory=list)
    fresh: list[pa.RecordBatch] = field(default_factory=list)


class WindowJoin(Operator):
    """Joins on equal keys (null equals nothing) within tumbling or hopping windows.

    ``columns`` give the origin of each field of ``schema``, except of ``window_start`` and ``window_end``. ``how``:
    which rows are in the result.
    """

    def __init__(
        self,
        left_keys: Sequence[str],
        right_keys: Sequence[str],
        window: Tumbling | Hopping,
        left_time: str,
        right_time: str,
        columns: JoinColumns,
        schema: pa.Schema,
        how: JoinType = JoinType.INNER,
    ) -> None:
        self._keys = (list(left_keys), list(right_keys))
        self._how = how
        self._times = (None, None) if window.processing_time else (left_time, right_time)
        self._size = window.size_us
        self._slide = window.slide_us if isinstance(window, Hopping) else window.size_us
        self._width = gcd(self._size, self._slide)
        self._pairs = Pairs(columns, schema, how, self._keys)
        self._kept = tuple(self._pairs.needed(side, *self._keys[side]) for side in (0, 1))
        self._clear()

    def _clear(self) -> None:
        self._panes: tuple[dict[int, _Pane], dict[int, _Pane]] = ({}, {})
        self._fired = MIN_TIME
        self._next_end = MAX_TIME

    @property
    def final(self) -> bool:
        return True

    def on_rows(self, rows: pa.RecordBatch, side: int) -> None:
        time = self._times[side]
        rows = matchable(rows, self._keys[side], [time] if time else [], self.ctx.count, self._how.unmatched[side])
        if not rows.num_rows:
            return
        times = self._event_times(rows, side)
        rows = rows.select(self._kept[side])
        open_from = self._open_from(self._fired)
        if times.min() < open_from:
            on_time = np.flatnonzero(times >= open_from)
            self.ctx.count("late_rows", rows.num_rows - len(on_time))
            rows, times = rows.take(on_time), times[on_time]
        for start, piece in self._split(rows, times):
            self._pane(side, start).fresh.append(piece)

    def on_watermark(self, watermark: int) -> int:
        """Fires due windows. Pairs have the time of the last moment of their window, so the watermark holds for
        them."""
        if watermark == MAX_TIME or self._times[0] is not None:
            self._fire(watermark)
        return watermark

    def on_timer(self, at: int) -> None:
        self._fire(at)

    def tables(self, inputs: Sequence[pa.Schema]) -> Mapping[str, pa.Schema]:
        pane = pa.field(PANE_COLUMN, pa.int64())
        return {name: grouped_schema(inputs[side], self._kept[side]).append(pane) for side, name in enumerate(_SIDES)}

    def snapshot(self) -> OperatorState:
        """The state: a table of panes per side, and in ``values`` the time up to which each chunk's windows have
        fired."""
        tables: dict[str, list[Chunk]] = {}
        values: dict[str, int | list[int]] = {"fired": self._fired}
        for side, name in enumerate(_SIDES):
            stored = [entry for start, pane in self._panes[side].items() for entry in self._sealed(side, start, pane)]
            tables[name] = [entry.chunk for entry in stored]
            values[name] = [max(entry.fired, self._fired) for entry in stored]
        return OperatorState(tables, values)

    def restore(self, parts: Sequence[OperatorState]) -> None:
        self._clear()
        self._fired = min((part.values["fired"] for part in parts), default=MIN_TIME)
        for part in parts:
            for side, name in enumerate(_SIDES):
                for whole, fired in zip(part.tables.get(name, ()), part.values[name], strict=True):
                    for chunk in owned([whole], self.ctx.groups):
                        start = int(fixed(chunk.rows.column(PANE_COLUMN))[0])
                        self._pane(side, start).stored.append(_Stored(chunk, fired))

    def _event_times(self, rows: pa.RecordBatch, side: int) -> Ints:
        """The times of rows. Processing time never decreases, even if the clock is set back: closed windows stay
        closed."""
        time = self._times[side]
        if time is None:
            return np.full(rows.num_rows, max(self.ctx.time.now(), self._fired))
        return event_times(rows, time)

    def _open_from(self, watermark: int) -> int:
        """The start of the first window that ends after ``watermark``."""
        return ((watermark - self._size) // self._slide + 1) * self._slide

    def _split(self, rows: pa.RecordBatch, times: Ints) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Splits rows by pane, in the order of panes. Keeps the order within each pane."""
        if not len(times):
            return
        panes = times // self._width
        if int(panes.min()) != int(panes.max()) and (panes[1:] < panes[:-1]).any():
            order = np.argsort(panes, kind="stable")
            rows, panes = rows.take(order), panes[order]
        cuts = [0, *(np.flatnonzero(panes[1:] != panes[:-1]) + 1).tolist(), len(panes)]
        for low, high in itertools.pairwise(cuts):
            yield int(panes[low]) * self._width, rows.slice(low, high - low)

    def _pane(self, side: int, start: int) -> _Pane:
        pane = self._panes[side].get(start)
        if pane is None:
            pane = self._panes[side][start] = _Pane()
            for end in self._ends(start):
                self._next_end = min(self._next_end, end)
                if self._times[0] is None:
                    self.ctx.set_timer(end)
        return pane

    def _ends(self, pane: int) -> Iterator[int]:
        """The ends of the windows that contain a pane and have not fired."""
        first = ((pane - self._size) // self._slide + 1) * self._slide
        for start in range(first, pane + 1, self._slide):
            if start + self._size > self._fired:
                yield start + self._size

    def _fire(self, watermark: int) -> None:
        if watermark >= self._next_end:
            ends = {end for panes in self._panes for pane in panes for end in self._ends(pane)}
            for end in sorted(end for end in ends if end <= watermark):
                self._join(end - self._size, end)
        self._fired = max(self._fired, watermark)
        if watermark >= self._next_end:
            self._expire()

    def _join(self, start: int, end: int) -> None:
        pieces = [list(self._pieces(side, start, end)) for side in (0, 1)]
        if not any(found and (pieces[1 - side] or self._how.unmatched[side]) for side, found in enumerate(pieces)):
            return
        left, right = (concat(found) if found else None for found in pieces)
        for batch in self._pairs.joined(left, right, self._keys, {WINDOW_START: start, WINDOW_END: end}):
            self.out.emit(batch)

    def _pieces(self, side: int, start: int, end: int) -> Iterator[pa.RecordBatch]:
        for at in range(start, end, self._width):
            pane = self._panes[side].get(at)
            if pane is not None:
                yield from (e.chunk.rows.select(self._kept[side]) for e in pane.stored if e.fired < end)
                yield from pane.fresh

    def _expire(self) -> None:
        open_from = self._open_from(self._fired)
        left, right = ({at: pane for at, pane in panes.items() if at >= open_from} for panes in self._panes)
        self._panes = (left, right)
        ends = (end for panes in self._panes for pane in panes for end in self._ends(pane))
        self._next_end = min(ends, default=MAX_TIME)

    def _sealed(self, side: int, start: int, pane: _Pane) -> list[_Stored]:
        """The pane's chunks. Rows that arrived since the last snapshot become a new chunk."""
        if pane.fresh:
            rows = with_groups(concat(pane.fresh), self._keys[side], self.ctx.key_groups)
            rows = rows.append_column(pa.field(PANE_COLUMN, pa.int64()), pa.array(np.full(rows.num_rows, start)))
            pane.stored.append(_Stored(Chunk(rows), MIN_TIME))
            pane.fresh = []
        return pane.stored
