"""Temporal join: joins each row with the version of the other side that is valid at its time, the latest one that is
not later (SQL's ``FOR SYSTEM_TIME AS OF``).

A left row waits until the combined watermark of both inputs has passed its time, so that no version that it could match
is still to come. So the pairs do not depend on the order of rows, as long as these are no more out of order than their
sources declare. Pairs are emitted in the order of the left rows' times. Of versions with equal times, the last one to
arrive is valid.

A late version, one behind the watermark, takes its place among the versions by its time. It is valid for all left rows
that have not been joined yet; pairs that were emitted stay. A late left row is dropped.

In a right or full join the result also has each version that no left row has had. It is emitted when none can have it
any more: when the watermark has passed the time of a later version of its key, or when it is too old. These rows are in
no order of time.

The state holds the waiting left rows and, by key, the versions that an on-time row may match: the last one before the
watermark, and all later ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from clonos_py.columns.grouping import group
from clonos_py.columns.matching import with_keys
from clonos_py.columns.ordering import order_by
from clonos_py.columns.views import Bools, Ints, fixed, take
from clonos_py.model.joins import JoinColumns, JoinType
from clonos_py.model.operators import Operator, OperatorContext, Output
from clonos_py.model.state import OperatorState
from clonos_py.model.times import MAX_TIME
from clonos_py.operators.event_time_buffer import EventTimeBuffer
from clonos_py.operators.event_time_range import event_times
from clonos_py.operators.keyed_chunks import grouped_schema, owned, parted, stored, with_groups
from clonos_py.operators.keyed_rows import KeyedRows
from clonos_py.operators.pairs import NO_ROW, Pairs, looked_up, without_match
from clonos_py.operators.row_filters import matchable, on_time
from clonos_py.operators.row_flags import flagged, owned_flagged, packed
from clonos_py.operators.version_uses import VersionUses

_LEFT, _RIGHT = "left", "right"
_USED = "right.used"
_FEW_ROWS = 16_384


class VersionJoin(Operator):
    """Joins on equal keys (null equals nothing). A left row has no match if it has no version, or if its version is
    more than ``oldest`` microseconds older. Left rows behind the watermark are dropped and counted as ``late_rows``."""

    def __init__(
        self,
        left_keys: Sequence[str],
        right_keys: Sequence[str],
        left_time: str,
        right_time: str,
        columns: JoinColumns,
        schema: pa.Schema,
        oldest: int | None = None,
        how: JoinType = JoinType.INNER,
    ) -> None:
        self._keys = (list(left_keys), list(right_keys))
        self._times = (left_time, right_time)
        self._oldest = oldest
        self._how = how
        self._pairs = Pairs(columns, schema, how, self._keys)
        self._kept = tuple(self._pairs.needed(side, *self._keys[side], self._times[side]) for side in (0, 1))
        self._versions = KeyedRows(self._keys[1], _RIGHT)
        self._uses = VersionUses(oldest) if how.unmatched[1] else None

    def open(self, ctx: OperatorContext, out: Output) -> None:
        super().open(ctx, out)
        self._waiting = EventTimeBuffer(self._times[0], self._keys[0], ctx.key_groups)
        self._versions_kept = 0

    @property
    def final(self) -> bool:
        return True

    def on_rows(self, rows: pa.RecordBatch, side: int) -> None:
        rows = matchable(rows, self._keys[side], [self._times[side]], self.ctx.count, self._how.unmatched[side])
        if side:
            event_times(rows, self._times[side])
        else:
            rows = on_time(rows, self._times[side], self.ctx)
        if side and self._uses is not None:
            rows = self._with_keys(rows)
        if not rows.num_rows:
            return
        rows = rows.select(self._kept[side])
        if not side:
            self._waiting.add(rows)
            return
        self._versions.append(with_groups(rows, self._keys[side], self.ctx.key_groups))
        if self._uses is not None:
            self._uses.append(self._since(rows))

    def on_watermark(self, watermark: int) -> int:
        due = self._waiting.take(watermark)
        if due is not None and (self._versions.rows or self._how.unmatched[0]):
            self._join(due)
        if self._uses is not None:
            self._remove_unusable(self._uses, watermark)
        elif self._versions.live_row_count > 2 * self._versions_kept + _FEW_ROWS:
            self._expire(watermark)
        return watermark

    def tables(self, inputs: Sequence[pa.Schema]) -> Mapping[str, pa.Schema]:
        return {name: grouped_schema(inputs[side], self._kept[side]) for side, name in enumerate((_LEFT, _RIGHT))}

    def snapshot(self) -> OperatorState:
        state = self._versions.snapshot({} if self._uses is None else {_USED: packed(self._uses.used)})
        return OperatorState({_LEFT: self._waiting.chunks(), **state.tables}, state.values)

    def restore(self, parts: Sequence[OperatorState]) -> None:
        self._waiting.load(owned(stored(parts, _LEFT), self.ctx.groups))
        self._versions_kept = 0
        self._versions.restore(parts, self.ctx.groups)
        if self._uses is not None:
            each = (found for part in parts for found in flagged(part, _RIGHT, _USED))
            kept = [own for found in each if (own := owned_flagged(*found, self.ctx.groups)) is not None]
            self._load_uses(self._uses, np.concatenate([np.zeros(0, bool), *(used for _, used in kept)]))

    def _join(self, rows: pa.RecordBatch) -> None:
        versions = self._versions_of(rows) if self._versions.rows else np.full(rows.num_rows, NO_ROW)
        left = np.flatnonzero(versions != NO_ROW)
        if self._uses is not None:
            self._uses.use(versions[left])
        found = self._versions.take(versions[left], self._kept[1]) if self._versions.rows else None
        pairs = looked_up(self._how, (left, np.arange(len(left))), rows.num_rows)
        for batch in self._pairs.batches((rows, found), pairs):
            self.out.emit(batch)

    def _versions_of(self, rows: pa.RecordBatch) -> Ints:
        """By left row: the number of its version, or ``NO_ROW``."""
        keys = group([rows.column(key) for key in self._keys[0]], rows.num_rows)
        asked = [take(rows.column(key), keys.first) for key in self._keys[0]]
        named = [str(number) for number, _ in enumerate(asked)]
        owners, numbers = self._versions.find(pa.RecordBatch.from_arrays(asked, names=named), named=named)
        since = self._since(self._versions.take(numbers, [self._times[1]]))
        times = fixed(rows.column(self._times[0]))
        latest = _latest(owners, since, keys.ids, times)
        holds = latest >= 0
        if self._oldest is not None and len(since):
            holds &= since[latest] >= times - self._oldest
        versions = np.full(rows.num_rows, NO_ROW)
        versions[holds] = numbers[latest[holds]]
        return versions

    def _expire(self, watermark: int) -> None:
        """Removes versions that another one before the watermark has replaced, or that are too old for any row."""
        numbers = self._versions.all_numbers()
        rows = self._versions.take(numbers, [*self._keys[1], self._times[1]])
        since = self._since(rows)
        keep = since >= watermark
        before = np.flatnonzero(~keep)
        keys = group([rows.column(key) for key in self._keys[1]], rows.num_rows).ids
        keep[before[_last_of_each(keys[before], since[before])]] = True
        if self._oldest is not None:
            keep &= since >= watermark - self._oldest
        self._versions.remove(numbers[~keep])
        self._versions.compact()
        self._versions_kept = self._versions.live_row_count

    def _with_keys(self, versions: pa.RecordBatch) -> pa.RecordBatch:
        """The versions that a left row may have. Emits the others, which have a null key."""
        kept = with_keys(versions, self._keys[1])
        if kept is None:
            return versions
        self._emit_alone(versions.take(without_match(kept, versions.num_rows)))
        return versions.take(kept)

    def _remove_unusable(self, uses: VersionUses, watermark: int) -> None:
        """Removes the versions that no left row can have any more. Emits those that none has had."""
        replaced = self._replaced(self._versions.live_numbers(uses.begun(watermark)), watermark)
        gone = self._versions.distinct(np.concatenate([replaced, uses.too_old(watermark)]))
        gone = self._versions.all_numbers() if watermark == MAX_TIME else self._versions.live_numbers(gone)
        for part in parted(gone[~uses.used[gone]]):
            self._emit_alone(self._versions.take(part, self._kept[1]))
        self._versions.remove(gone)
        if (kept := self._versions.compact()) is not None:
            self._load_uses(uses, uses.used[kept])

    def _replaced(self, begun: Ints, watermark: int) -> Ints:
        """The versions before ``watermark`` that others before it have replaced, among those with the keys of the
        versions ``begun``."""
        if not len(begun):
            return begun
        keys = self._versions.take(begun, self._keys[1])
        first = group([keys.column(key) for key in self._keys[1]], keys.num_rows).first
        owners, numbers = self._versions.find(keys.take(first))
        since = self._since(self._versions.take(numbers, [self._times[1]]))
        before = np.flatnonzero(since < watermark)
        owners, numbers, since = owners[before], numbers[before], since[before]
        replaced = np.ones(len(numbers), bool)
        replaced[_last_of_each(owners, since)] = False
        return numbers[replaced]

    def _load_uses(self, uses: VersionUses, used: Bools) -> None:
        numbers = self._versions.all_numbers()
        if not len(numbers):
            uses.load(used, numbers, numbers)
            return
        uses.load(used, numbers, self._since(self._versions.take(numbers, [self._times[1]])))

    def _emit_alone(self, versions: pa.RecordBatch) -> None:
        for batch in self._pairs.alone(versions, 1):
            self.out.emit(batch)

    def _since(self, versions: pa.RecordBatch) -> Ints:
        since: Ints = fixed(versions.column(self._times[1]))
        return since


def _latest(owners: Ints, since: Ints, keys: Ints, times: Ints) -> Ints:
    """For each row, the index of its key's latest version that is not later; -1 if there is none. It takes one pass
    over versions and rows in the order of time, since a key may have many of both."""
    all_keys = np.concatenate([owners, keys])
    order = order_by([all_keys, np.concatenate([since, times])])  # at equal times versions precede rows
    is_version = order < len(owners)
    before = np.maximum.accumulate(np.where(is_version, np.arange(len(order)), -1))
    asking = np.flatnonzero(~is_version)
    candidates = order[np.maximum(before[asking], 0)]
    rows = order[asking] - len(owners)
    found = np.full(len(keys), -1, np.int64)
    right = (before[asking] >= 0) & (all_keys[candidates] == keys[rows])
    found[rows[right]] = candidates[right]
    return found


def _last_of_each(groups: Ints, times: Ints) -> Ints:
    """The index of the latest element of each group, in the order of groups. Of equal times, that of the last."""
    order = order_by([groups, times])
    ends = np.ones(len(order), bool)
    ends[:-1] = groups[order][1:] != groups[order][:-1]
    return order[ends]
