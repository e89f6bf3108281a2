"""Places in the stream of changes, and the positions of a source that stand for them.

Transactions come in the order of their commits, each as a whole. So a place is the end of a transaction in the server's
log, and the number of pieces of the next one that were read: a large transaction is read in pieces. A position has the
end of the transaction, which is a multiple of 8, in its upper bits: it grows with the log up to 1 PiB.
"""

from __future__ import annotations

from typing import NamedTuple

from clonos_py.model.errors import SourceError

_ALIGNED_BITS = 3
_PIECE_BITS = 16
PIECE_ROWS = 4_096
"""The changes of a piece. A transaction has at most 268 million."""


class LogPlace(NamedTuple):
    lsn: int
    pieces: int = 0

    @classmethod
    def of(cls, position: int) -> LogPlace:
        return cls(position >> _PIECE_BITS << _ALIGNED_BITS, position & (1 << _PIECE_BITS) - 1)

    @property
    def position(self) -> int:
        return self.lsn >> _ALIGNED_BITS << _PIECE_BITS | self.pieces

    def after(self, end: int) -> LogPlace:
        """The place behind the next piece. ``end``: the end of its transaction; 0 if further pieces follow. Raises
        SourceError for a transaction that has too many."""
        if end:
            return LogPlace(end)
        if self.pieces + 1 >> _PIECE_BITS:
            raise SourceError(
                f"a transaction has changed more than {PIECE_ROWS << _PIECE_BITS:,} rows of the table: start over with "
                "another slot"
            )
        return LogPlace(self.lsn, self.pieces + 1)
