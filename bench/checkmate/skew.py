"""The load of tasks under skew, if rows are partitioned by the engine's hash, or by key modulo parallelism.

With a skew of p, an auction is by the hot seller with probability p, and a bid by the hot bidder; otherwise by any of
the last people (``Model.skew``; CheckMate, VII). The hot person changes with every hundredth person: the first of the
last hundred, or the second as a bidder. CheckMate's implementation sends key k to task k mod n. At a parallelism that
divides 100, all hot sellers have the same task. With a hash, the hot key moves from task to task, and faster at higher
event rates. So figures under skew must state the partitioning and the rate.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from clonos_py.columns.keys import groups_of, hash_array, unmix
from clonos_py.columns.views import fixed
from clonos_py.evaluation.nexmark.generator import Generator
from clonos_py.evaluation.nexmark.model import Model
from clonos_py.evaluation.nexmark.words import Int64s

_KEYS = {"seller": 1, "bidder": 2}
"""By key column: the kind of event that is partitioned by it."""


class Busiest(NamedTuple):
    """The load of the busiest task as a multiple of the mean: over all rows, and the average over windows of rows."""

    overall: float
    in_a_window: float


def by_hash(keys: Int64s, parallelism: int, key_groups: int = 128) -> Int64s:
    """The task of each key in the engine: the hash gives a key group, and each task owns a range of key groups."""
    tasks: Int64s = groups_of(hash_array(pa.array(keys)), key_groups).astype(np.int64) * parallelism // key_groups
    return tasks


def by_remainder(keys: Int64s, parallelism: int) -> Int64s:
    """The task of each key in CheckMate's implementation."""
    return keys % parallelism


def sent_by_remainder(keys: Int64s, parallelism: int, key_groups: int = 128) -> Int64s:
    """Replaces keys by distinct ones that the engine's hash sends to the tasks of CheckMate's implementation."""
    tasks = by_remainder(keys, parallelism)
    groups = -(-tasks * key_groups // parallelism)  # the first group of each task
    upper = ((2 * groups + 1) << 31) // key_groups
    return unmix((upper.astype(np.uint64) << np.uint64(32)) | (keys // parallelism).astype(np.uint64)).view(np.int64)


def keys_of(column: str, skew: float, events: int, seed: int = 1) -> Int64s:
    """The keys (``seller`` of auctions or ``bidder`` of bids) in the first ``events`` events, in order."""
    generator, kind = Generator(seed, model=Model(skew=skew)), _KEYS[column]
    pieces = [fixed(piece[kind].column(column)) for piece in generator.events(0, events)]
    return np.concatenate(pieces)


def busiest(tasks: Int64s, parallelism: int, windows: int) -> Busiest:
    """The load of the busiest task. ``windows``: the number of windows, of equal size, that divide the rows."""
    counts = np.array([np.bincount(part, minlength=parallelism) for part in np.array_split(tasks, windows)])
    shares = counts.max(axis=1) * parallelism / counts.sum(axis=1)
    whole = counts.sum(axis=0)
    return Busiest(float(whole.max() * parallelism / whole.sum()), float(shares.mean()))


def zipf_busiest(exponent: float, keys: int, parallelism: int) -> float:
    """The load of the busiest task for Zipf-distributed keys, the k-th of which is k ** exponent times as rare as the
    first. Partitioned by hash, and computed from the probabilities."""
    chances = 1.0 / np.arange(1, keys + 1) ** exponent
    tasks = by_hash(np.arange(keys, dtype=np.int64), parallelism)
    shares = np.bincount(tasks, chances, parallelism)
    return float(shares.max() * parallelism / shares.sum())
