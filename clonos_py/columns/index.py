"""An index of row hashes that grows by batches: which rows so far may equal these rows?

A log-structured merge of sorted runs. An entry packs the upper half of the hash and the row's number into one 64-bit
word, so that a run is one sorted array, rows of equal hashes follow each other in their order, and nothing depends on
how a sort breaks ties. Runs of similar length are merged, so each row is sorted again a logarithmic number of times.

A pair that a probe gives is a candidate: half the hash is equal. Whoever asked compares the values
(``matching.equal_rows``). The index can always be rebuilt from the rows, so it is never part of a snapshot.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from clonos_py.columns.views import Bools, Ints, Words

_HALF = np.uint64(32)
_NEAR = np.uint64(48)
_LOW = np.uint64(0xFFFFFFFF)
_MAX_ROWS = 2**32


class _Run(NamedTuple):
    """Entries of the rows from ``start`` on, sorted."""

    start: int
    entries: Words


class SortedIndex:
    """Rows are numbered from 0 in the order in which they were appended."""

    def __init__(self) -> None:
        self._runs: list[_Run] = []
        self.rows = 0

    def append(self, hashes: Words) -> None:
        """Adds rows with these hashes. At most 2**32 rows."""
        if len(hashes) == 0:
            return
        assert self.rows + len(hashes) <= _MAX_ROWS, "an index holds at most 2**32 rows"
        numbers = np.arange(self.rows, self.rows + len(hashes), dtype=np.uint64)
        self._runs.append(_Run(self.rows, np.sort((hashes & ~_LOW) | numbers)))
        self.rows += len(hashes)
        self._merge_runs()

    def probe(self, hashes: Words) -> tuple[Ints, Ints]:
        """Pairs (position in ``hashes``, row), in the order of positions, then of rows."""
        order = np.argsort((hashes >> _NEAR).astype(np.uint16), kind="stable")  # for the cache's sake only
        keys = hashes[order] & ~_LOW
        found = [_probe_run(run.entries, keys) for run in self._runs]
        positions = np.concatenate([np.empty(0, np.int64), *(order[p] for p, _ in found)])
        rows = np.concatenate([np.empty(0, np.int64), *(r for _, r in found)])
        return in_order(positions, rows)

    def compact(self, keep: Bools) -> None:
        """Forgets the rows that ``keep`` (one per row) does not name and numbers the rest anew, from 0 in order."""
        numbers = np.cumsum(keep, dtype=np.int64) - 1
        kept = [run.entries[keep[_rows_of(run.entries)]] for run in self._runs]
        renumbered = [(run & ~_LOW) | numbers[_rows_of(run)].view(np.uint64) for run in kept]
        starts = np.cumsum([0, *map(len, renumbered)]).tolist()
        self._runs = [_Run(start, run) for start, run in zip(starts, renumbered, strict=False) if len(run)]
        self.rows = int(keep.sum())
        self._merge_runs()

    def truncate(self, rows: int) -> None:
        """Forgets all rows but the first ones, of which most runs know nothing else."""
        runs = [run for run in self._runs if run.start < rows]
        if runs and runs[-1].start + len(runs[-1].entries) > rows:
            start, entries = runs[-1]
            runs[-1] = _Run(start, entries[_rows_of(entries) < rows])
        self._runs, self.rows = runs, min(rows, self.rows)

    def _merge_runs(self) -> None:
        while len(self._runs) > 1 and len(self._runs[-2].entries) < 2 * len(self._runs[-1].entries):
            last = self._runs.pop()
            start, entries = self._runs[-1]
            self._runs[-1] = _Run(start, merge_sorted(entries, last.entries))


def merge_sorted(left: Words, right: Words) -> Words:
    """Two sorted arrays as one; the places of the shorter are looked up in the longer."""
    if len(left) < len(right):
        left, right = right, left
    merged = np.empty(len(left) + len(right), np.uint64)
    places = np.searchsorted(left, right) + np.arange(len(right))
    rest = np.ones(len(merged), bool)
    rest[places] = False
    merged[places] = right
    merged[rest] = left
    return merged


def in_order(left: Ints, right: Ints) -> tuple[Ints, Ints]:
    """Distinct pairs of row numbers sorted by left, then right."""
    if len(left) < 2:
        return left, right
    if int(left.max()) < _MAX_ROWS // 2 and int(right.max()) < _MAX_ROWS:
        packed = np.sort((left << 32) | right)
        return packed >> 32, packed & 0xFFFFFFFF
    order = np.lexsort((right, left))
    return left[order], right[order]


def expand(starts: Ints, counts: Ints) -> tuple[Ints, Ints]:
    """Unrolls ranges: for range i the position i ``counts[i]`` times, beside ``starts[i]``, ``starts[i]`` + 1, ..."""
    positions = np.repeat(np.arange(len(counts)), counts)
    ends = np.cumsum(counts)
    within = np.arange(len(positions)) - np.repeat(ends - counts, counts)
    return positions, starts[positions] + within


def _rows_of(entries: Words) -> Ints:
    return (entries & _LOW).view(np.int64)


def _probe_run(run: Words, keys: Words) -> tuple[Ints, Ints]:
    """Pairs (position in ``keys``, row) of one run."""
    starts = np.searchsorted(run, keys)
    starts_in = np.minimum(starts, len(run) - 1)
    hits = np.flatnonzero((run[starts_in] >> _HALF) == (keys >> _HALF))
    ends = np.searchsorted(run, keys[hits] | _LOW, side="right")
    positions, places = expand(starts[hits], ends - starts[hits])
    return hits[positions], (run[places] & _LOW).view(np.int64)
