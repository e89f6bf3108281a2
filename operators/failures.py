"""What becomes of a row or timer that a user's function fails on: the job stops with its name, or it goes to a dead
letter."""

from __future__ import annotations

from typing import Any

import msgspec
import pyarrow as pa

from clonos_py.model.errors import ClonosError, ServiceError, UserCodeError
from clonos_py.model.operators import OperatorContext
from clonos_py.model.record import DeadLetter
from clonos_py.model.record_codec import encode


class RowFailures:
    """The failures of one operator. With ``catch`` they are kept until ``take``, else the first one raises."""

    def __init__(self, ctx: OperatorContext, catch: bool) -> None:
        self._ctx = ctx
        self._catch = catch
        self._letters: list[DeadLetter] = []

    def add(self, rows: pa.RecordBatch, row: int, error: Exception, origin: tuple[int, int, int] | None = None) -> None:
        """Row ``row`` of the batch failed. Raises UserCodeError naming operator and record, if failures are not
        caught; raises ``error`` itself if it is not user code that failed but the engine. ``origin``: the channel,
        frame and row that it came as, where that is not the frame at work."""
        text = row_text(rows, row)
        channel, sequence, row = origin or (*self._ctx.frame, row)
        subject = f"record {text} (row {row} of frame {sequence} of input {channel})"
        self.add_subject(subject, text, row, error, (channel, sequence))

    def add_subject(
        self, subject: str, record: str, row: int, error: Exception, frame: tuple[int, int] | None = None
    ) -> None:
        """The same for what people call ``subject`` and a dead letter describes as ``record``; -1 for no row."""
        problem = problem_of(error)
        if not self._catch:
            message = f"operator {self._ctx.operator!r} failed on {subject}: {problem}; .catch() would skip it"
            raise UserCodeError(message) from error
        self._letters.append(DeadLetter(self._ctx.operator, problem, record, *(frame or self._ctx.frame), row))

    def take(self) -> pa.RecordBatch | None:
        """The dead letters since the last call, in the order of their rows; counted as ``dead_letters``."""
        if not self._letters:
            return None
        letters, self._letters = sorted(self._letters, key=lambda letter: letter.row), []
        self._ctx.count("dead_letters", len(letters))
        return encode(letters, DeadLetter.schema())


def problem_of(error: Exception) -> str:
    """What to say of an error of user code. Raises ``error`` itself if it is the engine's."""
    if not isinstance(error, ClonosError):
        return f"{type(error).__name__}: {error}"
    if isinstance(error, ServiceError | UserCodeError):
        return str(error)
    raise error


def row_text(rows: pa.RecordBatch, row: int) -> str:
    """A row as text."""
    return as_text(rows.slice(row, 1).to_pylist()[0])


def as_text(values: dict[str, Any]) -> str:
    """As JSON; as Python would print it, if JSON cannot hold it."""
    try:
        return msgspec.json.encode(values).decode()
    except (TypeError, ValueError):
        return repr(values)
