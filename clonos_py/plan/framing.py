"""The size of frames and reads: few rows if Python functions process them row by row (D2).

A task processes a frame as a whole: no barrier, timer or other frame is processed meanwhile. So a task whose operators
call Python for each row gets small frames, and one that may wait for a server for each row gets smaller ones. Within
these limits, frames are sized at run time by how long rows take. Windows emit their results in frames of their own, so
functions behind windows do not count.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from clonos_py.plan.chaining import SOURCE, DraftVertex, Link
from clonos_py.plan.logical import (
    AGGREGATING,
    GROUPING,
    CallPerBatch,
    CallPerRow,
    Node,
    RunProcess,
)

ROW_FUNCTION_ROWS = 1_024
WAITING_FUNCTION_ROWS = 64
MERGED_ROWS = 16_384
"""With this many rows, the cost per call of a vectorised operator does not matter any more."""
MERGED_READ_ROWS = 4_096
"""The same for rows that are in larger batches already, and would have to be copied."""


def rows_into(chain: DraftVertex, consumer: int) -> int | None:
    """The most rows that operator ``consumer`` should get at once; None if it does not matter."""
    origin = chain.origins[consumer]
    limits = [_own_limit(origin)] if origin is not None else []
    if origin is None or not isinstance(origin.work, GROUPING):
        limits += [rows_into(chain, wire.consumer) for wire in chain.wires if wire.producer == consumer]
    return min((limit for limit in limits if limit is not None), default=None)


def rows_per_frame(chain: DraftVertex, consumer: int, most: int) -> tuple[int, int]:
    """For an edge to ``consumer``: the most rows in a frame (``most`` if it does not matter), and the most rows in
    frames that are taken together, 0 if they are not."""
    limit = rows_into(chain, consumer)
    return (most, min(most, MERGED_ROWS)) if limit is None else (min(most, limit), 0)


def rows_per_read(chain: DraftVertex) -> tuple[int | None, int]:
    """The most rows of one read of the chain's source, None if it does not matter, and the most rows of reads that are
    taken together, 0 if they are not."""
    limits = [rows_into(chain, wire.consumer) for wire in chain.wires if wire.producer == SOURCE]
    limit = min((limit for limit in limits if limit is not None), default=None)
    return limit, MERGED_READ_ROWS if limit is None else 0


_Reader = tuple[DraftVertex, int]
"""An operator of a vertex, by its number there."""


class Adaptive:
    """Decides where frames and reads are sized by how long rows take. That is where rows reach a Python function, in
    this vertex or a later one, before windows or tables gather them."""

    def __init__(self, links: Sequence[Link]) -> None:
        self._links = links
        self._known: dict[tuple[int, int], bool] = {}

    def into(self, chain: DraftVertex, consumer: int) -> bool:
        """Whether rows that operator ``consumer`` gets are sized so."""
        key = (chain.number, consumer)
        if key not in self._known:
            self._known[key] = self._reaches_function([(chain, consumer)])
        return self._known[key]

    def out_of(self, chain: DraftVertex, producer: int) -> bool:
        """Whether rows that an operator, or the source, emits are sized so."""
        return self._reaches_function(self._readers(chain, producer))

    def _reaches_function(self, given: Iterable[_Reader]) -> bool:
        """Whether one of these operators calls a function, or any operator that its rows reach, also through a loop."""
        waiting, seen = list(given), set[tuple[int, int]]()
        while waiting:
            chain, consumer = waiting.pop()
            if (chain.number, consumer) in seen:
                continue
            seen.add((chain.number, consumer))
            origin = chain.origins[consumer]
            if origin is not None and self._calls(origin):
                return True
            if origin is None or not isinstance(origin.work, GROUPING):
                waiting += self._readers(chain, consumer)
        return False

    def _readers(self, chain: DraftVertex, producer: int) -> Iterator[_Reader]:
        yield from ((chain, wire.consumer) for wire in chain.wires if wire.producer == producer)
        yield from (
            (link.target, link.consumer) for link in self._links if link.source is chain and link.producer == producer
        )

    def _calls(self, origin: Node) -> bool:
        return isinstance(origin.work, CallPerBatch) or _own_limit(origin) is not None


def _own_limit(node: Node) -> int | None:
    match node.work:
        case CallPerRow(waits=waits):
            return WAITING_FUNCTION_ROWS if waits else ROW_FUNCTION_ROWS
        case RunProcess():
            return ROW_FUNCTION_ROWS
        case work if isinstance(work, AGGREGATING) and any(a.user is not None for a in work.aggregates):
            return ROW_FUNCTION_ROWS
        case _:
            return None
