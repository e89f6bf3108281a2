"""Asynchronous service calls of a task. The gate logs the order in which answers are taken, as that of every event."""

from __future__ import annotations

from collections import deque

from clonos_py.causal.determinants import Completion
from clonos_py.model.calls import Answered, ServiceCall


class Calls:
    """The calls that have no answer yet, in order. A replay registers calls but does not start them."""

    def __init__(self) -> None:
        self._waiting: dict[tuple[int, int], ServiceCall] = {}
        self._unstarted: dict[tuple[int, int], ServiceCall] = {}
        self._answered: deque[Answered] = deque()

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def clear(self) -> None:
        self._waiting, self._unstarted = {}, {}
        self._answered.clear()

    def begin(self, call: ServiceCall) -> None:
        self._waiting[call.operator, call.number] = self._unstarted[call.operator, call.number] = call

    def discard(self, operator: int, number: int) -> None:
        self._waiting.pop((operator, number), None)
        self._unstarted.pop((operator, number), None)

    def answer(self, answered: Answered) -> None:
        """Queues an answer that the driver has received."""
        self._answered.append(answered)

    def start(self) -> list[ServiceCall]:
        """The calls that the driver has to start now."""
        calls, self._unstarted = list(self._unstarted.values()), {}
        return calls

    def next(self) -> Completion | None:
        """The first queued answer whose call is still waiting; None if there is none."""
        while self._answered:
            answered = self._answered.popleft()
            if (answered.operator, answered.number) in self._waiting:
                return Completion(answered.operator, answered.number, answered.value, answered.error)
        return None

    def complete(self, completion: Completion) -> bool:
        """Removes the answered call. False if it was not waiting."""
        waits = (completion.operator, completion.call) in self._waiting
        self.discard(completion.operator, completion.call)
        return waits
