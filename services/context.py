"""``ctx``: what a user's function may ask of the world (P5). Everything it answers is logged and replayed."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from clonos_py.model.errors import UserCodeError
from clonos_py.model.operators import Clock, OperatorContext
from clonos_py.services.asking import ask
from clonos_py.services.definition import ServiceDefinition
from clonos_py.services.http import Http
from clonos_py.services.keys import origin_of

P = ParamSpec("P")
R = TypeVar("R")


class Context:
    """Wraps the operator's context for user code. The operator says which row is at work by ``at_row``."""

    def __init__(self, ctx: OperatorContext, key: Callable[[], Any] | None = None) -> None:
        """``key``: gives that of the row or timer at work, where there are keys."""
        self._ctx = ctx
        self._key = key
        self._row = -1
        self._event_time: int | None = None
        self._calls_frame = (0, 0)
        self._calls = 0
        self.http = Http(ctx, self._next_call)

    def at_row(self, row: int, event_time: int | None = None) -> None:
        """For the operator: the row of the frame (-1: none, a timer) and the event time that user code now sees."""
        self._row, self._event_time = row, event_time

    @property
    def time(self) -> Clock:
        """``ctx.time.now()``: wall-clock time in microseconds UTC."""
        return self._ctx.time

    @property
    def random(self) -> random.Random:
        """Like the module ``random``, seeded through the log."""
        return self._ctx.random

    @property
    def key(self) -> Any:
        """The key of the row or timer at work: its value or, where key_by was given several columns, a tuple of their
        values. Only process functions have one."""
        if self._key is None:
            raise UserCodeError(f"{self._ctx.operator}: there is no ctx.key here; process functions behind key_by have")
        return self._key()

    @property
    def event_time(self) -> int:
        """The event time of the row or timer at work, in microseconds UTC. Only process functions know it."""
        if self._event_time is None:
            raise UserCodeError(f"{self._ctx.operator}: there is no ctx.event_time here; read the row's own field")
        return self._event_time

    @property
    def watermark(self) -> int:
        """Event time up to which the input is complete."""
        return self._ctx.watermark

    @property
    def frame(self) -> tuple[int, int]:
        """Input channel and sequence number of the frame at work; (-1, n) for the n-th other event."""
        return self._ctx.frame

    def call(self, service: ServiceDefinition[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """The answer of a user's service, plain data. Raises ServiceError for whatever the service raises."""
        if not isinstance(service, ServiceDefinition):
            raise UserCodeError(f"{self._ctx.operator}: ctx.call takes a function declared with @service")
        name = service.name
        answer: R = self._ctx.gate.ask("service", lambda: ask(self._ctx.service(name), name, args, kwargs))
        return answer

    def _next_call(self) -> str:
        """Names the input that causes a call, and which call of its frame it is."""
        frame = self._ctx.frame
        if frame != self._calls_frame:
            self._calls_frame, self._calls = frame, 0
        self._calls += 1
        return origin_of(self._ctx, self._row).key(self._ctx.operator, self._calls)
