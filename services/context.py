"""``ctx``: the services that a user's function can call (P5). All answers are logged and replayed."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, ParamSpec, TypeVar, overload

from clonos_py.model.errors import UserCodeError
from clonos_py.model.operators import Clock, OperatorContext
from clonos_py.services.asking import ask, ask_again
from clonos_py.services.definition import ServiceDefinition, named
from clonos_py.services.http import Http
from clonos_py.services.keys import origin_of
from clonos_py.services.metrics import FunctionMetrics

P = ParamSpec("P")
R = TypeVar("R")


class Context:
    """Wraps the operator's context for user code. The operator sets the current row with ``at_row``."""

    def __init__(self, ctx: OperatorContext, key: Callable[[], Any] | None = None) -> None:
        """``key``: returns the key of the current row or timer; None if the operator has no keys."""
        self._ctx = ctx
        self._key = key
        self._row = -1
        self._event_time: int | None = None
        self._calls_frame = (0, 0)
        self._calls = 0
        self.http = Http(ctx, self._next_call)

    def at_row(self, row: int, event_time: int | None = None) -> None:
        """For the operator: sets the current row of the frame (-1: none, a timer) and the event time for user code."""
        self._row, self._event_time = row, event_time

    @property
    def time(self) -> Clock:
        """``ctx.time.now()``: wall-clock time in microseconds UTC."""
        return self._ctx.time

    @property
    def random(self) -> random.Random:
        """A random generator like the module ``random``; its seed is logged."""
        return self._ctx.random

    @cached_property
    def metrics(self) -> FunctionMetrics:
        """Counters, gauges and histograms of the function."""
        return FunctionMetrics(self._ctx.measure)

    @property
    def key(self) -> Any:
        """The key of the current row or timer: its value, or a tuple of values if key_by has several columns. Only
        process functions have a key."""
        if self._key is None:
            raise UserCodeError(f"{self._ctx.operator}: there is no ctx.key here; process functions behind key_by have")
        return self._key()

    @property
    def event_time(self) -> int:
        """The event time of the current row or timer, in microseconds UTC. Only for process functions."""
        if self._event_time is None:
            raise UserCodeError(f"{self._ctx.operator}: there is no ctx.event_time here; read the row's own field")
        return self._event_time

    @property
    def place(self) -> tuple[int, Any, int | None]:
        """For observers: the current row's number in its batch (-1: none, a timer), its key and its event time (None:
        there is none)."""
        return self._row, self._key() if self._key is not None else None, self._event_time

    @property
    def watermark(self) -> int:
        """The event time up to which the input is complete."""
        return self._ctx.watermark

    @property
    def frame(self) -> tuple[int, int]:
        """Input channel and sequence number of the current frame; (-1, n) for the n-th other event."""
        return self._ctx.frame

    @overload
    def call(self, service: ServiceDefinition[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R: ...
    @overload
    def call(
        self,
        service: ServiceDefinition[..., R],
        /,
        *args: Any,
        reconcile: ServiceDefinition[..., R | None],
        **kwargs: Any,
    ) -> R: ...
    def call(
        self,
        service: Any,
        /,
        *args: Any,
        reconcile: Any = None,
        **kwargs: Any,
    ) -> Any:
        """Calls a user's service and returns its answer, plain data. Any error of the service is raised as a
        ServiceError.

        ``reconcile``: a service with the same arguments that returns what the call has answered, or None if it was not
        made. A replacement, and a run that resumes, ask it instead of making a call again whose answer may be lost.
        """
        name, before = named(self._ctx.operator, service, reconcile)
        return self._ctx.gate.ask("service", lambda: self._ask(name, before, args, kwargs))

    def _ask(self, name: str, before: str | None, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        if before is not None and self._ctx.may_repeat:
            return ask_again(self._ctx.service, name, before, args, kwargs)
        return ask(self._ctx.service(name), name, args, kwargs)

    def _next_call(self) -> str:
        """The key of the next call, from the row's origin and the number of the call in its frame."""
        frame = self._ctx.frame
        if frame != self._calls_frame:
            self._calls_frame, self._calls = frame, 0
        self._calls += 1
        return origin_of(self._ctx, self._row).key(self._ctx.operator, self._calls)
