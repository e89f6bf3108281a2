"""The event time that an operator had reached at a snapshot, for a restore from several instances.

Former instances may have reached different times. The restored instance continues from the lowest. It records which key
groups were ahead until it has caught up, so that it does not reopen a window that one of these groups has already
emitted and dropped.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from clonos_py.columns.keys import groups_of, hash_rows
from clonos_py.columns.views import Ints
from clonos_py.model.state import OperatorState
from clonos_py.model.times import MIN_TIME


class EventTimeProgress:
    """``reached``: the watermark or processing time so far. ``ahead``: the time reached by key group; None if no group
    is ahead."""

    def __init__(self) -> None:
        self.reached = MIN_TIME
        self.ahead: Ints | None = None

    def advance(self, reached: int) -> None:
        self.reached = reached
        if self.ahead is not None and int(self.ahead.max()) <= reached:
            self.ahead = None

    @property
    def latest(self) -> int:
        """The time that the most advanced key group has reached."""
        return self.reached if self.ahead is None else max(self.reached, int(self.ahead.max()))

    def reached_by(self, rows: pa.RecordBatch, keys: Sequence[str], key_groups: int) -> int | Ints:
        """The time that has been reached; by row if key groups have reached different ones."""
        if self.ahead is None:
            return self.reached
        return np.maximum(self.ahead, self.reached)[groups_of(hash_rows(rows, keys), key_groups)]

    def reached_by_each(self, rows: pa.RecordBatch, keys: Sequence[str], key_groups: int) -> Ints:
        """By row: the time that has been reached."""
        return np.broadcast_to(self.reached_by(rows, keys, key_groups), rows.num_rows)

    def values(self, groups: range) -> dict[str, Any]:
        """The state for the snapshot of an instance that owns ``groups``."""
        ahead = [] if self.ahead is None else self.ahead.tolist()
        return {"reached": self.reached, "ahead": ahead, "groups": [groups.start, groups.stop]}

    def restore(self, parts: Sequence[OperatorState], groups: range, key_groups: int) -> None:
        """Restores the state of ``groups`` from the ``values`` of the former instances."""
        by_group = np.full(key_groups, MIN_TIME, np.int64)
        for part in parts:
            start, stop = part.values["groups"]
            ahead = np.array(part.values["ahead"] or [part.values["reached"]], np.int64)
            by_group[start:stop] = ahead[start:stop] if len(ahead) > 1 else ahead
        own = by_group[groups.start : groups.stop]
        self.reached = int(own.min()) if len(own) else MIN_TIME
        self.ahead = by_group if len(own) and int(own.max()) > self.reached else None
