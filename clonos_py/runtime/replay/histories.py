"""What the operators of a task took and emitted in a replay, and from which of their rows each result came."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from clonos_py.columns.views import Ints

Positions = Mapping[int, Ints]
"""By number of a batch: rows in it."""

UNKNOWN = (-1, -1)
"""In place of (number of a batch, row in it)."""


class FromFrames(NamedTuple):
    """Rows of frames of an input channel of the task, ``first`` and those behind it."""

    channel: int
    first: int


class FromOperator(NamedTuple):
    """Result ``number`` of an operator of the same task."""

    producer: int
    number: int


class FromSource(NamedTuple):
    """A read of the task's source, which was its ``event``-th event that takes no frames."""

    event: int


class TakenBatch(NamedTuple):
    """A batch that an operator took."""

    rows: pa.RecordBatch
    side: int
    origin: FromFrames | FromOperator | FromSource


class Emitted(NamedTuple):
    """A batch that an operator emitted. ``taken``: how many batches it had taken then. ``at_once``: whether it was
    emitted while the last of them was processed. ``origins``: by row, the input row for which the user's function gave
    it (number of the batch, row in it); None if there is no such function. ``keys``: by row, the key of a process."""

    rows: pa.RecordBatch
    port: int
    taken: int
    at_once: bool
    origins: Sequence[tuple[int, int]] | None
    keys: Sequence[Mapping[str, Any]] | None


@dataclass
class OperatorHistory:
    """One operator of one task."""

    taken: list[TakenBatch] = field(default_factory=list)
    emitted: list[Emitted] = field(default_factory=list)


@dataclass
class TaskHistory:
    """``under_way``: by identity of a batch that is being emitted, what emitted it."""

    operators: dict[int, OperatorHistory] = field(default_factory=dict)
    under_way: dict[int, FromOperator] = field(default_factory=dict)

    def operator(self, number: int) -> OperatorHistory:
        return self.operators.setdefault(number, OperatorHistory())


def joined(parts: Sequence[Positions]) -> dict[int, Ints]:
    """All of these rows, each once, in order."""
    found: dict[int, list[Ints]] = {}
    for part in parts:
        for number, rows in part.items():
            found.setdefault(number, []).append(rows)
    return {number: np.unique(np.concatenate(found[number])) for number in sorted(found)}


def positions_of(pairs: Sequence[tuple[int, int]]) -> dict[int, Ints]:
    """Rows, given as (number of the batch, row in it); those that are UNKNOWN are left out."""
    found: dict[int, list[int]] = {}
    for number, row in pairs:
        if number >= 0:
            found.setdefault(number, []).append(row)
    return {number: np.unique(np.array(found[number], np.int64)) for number in sorted(found)}
