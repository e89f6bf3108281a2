"""Rows of one batch that wait for answers to questions, and rows that wait for those before them.

Several rows may wait for one question. An answer settles all of them with a few operations on columns.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from clonos_py.columns.views import Ints, concat
from clonos_py.operators.pairs import NO_ROW

DUE = -1
"""In the place of a question: the row is settled, and may leave."""
_GONE = -2


class WaitingRows:
    """Rows in order. ``places``: for each, the place of its answer in ``answers``, or ``NO_ROW`` if it has none.
    ``questions``: the number of the question that it waits for, or ``DUE``. Both arrays are changed."""

    def __init__(self, rows: pa.RecordBatch, answers: pa.RecordBatch | None, places: Ints, questions: Ints) -> None:
        self.rows, self._places, self._questions = rows, places, questions
        self._known = answers
        self._known_count = 0 if answers is None else answers.num_rows
        self._later: list[pa.RecordBatch] = []
        """Answers of one row each, in the places after those that are known."""
        self.first = 0
        """The first row that has not left; the number of rows if all have."""

    @property
    def count(self) -> int:
        """How many rows there are from the first one that has not left."""
        return self.rows.num_rows - self.first

    def settle(self, question: int, answer: pa.RecordBatch | None) -> None:
        """The question is answered: with a batch of one row, or that there is none."""
        rows = self._waiting_for(question)
        self._questions[rows] = DUE
        if answer is not None:
            self._places[rows] = self._known_count + len(self._later)
            self._later.append(answer)

    def drop(self, question: int) -> Ints:
        """The question has failed: returns its rows, which are gone."""
        rows = self._waiting_for(question)
        self._leave(rows)
        return rows

    def take_due(self, ordered: bool) -> Ints:
        """The rows that leave now. ``ordered``: only those before which none waits."""
        rows = self.due(ordered)
        self._leave(rows)
        return rows

    def due(self, ordered: bool) -> Ints:
        """The rows that may leave."""
        questions = self._questions[self.first :]
        waits = questions >= 0
        if ordered and waits.any():
            questions = questions[: int(waits.argmax())]
        rows: Ints = self.first + np.flatnonzero(questions == DUE)
        return rows

    def left(self) -> tuple[Ints, Ints]:
        """The rows that have not left, and their questions."""
        rows = self.first + np.flatnonzero(self._questions[self.first :] != _GONE)
        return rows, self._questions[rows]

    def answers(self, rows: Ints) -> tuple[pa.RecordBatch | None, Ints]:
        """The answers of these rows, and for each row the place of its answer there."""
        places = self._places[rows]
        distinct, own = np.unique(places[places != NO_ROW], return_inverse=True)
        places[places != NO_ROW] = own
        known = distinct.searchsorted(self._known_count)
        parts = [] if self._known is None else [self._known.take(distinct[:known])]
        parts += [self._later[place - self._known_count] for place in distinct[known:].tolist()]
        return concat(parts) if parts else None, places

    def _waiting_for(self, question: int) -> Ints:
        rows: Ints = self.first + np.flatnonzero(self._questions[self.first :] == question)
        return rows

    def _leave(self, rows: Ints) -> None:
        self._questions[rows] = _GONE
        left = self._questions[self.first :] != _GONE
        self.first += int(left.argmax()) if left.any() else len(left)
