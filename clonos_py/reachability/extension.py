"""The loop of the reachability query: paths meet links, and longer paths come out, which come in again.

An incremental join of deltas. Links come in on input 0, paths on input 1: sources as paths of one node, and what the
operator has emitted, fed back. A path that ends where a link begins gives a path with the link's end behind it, unless
that is on the path already: then it is dropped, so that every path ends. The weight of a longer path is the product of
both weights. Since sums and products of weights do not depend on the order in which deltas come, neither do the paths
that are there when all have come, whatever was deleted before it was added, and a deletion takes back every path that
was derived from what it deletes. Until then there may be paths that go again.

State are the links and the paths that are there, or owed, by the node at which they meet; weight 0 is forgotten.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from clonos_py.columns.grouping import group
from clonos_py.columns.views import Ints, fixed
from clonos_py.model.operators import Operator
from clonos_py.model.state import OperatorState
from clonos_py.operators.keyed_chunks import with_groups
from clonos_py.operators.keyed_rows import KeyedRows
from clonos_py.reachability.rows import nodes_of, paths_batch

LINKS_SIDE, PATHS_SIDE = 0, 1
_KEYS = (("node", "target"), ("path",))
_MEETING = ("node",)
_PAIRS = 65_536


class ExtendPaths(Operator):
    """Rows of both sides are brought together by ``node``. Emits ``PathChange``."""

    def __init__(self) -> None:
        self._sides = (KeyedRows(_KEYS[0], "links", _MEETING), KeyedRows(_KEYS[1], "paths", _MEETING))

    def on_rows(self, rows: pa.RecordBatch, side: int) -> None:
        rows = _summed(rows, _KEYS[side])
        if not rows.num_rows:
            return
        others = self._sides[1 - side]
        positions, numbers = others.find(rows, by=_MEETING)
        for start in range(0, len(numbers), _PAIRS):
            part = slice(start, start + _PAIRS)
            pair = rows.take(positions[part]), others.take(numbers[part])
            self._emit(*pair[:: 1 if side == LINKS_SIDE else -1])
        self._add(rows, side)

    def snapshot(self) -> OperatorState:
        states = [rows.snapshot({}) for rows in self._sides]
        return OperatorState(
            {name: chunks for state in states for name, chunks in state.tables.items()},
            {name: value for state in states for name, value in state.values.items()},
        )

    def restore(self, parts: Sequence[OperatorState]) -> None:
        for rows in self._sides:
            rows.restore(parts, self.ctx.groups)

    def _emit(self, links: pa.RecordBatch, paths: pa.RecordBatch) -> None:
        """Row i of both make a pair."""
        starts, nodes = nodes_of(paths.column("path"))
        targets = fixed(links.column("target"))
        owners = np.repeat(np.arange(len(targets)), np.diff(starts))
        on_path = np.bincount(owners[nodes == targets[owners]], minlength=len(targets)) > 0
        if on_path.all():
            return
        kept = ~on_path
        lengths, nodes, targets = np.diff(starts)[kept], nodes[kept[owners]], targets[kept]
        weights = (fixed(links.column("weight")) * fixed(paths.column("weight")))[kept]
        self.out.emit(_longer(lengths, nodes, targets, weights))

    def _add(self, rows: pa.RecordBatch, side: int) -> None:
        own = self._sides[side]
        positions, numbers = own.find(rows)
        weights = fixed(rows.column("weight")).copy()
        if len(numbers):
            weights[positions] += fixed(own.take(numbers, ["weight"]).column("weight"))
            own.remove(numbers)
        there = np.flatnonzero(weights)
        if len(there):
            own.append(with_groups(_weighted(rows.take(there), weights[there]), _MEETING, self.ctx.key_groups))
        own.compact()


def _longer(lengths: Ints, nodes: Ints, targets: Ints, weights: Ints) -> pa.RecordBatch:
    """Paths of these lengths, whose nodes are one behind the other, each with its target behind it."""
    starts = np.concatenate([[0], np.cumsum(lengths + 1)])
    longer = np.empty(starts[-1], np.int64)
    ends = starts[1:] - 1
    before = np.ones(len(longer), bool)
    before[ends] = False
    longer[before], longer[ends] = nodes, targets
    return paths_batch(starts, longer, weights)


def _summed(rows: pa.RecordBatch, keys: Sequence[str]) -> pa.RecordBatch:
    """Each row once, with the sum of its weights; those that add up to nothing are left out."""
    groups = group([rows.column(key) for key in keys], rows.num_rows)
    weights = np.zeros(groups.size, np.int64)
    np.add.at(weights, groups.ids, fixed(rows.column("weight")))
    there = np.flatnonzero(weights)
    return _weighted(rows.take(groups.first[there]), weights[there])


def _weighted(rows: pa.RecordBatch, weights: Ints) -> pa.RecordBatch:
    columns: list[Any] = [*rows.columns[:-1], pa.array(weights, pa.int64())]
    return pa.RecordBatch.from_arrays(columns, schema=rows.schema)
