"""How skew shares the rows of a shuffle among tasks: by the engine's hash, and by the remainder of the key.

With a skew of p an auction is with chance p by the hot seller, and a bid by the hot bidder, else by any of the last
people (``Model.skew``; CheckMate, VII). Who is hot changes with every hundredth person: the first, as a bidder the
second, of the last hundred. CheckMate's implementation sends key k to task k mod n. At a parallelism that divides 100
that is one task for all hot sellers; by a hash the hot ones move from task to task, the faster the more events a second
has. So figures under skew have to say which of both was used, and at what rate.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from clonos_py.columns.keys import groups_of, hash_array, unmix
from clonos_py.columns.views import fixed
from clonos_py.nexmark.generator import Generator
from clonos_py.nexmark.model import Model
from clonos_py.nexmark.words import Int64s

_KEYS = {"seller": 1, "bidder": 2}
"""By column: the kind of event that is brought together by it."""


class Busiest(NamedTuple):
    """The rows of the busiest task, as a multiple of what each would have if all had the same: over all rows, and
    over the rows of one window, on average."""

    overall: float
    in_a_window: float


def by_hash(keys: Int64s, parallelism: int, key_groups: int = 128) -> Int64s:
    """The task of each key, as the engine has it: the hash gives a key group, each task has a range of these."""
    tasks: Int64s = groups_of(hash_array(pa.array(keys)), key_groups).astype(np.int64) * parallelism // key_groups
    return tasks


def by_remainder(keys: Int64s, parallelism: int) -> Int64s:
    """The task of each key, as CheckMate's implementation has it."""
    return keys % parallelism


def sent_by_remainder(keys: Int64s, parallelism: int, key_groups: int = 128) -> Int64s:
    """Other keys, a key of its own for each, that the hash sends where CheckMate's implementation sends these."""
    tasks = by_remainder(keys, parallelism)
    groups = -(-tasks * key_groups // parallelism)  # the first one of each task
    upper = ((2 * groups + 1) << 31) // key_groups
    return unmix((upper.astype(np.uint64) << np.uint64(32)) | (keys // parallelism).astype(np.uint64)).view(np.int64)


def keys_of(column: str, skew: float, events: int, seed: int = 1) -> Int64s:
    """The keys by which rows are brought together (``seller`` of auctions, ``bidder`` of bids) among the first
    ``events`` events, in their order."""
    generator, kind = Generator(seed, model=Model(skew=skew)), _KEYS[column]
    pieces = [fixed(piece[kind].column(column)) for piece in generator.events(0, events)]
    return np.concatenate(pieces)


def busiest(tasks: Int64s, parallelism: int, windows: int) -> Busiest:
    """``windows``: in how many windows of as many rows each the rows are looked at."""
    counts = np.array([np.bincount(part, minlength=parallelism) for part in np.array_split(tasks, windows)])
    shares = counts.max(axis=1) * parallelism / counts.sum(axis=1)
    whole = counts.sum(axis=0)
    return Busiest(float(whole.max() * parallelism / whole.sum()), float(shares.mean()))


def zipf_busiest(exponent: float, keys: int, parallelism: int) -> float:
    """The same for keys that never change, of which the k-th is k ** exponent times as rare as the first: by hash, over
    any time, without drawing rows."""
    chances = 1.0 / np.arange(1, keys + 1) ** exponent
    tasks = by_hash(np.arange(keys, dtype=np.int64), parallelism)
    shares = np.bincount(tasks, chances, parallelism)
    return float(shares.max() * parallelism / shares.sum())
