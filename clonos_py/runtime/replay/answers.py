"""What the recorded code asked, and what it was answered, so that changed code gets the same answers (F3).

Answers are found by what asked for them: the operator, the question, and the row that was processed, by its content.
So code that drops or adds rows does not shift the answers of the others. If several answers fit, that of the recorded
event whose counterpart is performed now comes first, then the oldest one that was not given again. The same question to
a service at another row gets the answer that is nearest in time.

A question that no operator ever asked leaves the record. What happens then is the user's choice (``Unasked``).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Generic, NamedTuple, TypeVar

from clonos_py.model.errors import Interrupted, RecordError

A = TypeVar("A")

_SAME_QUESTION_MAX = 256
"""How many answers to one question are held that were not given again."""
_QUESTIONS_MAX = 200_000
"""How many questions about one row each are held: times and random numbers."""


class Unasked(Enum):
    """What happens with a question that the recorded code did not ask."""

    FAIL = "fail"
    DEFAULT = "default"
    LIVE = "live"


class QuestionMoment(NamedTuple):
    """The event in which a question is asked. ``task``: that of the recorded job. ``row``: what identifies the row."""

    task: Hashable
    event: int
    row: Hashable = None


class ServiceAnswer(NamedTuple):
    """The answer of a service, or the error that it raised."""

    value: Any
    error: str | None = None


class Answers(Generic[A]):
    """The answers of one kind, by question."""

    def __init__(self, questions_max: int | None = None) -> None:
        """``questions_max``: the most questions to hold; those asked first are dropped."""
        self._questions_max = questions_max
        self._waiting: dict[Hashable, deque[tuple[QuestionMoment, A]]] = {}
        self._last: dict[Hashable, A] = {}

    def add(self, question: Hashable, moment: QuestionMoment, answer: A) -> None:
        """A question was answered."""
        waiting = self._waiting.setdefault(question, deque())
        if len(waiting) >= _SAME_QUESTION_MAX and waiting[0][0][:2] != moment[:2]:
            waiting.popleft()
        waiting.append((moment, answer))
        if self._questions_max is None:
            self._last[question] = answer
        elif len(self._waiting) > self._questions_max:
            del self._waiting[next(iter(self._waiting))]

    def take(self, question: Hashable, moment: QuestionMoment) -> A | None:
        """An answer that was given for the same row and not taken yet; None if there is none."""
        waiting = self._waiting.get(question, ())
        same = [n for n, (recorded, _) in enumerate(waiting) if recorded.row == moment.row]
        if not same:
            return None
        now = next((n for n in same if waiting[n][0] == moment), same[0])
        answer = waiting[now][1]
        del self._waiting[question][now]
        if not self._waiting[question]:
            del self._waiting[question]
        return answer

    def nearest(self, question: Hashable, moment: QuestionMoment) -> A | None:
        """The answer that another row got in the same event, else the last one; None if the question was never
        asked."""
        for recorded, answer in self._waiting.get(question, ()):
            if recorded[:2] == moment[:2]:
                return answer
        return self._last.get(question)


@dataclass
class OperatorAnswers:
    """What one operator of the recorded job, in all of its tasks, was answered."""

    times: Answers[int] = field(default_factory=lambda: Answers(_QUESTIONS_MAX))
    """By row."""
    draws: Answers[float] = field(default_factory=lambda: Answers(_QUESTIONS_MAX))
    """By row and kind: random numbers."""
    services: Answers[ServiceAnswer] = field(default_factory=Answers)
    """By question."""


class UnrecordedQuestionError(RecordError):
    """The changed code asks what the recorded code did not ask, and that ends the comparison."""


class LeftRecord(Interrupted):  # no function of the user may take it for an answer
    """The changed code has asked a question that ends the comparison."""


@dataclass
class RecordedAnswers:
    """All answers, and where the changed code has asked something else."""

    unasked: Unasked = Unasked.FAIL
    modules: frozenset[str] = frozenset()
    """The modules with the two versions of the job: a service that is declared there has another module in each."""
    operators: dict[str, OperatorAnswers] = field(default_factory=dict)
    left: int = 0
    """How many questions were asked that the record has no answer for."""
    first_left: str = ""
    """The first one: what it was, of which operator, at which row."""
    refused: UnrecordedQuestionError | None = None

    def service_name(self, name: str) -> str:
        """The name of a service, equal in both versions of the job."""
        module, _, rest = name.partition(".")
        return rest if rest and module in self.modules else name

    def of(self, operator: str) -> OperatorAnswers:
        """The answers of an operator."""
        return self.operators.setdefault(operator, OperatorAnswers())

    def service(self, operator: str, question: Hashable, moment: QuestionMoment) -> ServiceAnswer | None:
        """The answer to a question, if need be one that was given for another row; None if it was never asked."""
        for answers in self._nearest(operator):
            found = answers.services.take(question, moment)
            if found is None:
                found = answers.services.nearest(question, moment)
            if found is not None:
                return found
        return None

    def draw(self, operator: str, kind: str, moment: QuestionMoment) -> float | None:
        """The random number that was drawn for a row; None if none was."""
        for answers in self._nearest(operator):
            found = answers.draws.take((moment.row, kind), moment)
            if found is not None:
                return found
        return None

    def _nearest(self, operator: str) -> Iterator[OperatorAnswers]:
        """The answers of the operator, then those of the others: it may have had another name."""
        if operator in self.operators:
            yield self.operators[operator]
        yield from (answers for name, answers in self.operators.items() if name != operator)

    def leave(self, question: str, operator: str, row: Callable[[], str]) -> None:
        """The record has no answer. Raises LeftRecord if that ends the comparison."""
        self.left += 1
        if not self.first_left:
            self.first_left = f"operator {operator!r} asks for {question} at {row()}"
        if self.unasked is not Unasked.FAIL:
            return
        self.refused = UnrecordedQuestionError(
            f"{self.first_left}, which the recorded code did not ask: add --ask live to ask now, or --ask default to "
            "go on with an error for it"
        )
        raise LeftRecord(str(self.refused))
