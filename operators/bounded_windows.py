"""Which windows rows belong to, when rows or partial rows are kept for each window: the bounds of each, and whether it
is still open."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from clonos_py.columns.index import expand
from clonos_py.columns.views import Bools, Ints, fixed
from clonos_py.model.windows import ASSIGNED_BOUNDS, BOUNDS
from clonos_py.operators.panes import PaneClock


class InWindows(NamedTuple):
    """Pairs of rows and windows: the number of the row, and the bounds of the window."""

    rows: Ints
    starts: Ints
    ends: Ints

    def where(self, chosen: Bools) -> InWindows:
        return InWindows(self.rows[chosen], self.starts[chosen], self.ends[chosen])

    def put(self, rows: pa.RecordBatch, place: int) -> pa.RecordBatch:
        """The rows of the pairs, with the bounds as columns from ``place`` on."""
        found = rows.take(self.rows)
        for number, (name, bound) in enumerate(zip(BOUNDS, (self.starts, self.ends), strict=True)):
            found = found.add_column(place + number, name, pa.array(bound))
        return found


def windows_of_panes(clock: PaneClock, panes: Ints) -> InWindows:
    """The windows that contain each pane."""
    distinct, of = np.unique(panes, return_inverse=True)
    windows = [clock.windows(pane) for pane in distinct.tolist()]
    counts = np.array([len(found) for found in windows], np.int64)
    starts = np.array([clock.start(window) for found in windows for window in found], np.int64)
    ends = np.array([window + clock.size for found in windows for window in found], np.int64)
    rows, places = expand((np.cumsum(counts) - counts)[of], counts[of])
    return InWindows(rows, starts[places], ends[places])


def assigned_windows(rows: pa.RecordBatch) -> InWindows:
    """The window that each row was given."""
    starts, ends = (fixed(rows.column(name)) for name in ASSIGNED_BOUNDS)
    return InWindows(np.arange(rows.num_rows), starts, ends)
