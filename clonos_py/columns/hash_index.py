"""An index of row hashes: the native kernel where there is one, else ``SortedIndex``.

Both have the same methods and the same results, but for rows that are no longer kept: when these are dropped is up to
the index. Both return candidates, of which only half the hash is equal; the caller compares the values.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from clonos_py.columns.index import SortedIndex
from clonos_py.columns.kernels.library import Library, check_rows, library, made, pointer
from clonos_py.columns.views import Bools, Ints, Words

_SPARE_PAIRS = 64


class Index(Protocol):
    """An append-only index of hashes. Rows are numbered from 0 in the order in which they were appended."""

    @property
    def rows(self) -> int: ...

    def append(self, hashes: Words, kept: Bools | None = None) -> None:
        """Adds rows with these hashes. Rows for which ``kept`` (one value per row, including the new ones) is false may
        be dropped; the others keep their numbers. Raises OverflowError if there would be too many rows."""

    def probe(self, hashes: Words, kept: Bools | None = None) -> tuple[Ints, Ints]:
        """Pairs (position in ``hashes``, row), in the order of positions, then of rows. With ``kept`` (one value per
        row) pairs of rows for which it is true, and the others may be dropped."""

    def compact(self, keep: Bools) -> None:
        """Drops the rows for which ``keep`` (one value per row) is false and renumbers the rest from 0 in order."""

    def drop_first(self, rows: int) -> None:
        """Drops the first ``rows`` rows, of those that there are, and renumbers the others from 0."""

    def truncate(self, rows: int) -> None:
        """Drops all rows but the first ``rows``."""


def new_index() -> Index:
    """An empty index."""
    native = library()
    return SortedIndex() if native is None else HashIndex(native)


class HashIndex:
    """A hash table in native memory (``kernels/index.c``)."""

    def __init__(self, native: Library) -> None:
        self._native = native
        self._free = native.long.clonos_index_free
        self._table: int | None = native.short.clonos_index_new()
        if self._table is None:
            raise MemoryError("an index of row hashes")
        self.rows = 0

    def __del__(self) -> None:
        self._free(self._table)

    def __reduce__(self) -> Any:
        raise TypeError("an index lies in native memory: make it again from the rows")

    @property
    def size_bytes(self) -> int:
        """The memory that it takes."""
        found: int = self._native.short.clonos_index_bytes(self._table)
        return found

    def append(self, hashes: Words, kept: Bools | None = None) -> None:
        rows = self.rows + len(hashes)
        check_rows(rows)
        if not len(hashes):
            return
        hashes = np.ascontiguousarray(hashes)
        pointers = pointer(hashes, np.uint64, 0), len(hashes), pointer(kept, bool, rows)
        made(self._native.of(len(hashes)).clonos_index_append(self._table, *pointers))
        self.rows = rows

    def probe(self, hashes: Words, kept: Bools | None = None) -> tuple[Ints, Ints]:
        hashes = np.ascontiguousarray(hashes)
        asked = pointer(hashes, np.uint64, 0), len(hashes), pointer(kept, bool, self.rows)
        found = len(hashes) + _SPARE_PAIRS
        while True:
            capacity = found
            pairs = np.empty(capacity, np.int64), np.empty(capacity, np.int64)
            written = [pointer(values, np.int64, capacity) for values in pairs]
            found = self._native.of(len(hashes)).clonos_index_probe(self._table, *asked, *written, capacity)
            if found <= capacity:
                return pairs[0][:found], pairs[1][:found]

    def compact(self, keep: Bools) -> None:
        made(self._native.of(self.rows).clonos_index_compact(self._table, pointer(keep, bool, self.rows)))
        self.rows = int(np.count_nonzero(keep[: self.rows]))

    def drop_first(self, rows: int) -> None:
        made(self._native.long.clonos_index_drop_first(self._table, rows))
        self.rows -= rows

    def truncate(self, rows: int) -> None:
        self.rows = min(rows, self.rows)
        made(self._native.long.clonos_index_truncate(self._table, self.rows))
