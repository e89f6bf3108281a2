"""An append-only index of row hashes: it finds the earlier rows that may equal given rows.

The index is a log-structured merge of sorted runs. An entry packs the upper half of the hash and the row number into
one 64-bit word. So a run is one sorted array, rows with equal hashes follow each other in order, and nothing depends on
how a sort breaks ties. Runs of similar length are merged, so each row is sorted a logarithmic number of times. A merge
drops deleted rows, so that a key does not get slower after a thousand changes.

A pair that a probe returns is a candidate: only half the hash is equal. The caller compares the values
(``matching.equal_rows``). The index can always be rebuilt from the rows, so it is never part of a snapshot.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from clonos_py.columns.kernels.library import check_rows
from clonos_py.columns.views import Bools, Ints, Words

_HALF = np.uint64(32)
_NEAR = np.uint64(48)
_LOW = np.uint64(0xFFFFFFFF)
_NO_HALF = np.uint64(2**32)
_FAN_OUT = 8
"""A run at least this many times as long as all runs after it together is not merged with them."""
_SMALL = 4_096
"""Shorter runs are always merged: sorting them again costs less than searching them separately."""
_CACHED = 262_144
"""Runs up to this many entries fit into the processor's cache and are searched without a directory."""
_FEW = 256
"""Up to this many keys, looking up each one is faster than a vectorised search."""
_BUCKET = 4


class _Run:
    """A sorted array of entries, for the rows from ``start`` up to ``stop``."""

    def __init__(self, start: int, stop: int, entries: Words) -> None:
        self.start = start
        self.stop = stop
        self.entries = entries

    def __len__(self) -> int:
        return len(self.entries)

    def probe(self, keys: Words) -> tuple[Ints, Ints]:
        """Pairs (position in ``keys``, row). Keys have row number 0; sorted keys make better use of the cache."""
        large = len(self) > _CACHED and len(keys) > _FEW
        starts = self._lower_bounds(keys) if large else self.entries.searchsorted(keys)
        halves = keys >> _HALF
        hits = (self._halves(starts) == halves).nonzero()[0]
        starts, halves = starts[hits], halves[hits]
        several = (self._halves(starts + 1) == halves).nonzero()[0]
        if not len(several):
            return hits, _rows_of(self.entries[starts])
        counts = np.ones(len(hits), np.int64)
        counts[several] = self.entries.searchsorted(keys[hits[several]] | _LOW, side="right") - starts[several]
        positions, places = expand(starts, counts)
        return hits[positions], _rows_of(self.entries[places])

    def _halves(self, places: Ints) -> Words:
        """The hash halves of entries; past the last entry a value that no hash has."""
        found: Words = self.entries.take(places, mode="clip") >> _HALF
        found[places >= len(self)] = _NO_HALF
        return found

    @cached_property
    def _directory(self) -> Ints:
        """The start of each bucket, and at the end the number of entries. Buckets are equal ranges between the first
        and the last entry, as the rows of one task have similar hashes."""
        return np.concatenate([[0], np.cumsum(np.bincount(self._buckets(self.entries)))])

    @cached_property
    def _shift(self) -> np.uint64:
        """Entries whose distance to the first entry differs only in so many lower bits share a bucket. If entries are
        spread evenly, a bucket has about ``_BUCKET`` of them."""
        buckets = len(self) // _BUCKET
        return np.uint64(max(0, int(self.entries[-1] - self.entries[0]).bit_length() - buckets.bit_length()))

    def _buckets(self, entries: Words) -> Ints:
        first = self.entries[0]
        buckets: Words = (np.maximum(entries, first) - first) >> self._shift
        return buckets.view(np.int64)

    def _lower_bounds(self, keys: Words) -> Ints:
        """The result of ``searchsorted``, without a binary search through the whole run; that would miss the cache."""
        buckets = np.minimum(self._buckets(keys), len(self._directory) - 2)
        low, high = self._directory[buckets], self._directory[buckets + 1]
        for _ in range(int((high - low).max(initial=0)).bit_length()):
            middle = (low + high) >> 1
            less = (self.entries[np.minimum(middle, len(self) - 1)] < keys) & (low < high)
            low, high = np.where(less, middle + 1, low), np.where(less, high, middle)
        return low


class SortedIndex:
    """An index of hashes. Rows are numbered from 0 in the order in which they were appended."""

    def __init__(self) -> None:
        self._runs: list[_Run] = []
        self.rows = 0

    def append(self, hashes: Words, kept: Bools | None = None) -> None:
        """Adds rows with these hashes. Rows for which ``kept`` (one value per row, including the new ones) is false may
        be dropped when runs are merged; the others keep their numbers. Raises OverflowError for too many rows."""
        if len(hashes) == 0:
            return
        check_rows(self.rows + len(hashes))
        numbers = np.arange(self.rows, self.rows + len(hashes), dtype=np.uint64)
        stop = self.rows + len(hashes)
        self._runs.append(_Run(self.rows, stop, np.sort((hashes & ~_LOW) | numbers)))
        self.rows = stop
        self._merge_runs(kept)

    def probe(self, hashes: Words, kept: Bools | None = None) -> tuple[Ints, Ints]:
        """Pairs (position in ``hashes``, row), in the order of positions, then of rows; of rows for which ``kept`` (one
        value per row) is true, unless it is None."""
        order = None
        if len(hashes) > _FEW:  # sorted for better use of the cache only
            order = np.argsort((hashes >> _NEAR).astype(np.uint16), kind="stable")
            hashes = hashes[order]
        keys = hashes & ~_LOW
        found = [run.probe(keys) for run in self._runs]
        if not any(len(rows) for _, rows in found):
            return np.empty(0, np.int64), np.empty(0, np.int64)
        positions = np.concatenate([positions for positions, _ in found])
        rows = np.concatenate([rows for _, rows in found])
        positions, rows = in_order(positions if order is None else order[positions], rows)
        if kept is None:
            return positions, rows
        live = kept[rows]
        return positions[live], rows[live]

    def compact(self, keep: Bools) -> None:
        """Drops the rows for which ``keep`` (one value per row) is false and renumbers the rest from 0 in order."""
        numbers = np.concatenate([[0], np.cumsum(keep, dtype=np.int64)])
        runs: list[_Run] = []
        for run in self._runs:
            entries = _kept_entries(run.entries, keep)
            renumbered = (entries & ~_LOW) | numbers[_rows_of(entries)].view(np.uint64)
            runs.append(_Run(int(numbers[run.start]), int(numbers[run.stop]), renumbered))
        self._runs = [run for run in runs if len(run)]
        self.rows = int(numbers[-1])
        self._merge_runs(None)

    def drop_first(self, rows: int) -> None:
        """Drops the first ``rows`` rows, and renumbers the others from 0."""
        runs: list[_Run] = []
        self._runs.reverse()
        while self._runs:
            run = self._runs.pop()
            if run.stop <= rows:
                continue
            entries = run.entries if run.start >= rows else run.entries[_rows_of(run.entries) >= rows]
            if len(entries):
                runs.append(_Run(max(run.start - rows, 0), run.stop - rows, entries - np.uint64(rows)))
        self._runs, self.rows = runs, self.rows - rows

    def truncate(self, rows: int) -> None:
        """Drops all rows but the first ``rows``. Runs are consecutive, so at most one of them has to be cut."""
        runs = [run for run in self._runs if run.start < rows]
        if runs and runs[-1].stop > rows:
            last = runs.pop()
            runs.append(_Run(last.start, rows, last.entries[_rows_of(last.entries) < rows]))
        self._runs, self.rows = [run for run in runs if len(run)], min(rows, self.rows)

    def _merge_runs(self, kept: Bools | None) -> None:
        first, rows = len(self._runs), 0
        while first and (not rows or len(self._runs[first - 1]) < max(_FAN_OUT * rows, _SMALL)):
            first -= 1
            rows += len(self._runs[first])
        if first < len(self._runs) - 1:
            merged = np.concatenate([_kept_entries(run.entries, kept) for run in self._runs[first:]])
            merged.sort(kind="stable")  # a stable sort merges sorted parts
            whole = _Run(self._runs[first].start, self._runs[-1].stop, merged)
            self._runs[first:] = [whole] if len(whole) else []


def in_order(left: Ints, right: Ints) -> tuple[Ints, Ints]:
    """Distinct pairs of row numbers sorted by left, then right."""
    if len(left) < 2:
        return left, right
    if int(left.max()) < 2**31 and int(right.max()) < 2**32:
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


def _kept_entries(entries: Words, kept: Bools | None) -> Words:
    return entries if kept is None else entries[kept[_rows_of(entries)]]


def _rows_of(entries: Words) -> Ints:
    return (entries & _LOW).view(np.int64)
