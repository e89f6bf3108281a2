"""The state of a task's operator that is saved in parts (CEC, E15): which input its rebuild needs, and when the oldest
parts are saved again.

A *position* is the number of input events that the task has taken. The operator writes footprints at positions that
are *marked* here: with the progress of the inputs, and with the order in which frames are taken from there on. A
snapshot goes back to the mark of the oldest footprint that decides. Its restore takes the frames behind that mark
once more, in the stored order, and gives their rows to the operator alone. All other state of the task is stored as it
was at the snapshot. So neither the task's log nor its outputs go back, only its inputs do.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa

from clonos_py.columns.views import concat
from clonos_py.model.counters import SavedParts
from clonos_py.model.errors import DAMAGED_REMEDY, UnreadableCheckpointError
from clonos_py.model.operators import Extent, PartwiseOperator
from clonos_py.model.protocols import FootprintPolicy
from clonos_py.model.state import Chunk, OperatorState
from clonos_py.process.contract import ORDER_TABLE, InputProgress, TaskProgress

SPEED = 3.0
"""How much faster input is taken in a rebuild than it came: an assumption, which weighs the length of a rebuild."""
_PART_US = 1.0
"""How long it takes to save a part, before it was measured."""
_PART_US_MIN = 0.01
_BEYOND = 1.5
"""A target is missed if it is exceeded by half."""
_NEW = 0.2
"""The weight of a new measurement."""


class _Mark(NamedTuple):
    position: int
    inputs: list[InputProgress]
    rows: int
    at_us: int


class Arrival(NamedTuple):
    """Frames of an input channel that were taken together."""

    channel: int
    frames: int


class PartwiseState:
    """The positions of one operator of a task."""

    def __init__(self, operator: PartwiseOperator, number: int, policy: FootprintPolicy) -> None:
        """``number``: that of the operator in its task."""
        self.operator, self.number = operator, number
        self._checks = Checks(policy)
        self._all = False
        operator.save_in_parts()
        self._go_to(0)

    def _go_to(self, position: int) -> None:
        self.taken, self._rows = position, 0
        """``taken``: the number of input events so far."""
        self._marks: deque[_Mark] = deque()
        self._order: list[Arrival] = []
        """Since the last mark."""
        self._segments: deque[tuple[int, Chunk]] = deque()
        """The order from the position of each mark to the next mark."""
        self._pending: deque[Arrival] = deque()
        self.rebuilding = False

    # ---- while the task runs, and in a replay

    def took(self, arrival: Arrival, rows: int) -> None:
        """The task has taken an input event."""
        self._order.append(arrival)
        self.taken += 1
        self._rows += rows

    def save_all(self) -> None:
        """The next snapshot must not go back: senders are short of room for the frames that a rebuild needs."""
        self._all = True

    def save(self, inputs: list[InputProgress], now_us: int) -> OperatorState:
        """The operator's state for a snapshot."""
        self._mark(inputs, now_us)
        self.operator.save(self.taken)
        if self._all:
            self._all = False
            self.operator.check(self.taken, sum(self.operator.extent.live))
        self._trim()
        state = self.operator.footprints()
        order = [chunk for _, chunk in self._segments]
        return OperatorState({**state.tables, ORDER_TABLE: order}, state.values)

    def save_whole(self) -> OperatorState:
        """The operator's whole state: no footprint counts any more."""
        self._go_to(self.taken)
        self.operator.forget()
        return self.operator.snapshot()

    @property
    def saved(self) -> SavedParts:
        """What the last snapshot has saved."""
        extent = self.operator.extent
        rows = self._rows - self._marks[0].rows if self._marks else 0
        found = SavedParts(sum(extent.live), sum(extent.records), rows)
        return msgspec.structs.replace(found, target_missed=self._checks.missed(found))

    def rebuild_from(self) -> tuple[int, list[InputProgress]]:
        """The position to which the restore of a snapshot taken now goes back, and the inputs there; no inputs: it does
        not go back."""
        if not self._marks or self._marks[0].position == self.taken:
            return self.taken, []
        return self._marks[0].position, self._marks[0].inputs

    def check_due(self, now_us: int) -> bool:
        return self._checks.due(now_us)

    def check(self, inputs: list[InputProgress], now_us: int) -> bool:
        """Saves the oldest parts again, as many as the policy says. Returns whether there were any."""
        extent, marks = self.operator.extent, {mark.position: mark for mark in self._marks}
        rows = [self._rows - marks[at].rows for at in extent.positions]
        ages_us = [now_us - marks[at].at_us for at in extent.positions]
        if parts := self._checks.parts(extent, rows, ages_us, now_us):
            self._mark(inputs, now_us)
            self.operator.check(self.taken, parts)
        return parts > 0

    def _mark(self, inputs: list[InputProgress], now_us: int) -> None:
        if self._marks and self._marks[-1].position == self.taken:
            return
        if self._marks:
            self._segments.append((self._marks[-1].position, Chunk(_table(self._order))))
        self._order = []
        self._marks.append(_Mark(self.taken, inputs, self._rows, now_us))

    def _trim(self) -> None:
        """Drops what lies before the oldest footprint."""
        positions = self.operator.extent.positions
        oldest = positions[0] if positions else self.taken
        while self._marks[0].position < oldest:
            self._marks.popleft()
        while self._segments and self._segments[0][0] < oldest:
            self._segments.popleft()
        self._join(set(positions))

    def _join(self, needed: set[int]) -> None:
        """Drops marks without footprints, and joins the order before and behind them. A snapshot names each chunk, so
        there should be few. Only chunks of similar size are joined: what was joined is stored again."""
        joined: list[tuple[_Mark, Chunk]] = []
        for mark, (_, chunk) in zip(self._marks, self._segments, strict=False):
            joined.append((mark, chunk))
            while len(joined) > 1 and joined[-1][0].position not in needed:
                (first, before), (_, after) = joined[-2:]
                if before.rows.num_rows >= 2 * after.rows.num_rows:
                    break
                joined[-2:] = [(first, Chunk(concat([before.rows, after.rows])))]
        self._marks = deque([*(mark for mark, _ in joined), self._marks[-1]])
        self._segments = deque((mark.position, chunk) for mark, chunk in joined)

    # ---- rebuilding

    def restore(self, parts: Sequence[OperatorState], progress: TaskProgress | None) -> None:
        """The task starts from a snapshot, whose state the operator has got. Raises CheckpointError if the stored order
        is not that of its input."""
        self._go_to(progress.taken if progress is not None else 0)
        if progress is None or not any(ORDER_TABLE in part.tables for part in parts):
            return
        self.rebuilding, self.taken = True, progress.rebuild_taken
        position = self.taken
        for chunk in parts[0].tables[ORDER_TABLE]:
            self._segments.append((position, chunk))
            position += chunk.rows.num_rows
        if position != progress.taken:
            raise UnreadableCheckpointError(
                f"the stored order of input ends at event {position}, the snapshot at {progress.taken}: the checkpoint "
                f"is damaged; {DAMAGED_REMEDY}"
            )

    def begin_rebuild(self) -> None:
        """The process is to be the task: no other snapshot will be restored."""
        self.operator.begin_rebuild()
        for _, chunk in self._segments:
            self._pending += _arrivals(chunk)

    def next(self) -> Arrival | None:
        """The next event of the rebuild; None if the operator has the state of the snapshot."""
        return self._pending[0] if self._pending else None

    def begin(self, inputs: list[InputProgress], now_us: int) -> None:
        """The next event of the rebuild begins, with the inputs in this state."""
        self._pending.popleft()
        self._remark(inputs, now_us)

    def came(self, rows: int) -> None:
        """The event of the rebuild was processed."""
        self.taken += 1
        self._rows += rows

    def finish(self, inputs: list[InputProgress], now_us: int) -> None:
        """The operator has the state of the snapshot."""
        self.rebuilding = False
        self._marks.append(_Mark(self.taken, inputs, self._rows, now_us))

    def _remark(self, inputs: list[InputProgress], now_us: int) -> None:
        number = len(self._marks)
        if number < len(self._segments) and self._segments[number][0] == self.taken:
            self._marks.append(_Mark(self.taken, inputs, self._rows, now_us))


class Checks:
    """When the oldest parts are saved again, and how many (CEC, section 3.A)."""

    def __init__(self, policy: FootprintPolicy) -> None:
        self._policy = policy
        self._next_us = 0
        self._last: tuple[int, int] | None = None
        """The time and the parts of a check in the step before."""
        self.part_us = _PART_US
        """How long it takes to save a part, as measured."""

    def due(self, now_us: int) -> bool:
        """Called with every step of the task, so that the time between two steps shows what a check has taken."""
        if self._last is not None:
            (before_us, parts), self._last = self._last, None
            self.part_us += _NEW * ((now_us - before_us) / parts - self.part_us)
        return self._policy.check_us > 0 and now_us >= self._next_us

    def parts(self, extent: Extent, rows: Sequence[int], ages_us: Sequence[int], now_us: int) -> int:
        """How many parts to save now. By batch of the extent, ``rows``: those of the input since, ``ages_us``: the time
        since."""
        self._next_us = now_us + self._policy.period_us
        wanted = self._wanted(extent, rows, ages_us)
        parts = min(wanted, max(1, int(self._policy.check_us / max(self.part_us, _PART_US_MIN))))
        if parts:
            self._last = now_us, parts
        return parts

    def missed(self, saved: SavedParts) -> str:
        """The setting whose target is not met. A little beyond it is what each period brings."""
        policy = self._policy
        if policy.extent_max and (saved.open > policy.extent_max or saved.extent > _BEYOND * policy.extent_max):
            return "extent_max"
        return "replay_max" if policy.replay_max and saved.replay_rows > _BEYOND * policy.replay_max else ""

    def _wanted(self, extent: Extent, rows: Sequence[int], ages_us: Sequence[int]) -> int:
        if not extent.positions:
            return 0
        moved = np.cumsum([0, *extent.live])
        policy = self._policy
        if policy.extent_max or policy.replay_max:
            records = sum(extent.records) - np.cumsum([0, *extent.records]) + moved
            after = np.array([*rows, 0])
            fits = (records <= (policy.extent_max or np.inf)) & (after <= (policy.replay_max or np.inf))
            return int(moved[int(np.argmax(fits)) if fits.any() else -1])
        ages = np.array([*ages_us, 0], np.float64)
        gains = (ages[0] - ages) / SPEED * ages[0] / 2 / policy.failure_us - moved * self.part_us
        best = int(np.argmax(gains))
        return int(moved[best])


def _table(order: Sequence[Arrival]) -> pa.RecordBatch:
    columns: list[Any] = [pa.array([arrival[field] for arrival in order], pa.int32()) for field in range(2)]
    return pa.RecordBatch.from_arrays(columns, names=list(Arrival._fields))


def _arrivals(chunk: Chunk) -> list[Arrival]:
    columns = (chunk.rows.column(name).to_pylist() for name in Arrival._fields)
    return [Arrival(*row) for row in zip(*columns, strict=True)]
