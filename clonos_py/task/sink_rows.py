"""The rows that a sink has been given since the last barrier, for the feed of standbys (E17).

What a sink does with rows between barriers is its own affair: it may write them to a file that dies with the process.
So the state of a sink at a feed point is its state at the last barrier and the rows since then. A process that starts
there gives the sink these rows again, as a replay from the checkpoint would.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from clonos_py.columns.views import concat
from clonos_py.model.hidden import hidden
from clonos_py.model.operators import CausalSink, Operator, Sink
from clonos_py.model.state import Chunk, OperatorState

_TABLE = hidden("given")


def keeps_rows(operator: Operator) -> bool:
    """Whether an operator is a sink that keeps rows until a checkpoint. What a causal sink is given is visible."""
    return isinstance(operator, Sink) and not isinstance(operator, CausalSink)


class SinkRows:
    """The state of one sink at the last barrier, and the rows that it was given since then."""

    def __init__(self) -> None:
        self._at_barrier = OperatorState()
        self._runs: list[tuple[int, list[Chunk]]] = []
        """(side, rows that it was given, with none of another side between them)"""
        self._new: dict[int, list[pa.RecordBatch]] = {}
        """By side: the rows since the last feed point."""

    def add(self, side: int, rows: pa.RecordBatch) -> None:
        if side not in self._new:
            self._seal()
        self._new.setdefault(side, []).append(rows)

    def barrier(self, state: OperatorState) -> None:
        """The sink has prepared what it was given so far; ``state`` is its snapshot."""
        self._at_barrier, self._runs, self._new = state, [], {}

    def _seal(self) -> None:
        """Makes the rows of the side that was given rows last a chunk: the order between sides is kept."""
        for side, batches in self._new.items():
            if not self._runs or self._runs[-1][0] != side:
                self._runs.append((side, []))
            self._runs[-1][1].append(Chunk(concat(batches)))
        self._new = {}

    @property
    def state(self) -> OperatorState:
        """Of a feed point."""
        self._seal()
        given = {f"{_TABLE}.{number}.{side}": list(chunks) for number, (side, chunks) in enumerate(self._runs)}
        return OperatorState({**self._at_barrier.tables, **given}, self._at_barrier.values)

    def restore(self, parts: Sequence[OperatorState]) -> list[OperatorState]:
        """Takes what ``state`` has returned, or a snapshot. Returns the state at the barrier. Before the first one
        there is none to restore."""
        found: list[OperatorState] = []
        self._runs, self._new = [], {}
        for part in parts:
            given = [name for name in part.tables if name.startswith(_TABLE)]
            self._runs += [(int(name.rpartition(".")[2]), list(part.tables[name])) for name in given]
            state = OperatorState({n: t for n, t in part.tables.items() if n not in given}, part.values)
            if state.tables or state.values:
                found.append(state)
        self._at_barrier = found[0] if len(found) == 1 else OperatorState()
        return found

    @property
    def rows(self) -> list[tuple[int, pa.RecordBatch]]:
        """(side, rows) in the order in which the sink was given them."""
        self._seal()
        return [(side, chunk.rows) for side, chunks in self._runs for chunk in chunks]
