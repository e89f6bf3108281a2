"""The final result of the reachability query: as a job, and computed at once from all of its commands.

The computation does not use the operator: no deltas, no state, no feedback. First the remaining links and sources are
counted. Then the paths from all sources are extended by one link at a time until none can be extended, level by level,
each level a matrix.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa

from clonos_py import Job, col
from clonos_py.bench.reachability.query import found_paths
from clonos_py.bench.reachability.rows import paths_batch
from clonos_py.bench.reachability.source import CommandSource
from clonos_py.columns.index import expand
from clonos_py.columns.views import Ints, concat, fixed
from clonos_py.model.connectors import SinkDefinition
from clonos_py.model.errors import SettingError

PATHS_MAX = 20_000_000


def final_paths(source: CommandSource, sink: SinkDefinition, **settings: Any) -> Job:
    """A job that writes to the sink the paths that exist in the end, each once, with how often it exists."""
    job = Job("reachability", **settings)
    totals = found_paths(job, source).key_by("path").aggregate(weight=col("weight").sum()).at_end()
    totals.filter(col("weight") != 0).sink(sink)
    return job


def expected_paths(commands: Iterable[pa.RecordBatch], paths_max: int = PATHS_MAX) -> pa.RecordBatch:
    """The paths of at least one link on which no node appears twice, each once, in no particular order. ``weight``: how
    often a path exists, if a source or a link was added several times. Raises SettingError if there are too many
    paths."""
    links, sources = _left(commands)
    nodes, targets, link_weights = links.T
    paths, weights = sources[:, :1], sources[:, 2]
    found = [_batch(np.empty((0, 1), np.int64), np.empty(0, np.int64))]
    made = 0
    while len(paths):
        starts = nodes.searchsorted(paths[:, -1], side="left")
        counts = nodes.searchsorted(paths[:, -1], side="right") - starts
        made += int(counts.sum())
        if made > paths_max:
            raise SettingError(f"more than {paths_max} paths: choose more nodes or fewer commands")
        longer, taken = expand(starts, counts)
        on = ~(paths[longer] == targets[taken, None]).any(axis=1)
        longer, taken = longer[on], taken[on]
        paths = np.column_stack([paths[longer], targets[taken]])
        weights = weights[longer] * link_weights[taken]
        found.append(_batch(paths, weights))
    return concat(found)


def _left(commands: Iterable[pa.RecordBatch]) -> tuple[Ints, Ints]:
    """The links and the sources that remain after all commands: (node, target, count), sorted by node."""
    totals: list[Ints] = []
    kinds: list[Ints] = []
    for batch in commands:
        is_link = batch.column("target").is_valid().to_numpy(zero_copy_only=False)
        target = np.where(is_link, fixed(batch.column("target")), -1)
        weight = np.where(batch.column("added").to_numpy(zero_copy_only=False), 1, -1)
        totals.append(np.column_stack([fixed(batch.column("node")), target, weight]))
        kinds.append(is_link)
    every = np.concatenate(totals) if totals else np.empty((0, 3), np.int64)
    is_link = np.concatenate(kinds) if kinds else np.empty(0, bool)
    return _summed(every[is_link]), _summed(every[~is_link])


def _summed(rows: Ints) -> Ints:
    """One row for each pair with a positive count, sorted."""
    pairs, ids = np.unique(rows[:, :2], axis=0, return_inverse=True)
    counts = np.bincount(ids.reshape(-1), rows[:, 2], len(pairs)).astype(np.int64)
    return np.column_stack([pairs, counts])[counts > 0]


def _batch(paths: Ints, weights: Ints) -> pa.RecordBatch:
    rows, length = paths.shape
    return paths_batch(np.arange(rows + 1) * length, np.ascontiguousarray(paths).reshape(-1), weights)
