"""Handles failures of a user's function on a row or timer: the job stops, or a dead letter is emitted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pyarrow as pa

from clonos_py.model.errors import ClonosError, ServiceError, UserCodeError, sound, text_of, type_and_text
from clonos_py.model.moments import shown_rows
from clonos_py.model.operators import OperatorContext
from clonos_py.model.places import blamed, place_of_failure
from clonos_py.model.record import DeadLetter
from clonos_py.model.record_codec import encode
from clonos_py.services.keys import Origin

_RECORD_CHARACTERS_MAX = 1_000
"""The most characters of a record that an error shows. A dead letter holds the whole record."""


class RowFailures:
    """The failures of one operator. With ``catch`` they are collected until ``take``; else the first one raises."""

    def __init__(self, ctx: OperatorContext, catch: bool) -> None:
        self._ctx = ctx
        self._catch = catch
        self._letters: list[DeadLetter] = []

    def add(
        self,
        rows: pa.RecordBatch,
        row: int,
        error: BaseException,
        function: Callable[..., Any],
        origin: Origin | None = None,
    ) -> None:
        """Row ``row`` of the batch failed in ``function``. Raises UserCodeError naming operator and record, if failures
        are not caught. Raises ``error`` itself if the engine failed, not user code. ``origin``: the row's origin, if
        that is not the frame being processed."""
        channel, sequence, row_there = origin[2:] if origin else (*self._ctx.frame, row)
        record = row_text(rows, row)
        self.add_subject(f"record {shortened(record)}", record, row_there, error, function, (channel, sequence))

    def add_subject(
        self,
        subject: str,
        record: str,
        row: int,
        error: BaseException,
        function: Callable[..., Any],
        frame: tuple[int, int] | None = None,
    ) -> None:
        """As ``add``, for a failed item that an error calls ``subject`` and a dead letter describes as ``record``.
        ``row``: -1 if it is not a row."""
        problem = problem_of(error)
        if not self._catch:
            message = f"operator {self._ctx.operator!r} failed on {subject}: {problem}; .catch() would skip it"
            raise blamed(message, error, function) from error
        where = frame or self._ctx.frame
        place = sound(place_of_failure(error, function))
        letter = DeadLetter(self._ctx.operator, problem, sound(record), *where, row, place)
        self._letters.append(letter)

    def take(self) -> pa.RecordBatch | None:
        """The dead letters since the last call, in the order of their rows; counted as ``dead_letters``."""
        if not self._letters:
            return None
        letters, self._letters = sorted(self._letters, key=lambda letter: letter.row), []
        self._ctx.count("dead_letters", len(letters))
        return encode(letters, DeadLetter.schema())


def problem_of(error: BaseException) -> str:
    """The text of an error of user code, the same in every replay. Raises ``error`` itself if it is the engine's."""
    if isinstance(error, RecursionError):
        return "RecursionError: maximum recursion depth exceeded"  # Python adds the place, which may vary
    if not isinstance(error, ClonosError):
        return type_and_text(error)
    if isinstance(error, ServiceError | UserCodeError):
        return error.text if isinstance(error, UserCodeError) else text_of(error)
    raise error


def row_text(rows: pa.RecordBatch, row: int) -> str:
    """A row as text."""
    return as_text(shown_rows(rows.slice(row, 1))[0])


def as_text(values: dict[str, Any]) -> str:
    """The values as JSON, or as Python's ``repr`` if JSON cannot represent them."""
    try:
        return msgspec.json.encode(values).decode()
    except (TypeError, ValueError):
        return sound(repr(values))


def shortened(text: str) -> str:
    """A text, cut to the length that an error shows."""
    return text if len(text) <= _RECORD_CHARACTERS_MAX else f"{text[:_RECORD_CHARACTERS_MAX]}..."
