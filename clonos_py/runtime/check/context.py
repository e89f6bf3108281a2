"""The context of an operator under check: answers are recorded in the first trial and replayed in the second."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Any

from clonos_py.model.calls import ServiceCall
from clonos_py.model.errors import DivergenceError, ServiceError
from clonos_py.model.ids import TaskId
from clonos_py.model.times import MIN_TIME
from clonos_py.model.user_metrics import MetricDefinition
from clonos_py.services.asking import answered

NOT_CALLED = "a check calls no services; 'clonos check --live' does"
_SEED = 7


class Recording:
    """The gate of a check: logs ``[question, answer, error]``. If it is given a log, it answers from that."""

    def __init__(self, log: list[list[Any]] | None) -> None:
        self._replay = log
        self._at = 0
        self.log: list[list[Any]] = []

    def ask(self, kind: str, live: Callable[[], Any]) -> Any:
        entry = self._live(kind, live) if self._replay is None else self._next(kind)
        self.log.append(entry)
        if entry[2] is not None:
            raise ServiceError(entry[2])
        return entry[1]

    def _live(self, kind: str, live: Callable[[], Any]) -> list[Any]:
        try:
            return [kind, live(), None]
        except ServiceError as error:
            return [kind, None, str(error)]

    def _next(self, kind: str) -> list[Any]:
        assert self._replay is not None
        self._at += 1
        entry = self._replay[self._at - 1] if self._at <= len(self._replay) else ["nothing more", None, None]
        if entry[0] != kind:
            raise DivergenceError(f"asked ctx for {kind!r} the second time, and for {entry[0]!r} the first time")
        return entry


class CheckedClock:
    """``ctx.time``."""

    def __init__(self, gate: Recording) -> None:
        self._gate = gate

    def now(self) -> int:
        now_us: int = self._gate.ask("time", lambda: time.time_ns() // 1_000)
        return now_us


class CheckedContext:
    """An OperatorContext for one operator that is alone in its task."""

    parallelism = 1
    key_groups = 128
    groups = range(128)
    numbering = "check"
    may_repeat = False

    def __init__(self, operator: str, log: list[list[Any]] | None, client_of: Callable[[str], Any]) -> None:
        self.operator, self.task, self._client_of = operator, TaskId(operator, 0), client_of
        self.gate = Recording(log)
        self.time = CheckedClock(self.gate)
        self.random = random.Random(_SEED)
        self.watermark = MIN_TIME
        self.frame: tuple[int, int] = (0, 0)
        self.timers: set[int] = set()
        self.calls: dict[int, ServiceCall] = {}
        self.counted: dict[str, int] = {}

    def service(self, name: str) -> Any:
        return self._client_of(name)

    def set_timer(self, at: int) -> None:
        self.timers.add(at)

    def clear_timer(self, at: int) -> None:
        self.timers.discard(at)

    def start_call(self, number: int, service: str, question: Any) -> None:
        self.calls[number] = ServiceCall(0, number, service, question)

    def cancel_call(self, number: int) -> None:
        self.calls.pop(number, None)

    def answer(self, number: int) -> tuple[Any, str | None]:
        """The answer to a pending call, as (value, error). Ends the call."""
        call = self.calls.pop(number)

        def live() -> Any:
            found = answered(self._client_of, call)
            if found.error is not None:
                raise ServiceError(found.error)
            return found.value

        try:
            return self.gate.ask(f"{call.service} {call.question!r}", live), None
        except ServiceError as error:
            return None, str(error)

    def hold(self, any_: bool, enough: bool) -> None:
        """Does nothing: a check passes all rows even if the operator asks to wait."""

    def count(self, metric: str, amount: int) -> None:
        self.counted[metric] = self.counted.get(metric, 0) + amount

    def measure(self, definition: MetricDefinition, amount: float) -> None:
        """Does nothing: metrics have no effect on results."""
