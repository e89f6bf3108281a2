"""The world outside of a task that replays a record: there is none. Only large answers are read, from the record."""

from __future__ import annotations

from typing import Any, NoReturn

from clonos_py.model.errors import EndOfRecordError
from clonos_py.runtime.operator_environment import StoredAnswers


class ReplayEnvironment(StoredAnswers):
    """Refuses every question that the record does not answer."""

    def now_us(self) -> int:
        """The time of day counts for nothing: timers fire where the record says."""
        return 0

    def seed(self) -> int:
        return self._unanswered("a random number")

    def service(self, name: str) -> Any:
        """A client that refuses every call."""
        return lambda *args, **kwargs: self._unanswered(f"an answer of the service {name!r}")

    def keep(self, epoch: int, content: bytes) -> str:
        return self._unanswered("storage for an answer")

    def _unanswered(self, question: str) -> NoReturn:
        raise EndOfRecordError(f"{self._task} asks for {question}, for which the record has no answer here")
