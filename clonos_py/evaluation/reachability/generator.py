"""The commands of the reachability query, which add and delete links between nodes and source nodes (CheckMate, VI).

Of every 20 commands 12 add a link, 3 add a source, 4 delete a link, 1 deletes a source: 60, 15, 20 and 5%, as in the
paper. A deletion deletes what was added a hundred rounds of 20 earlier, and each addition is deleted at most once. In
the first hundred rounds links are added instead. Command n is a function of the seed and n. Then commands change places
with others up to ``disorder`` away, so that they are out of order, and some deletions come before their additions.
Places change within blocks only, and the requested rows contain everything that they delete.

The number of links decides whether the query can be computed. The paper states only that they are between 1,000,000
nodes. With d links per node, drawn at random, a source has d / (1 - d) paths on average while d is below 1; above that
their number explodes. So d may be 0.75 at most; 1,000,000 commands on 1,000,000 nodes end with d = 0.4.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

from clonos_py.columns.views import concat
from clonos_py.evaluation.nexmark.words import Int64s, Uint32s, below, splitmix64, words
from clonos_py.model.errors import SettingError
from clonos_py.model.record import Instant, Record

BASE_TIME_US = 1_700_000_000_000_000
BLOCK_ROWS = 50_000
LINKS_PER_NODE_MAX = 0.75

_ROUND, _LINKS, _SOURCES, _LINKS_GONE = 20, 12, 3, 4
_LAG_ROUNDS = 100
_LINKS_PER_GONE = _LINKS // _LINKS_GONE


class Command(Record):
    """Adds or deletes a link from ``node`` to ``target``, or, if ``target`` is null, the source ``node``."""

    node: int
    target: int | None
    added: bool
    date_time: Instant


@dataclass(frozen=True)
class Reachability:
    """``rows`` commands. ``event_rate``: rows that share a second of event time. ``disorder``: the largest distance
    over which commands change places. The default is twice the distance from a link to its deletion; with it, one in
    eight deletions comes before its link."""

    rows: int
    nodes: int = 1_000_000
    seed: int = 1
    event_rate: int = 500_000
    disorder: int = 4_000

    def __post_init__(self) -> None:
        for name in ("rows", "nodes", "event_rate"):
            if getattr(self, name) < 1:
                raise SettingError(f"{name} is {getattr(self, name)}: the reachability query needs at least 1")
        if self.nodes > 2**31 or not 0 <= self.disorder <= BLOCK_ROWS:
            raise SettingError(f"nodes is at most 2**31, disorder from 0 to {BLOCK_ROWS}")
        if self.links_per_node > LINKS_PER_NODE_MAX:
            raise SettingError(
                f"{self.rows} commands leave {self.links_per_node:.2f} links per node, and near 1 the number of paths "
                f"explodes: at most {LINKS_PER_NODE_MAX}; choose more nodes or fewer rows"
            )

    @property
    def links_per_node(self) -> float:
        """The number of links per node after all commands."""
        rounds = self.rows / _ROUND
        early = min(rounds, _LAG_ROUNDS)
        return (_LINKS * rounds + (_ROUND - _LINKS - _SOURCES) * early - _LINKS_GONE * (rounds - early)) / self.nodes

    def batch(self, start: int, stop: int) -> pa.RecordBatch:
        """Rows [start, stop)."""
        if not 0 <= start < stop <= self.rows:
            raise ValueError(f"rows [{start}, {stop}) of {self.rows}")
        blocks = range(start // BLOCK_ROWS, -(-stop // BLOCK_ROWS))
        batches = [_block(self, block) for block in blocks]
        return concat(batches).slice(start - blocks.start * BLOCK_ROWS, stop - start)


@lru_cache(maxsize=16)
def _block(made: Reachability, block: int) -> pa.RecordBatch:
    places = np.arange(block * BLOCK_ROWS, min((block + 1) * BLOCK_ROWS, made.rows), dtype=np.int64)
    moved = below(words(_key(made.seed, block, 20), len(places)), made.disorder + 1)
    numbers = places[np.argsort(places + moved, kind="stable")]
    times = BASE_TIME_US + places * 1_000_000 // made.event_rate
    arrays: list[pa.Array[Any]] = [pa.array(column) for column in (*commands(made.seed, made.nodes, numbers), times)]
    return pa.RecordBatch.from_arrays(arrays, schema=Command.schema())


def commands(seed: int, nodes: int, numbers: Int64s) -> tuple[Any, ...]:
    """The columns of the commands with these numbers, except the time, before commands change places. A command is
    drawn from the number of its addition; a deletion has the nodes of the addition that it deletes."""
    rounds, place = np.divmod(numbers, _ROUND)
    added = place < _LINKS + _SOURCES
    is_link = (place < _LINKS) | (~added & (place < _ROUND - 1))
    earlier = rounds - _LAG_ROUNDS
    gone_link = (place - _LINKS - _SOURCES) * _LINKS_PER_GONE + _chosen(seed, rounds, _LINKS_PER_GONE)
    gone_source = _LINKS + _chosen(seed, rounds, _SOURCES)
    adding = np.where(added, numbers, earlier * _ROUND + np.where(is_link, gone_link, gone_source))
    kept = added | (earlier >= 0)  # in the first rounds nothing can be deleted: links are added instead
    adding = np.where(kept, adding, numbers)
    link = is_link | ~kept
    node, target = (_drawn(adding, _key(seed, 0, field), nodes) for field in (10, 11))
    return node, pa.array(target, mask=~link), pa.array(added | ~kept)


def _chosen(seed: int, rounds: Int64s, of: int) -> Int64s:
    return _drawn(rounds, _key(seed, 0, 9), of)


def _drawn(numbers: Int64s, key: int, bound: int) -> Int64s:
    return below(_scattered(numbers, key), bound)


def _key(seed: int, block: int, field: int) -> int:
    return splitmix64(splitmix64(splitmix64(seed) + block) + field)


def _scattered(numbers: Int64s, key: int) -> Uint32s:
    """A random word for each number, which does not depend on the numbers requested before."""
    mixed = numbers.astype(np.uint64) + np.uint64(key)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    scattered: Uint32s = (mixed >> np.uint64(32)).astype(np.uint32)
    return scattered
