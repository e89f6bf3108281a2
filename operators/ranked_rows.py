"""State of a top-n whose rows can change and be deleted: all rows of each group, and a cached head of large groups.

A row that drops out of the first n may return when others are deleted, so every row is stored. Ranking all rows for
each batch would cost time in the size of the group, not of the batch. So a large group has a *head*, a copy of its
first rows: every row of the head ranks before every other row. A deleted row is removed from the head. A new row is
added to it if it ranks before the head's last row. The head is rebuilt from all rows of its group when it has less than
n rows, and cut when it grows too large. As it can always be rebuilt, it is not part of snapshots. Results do not depend
on it, since the order of rows is total."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from clonos_py.columns.views import Bools, Ints, concat
from clonos_py.model.state import OperatorState
from clonos_py.model.tables import SortKey
from clonos_py.operators.keyed_rows import ROWS_TABLE, KeyedRows
from clonos_py.operators.ranking import Ranking

_HEAD_ROWS = 64
"""The number of rows beyond the first n in a new head. A head may grow to twice its initial size."""


class FirstOfGroups(NamedTuple):
    """The first rows of some groups, by group, then by rank (0 for the first). ``rows`` is None if there are none."""

    rows: pa.RecordBatch | None
    groups: Ints
    ranks: Ints


class _Pool(NamedTuple):
    """Rows of some groups that include the groups' first rows. ``groups``: the group of each row; ``new``: whether the
    current batch added it."""

    rows: pa.RecordBatch | None
    groups: Ints
    new: Bools

    def some(self, chosen: Bools) -> _Pool:
        if self.rows is None or chosen.all():
            return self
        return _Pool(self.rows.take(np.flatnonzero(chosen)), self.groups[chosen], self.new[chosen])

    def united(self, other: _Pool) -> _Pool:
        pools = [pool for pool in (self, other) if len(pool.groups)]
        rows = [pool.rows for pool in pools if pool.rows is not None]
        if len(pools) < 2:
            return pools[0] if pools else self
        groups, new = (np.concatenate(parts) for parts in zip(*(pool[1:] for pool in pools), strict=True))
        return _Pool(concat(rows), groups, new)


class RankedRows:
    """Rows in groups of equal ``keys``, ranked by ``order``. ``table_keys``: the columns that identify a row within its
    group; ``order`` must be total within a group. ``columns``: further columns to store. ``table``: their name in the
    operator's state."""

    def __init__(
        self,
        keys: Sequence[str],
        table_keys: Sequence[str],
        n: int,
        order: Sequence[SortKey],
        columns: Sequence[str],
        table: str = ROWS_TABLE,
    ) -> None:
        self._keys = tuple(keys)
        self.identity = tuple(dict.fromkeys([*keys, *table_keys]))
        """The columns that identify a row among all rows."""
        self._n = n
        self._head_rows = n + _HEAD_ROWS
        self.ranking = Ranking(keys, order)
        self.columns = list(dict.fromkeys([*self.identity, *self.ranking.columns, *columns]))
        """The columns that are stored."""
        self.rows = KeyedRows(self.identity, table, keys)
        self._heads = self._no_heads()

    def put(
        self, groups: pa.RecordBatch, rows: pa.RecordBatch, group_of: Ints, present: Bools
    ) -> tuple[FirstOfGroups, FirstOfGroups]:
        """Applies changes. ``rows`` are distinct in ``identity``; ``group_of`` is the index of each row's group in
        ``groups``, which are distinct. A row with ``present`` is added or replaces the stored row of the same
        ``identity``; one without removes it. Returns the first rows of these groups before and after."""
        pool, headed, heads, others = self._pool(groups)
        before = self._first(pool, self._ranks(pool))
        _, from_rows = self.rows.find(rows)
        _, from_heads = self._heads.find(rows)
        self.rows.remove(from_rows)
        self._heads.remove(from_heads)
        stays = np.concatenate([self._heads.are_live(heads), self.rows.are_live(others)])
        added = _Pool(rows, group_of, np.ones(rows.num_rows, bool)).some(present)
        if len(added.groups) and added.rows is not None:
            self.rows.append(added.rows)
        pool = self._refilled(self._joined(pool.some(stays), added, headed), groups, headed)
        ranks = self._ranks(pool)
        self._update_heads(pool, ranks, groups, headed)
        self.rows.compact()
        self._heads.compact()
        return before, self._first(pool, ranks)

    def snapshot(self) -> OperatorState:
        return self.rows.snapshot({})

    def restore(self, parts: Sequence[OperatorState], groups: range) -> None:
        self.rows.restore(parts, groups)
        self._heads = self._no_heads()

    def _no_heads(self) -> KeyedRows:
        return KeyedRows(self.identity, "heads", also_by=self._keys)

    def _pool(self, groups: pa.RecordBatch) -> tuple[_Pool, Bools, Ints, Ints]:
        """The heads of groups that have one, together with all rows of the other groups. Also returns which groups have
        a head, the row numbers in the heads, and the row numbers in all rows."""
        heads, numbers = self._heads.find(groups, self._keys)
        headed = np.zeros(groups.num_rows, bool)
        headed[heads] = True
        pool = _Pool(None, heads, np.zeros(len(heads), bool))
        if len(heads):
            pool = pool._replace(rows=self._heads.take(numbers))
        others, further = self._all_of(groups, ~headed)
        return pool.united(others), headed, numbers, further

    def _all_of(self, groups: pa.RecordBatch, chosen: Bools) -> tuple[_Pool, Ints]:
        """All rows of the chosen groups, and their row numbers."""
        which = np.flatnonzero(chosen)
        positions, numbers = self.rows.find(groups.take(which), self._keys)
        rows = self.rows.take(numbers) if len(numbers) else None
        return _Pool(rows, which[positions], np.zeros(len(numbers), bool)), numbers

    def _joined(self, pool: _Pool, added: _Pool, headed: Bools) -> _Pool:
        """Both pools together. Of a group with a head, only rows that rank no later than the last remaining row of the
        head."""
        whole = pool.united(added)
        if not headed.any():
            return whole
        ranks, old = self._ranks(whole), ~whole.new
        last = np.full(len(headed), -1)
        np.maximum.at(last, whole.groups[old], ranks[old])
        return whole.some(~headed[whole.groups] | (ranks <= last[whole.groups]))

    def _refilled(self, pool: _Pool, groups: pa.RecordBatch, headed: Bools) -> _Pool:
        """Replaces heads that have become too short by all rows of their groups, and clears ``headed`` for these."""
        short = headed & (np.bincount(pool.groups, minlength=len(headed)) < self._n)
        if not short.any():
            return pool
        self._remove_heads(groups, short)
        headed[short] = False
        return pool.some(~short[pool.groups]).united(self._all_of(groups, short)[0])

    def _update_heads(self, pool: _Pool, ranks: Ints, groups: pa.RecordBatch, headed: Bools) -> None:
        """Adds new rows to heads, and cuts a new head for groups whose rows in the pool have become too many."""
        large = np.bincount(pool.groups, minlength=len(headed)) > 2 * self._head_rows
        self._remove_heads(groups, large & headed)
        added = np.where(large[pool.groups], ranks < self._head_rows, headed[pool.groups] & pool.new)
        if pool.rows is not None and added.any():
            self._heads.append(pool.rows.take(np.flatnonzero(added)))

    def _remove_heads(self, groups: pa.RecordBatch, chosen: Bools) -> None:
        if chosen.any():
            self._heads.remove(self._heads.find(groups.take(np.flatnonzero(chosen)), self._keys)[1])

    def _ranks(self, pool: _Pool) -> Ints:
        """The rank of each row of a pool within its group."""
        ranks = np.empty(len(pool.groups), np.int64)
        if pool.rows is not None:
            ranked = self.ranking.within(pool.groups, pool.rows)
            ranks[ranked.order] = ranked.ranks
        return ranks

    def _first(self, pool: _Pool, ranks: Ints) -> FirstOfGroups:
        first = np.flatnonzero(ranks < self._n)
        first = first[np.lexsort((ranks[first], pool.groups[first]))]
        rows = None if pool.rows is None else pool.rows.take(first)
        return FirstOfGroups(rows, pool.groups[first], ranks[first])
