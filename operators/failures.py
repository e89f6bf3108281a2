"""What becomes of a row that a user's function fails on: the job stops with its name, or it goes to a dead letter."""

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

    def add(self, rows: pa.RecordBatch, row: int, error: Exception) -> None:
        """Row ``row`` of the batch failed. Raises UserCodeError naming operator and record, if failures are not
        caught; raises ``error`` itself if it is not user code that failed but the engine."""
        problem, text = problem_of(error), row_text(rows, row)
        channel, sequence = self._ctx.frame
        if not self._catch:
            place = f"row {row} of frame {sequence} of input {channel}"
            message = (
                f"operator {self._ctx.operator!r} failed on record {text} ({place}): {problem}; .catch() would skip it"
            )
            raise UserCodeError(message) from error
        self._letters.append(DeadLetter(self._ctx.operator, problem, text, channel, sequence, row))

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
    """A row as JSON; as Python would print it, if JSON cannot hold it."""
    values: dict[str, Any] = rows.slice(row, 1).to_pylist()[0]
    try:
        return msgspec.json.encode(values).decode()
    except (TypeError, ValueError):
        return repr(values)
