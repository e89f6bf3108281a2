"""``ctx`` of asynchronous functions: awaitable calls, and synchronous services (P5).

The operator runs an ``async def`` function, not asyncio. It resumes the function only at events of the log: answers and
timers. So a function may only await ``ctx.http``, ``ctx.call`` and ``ctx.sleep``. All answers that a function received
are its history. A snapshot holds the history of each unfinished row. A function that is restarted with its history
reaches the same ``await``.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any, Generic, ParamSpec, TypeVar, Unpack, overload

from clonos_py.model.errors import ServiceError
from clonos_py.model.operators import OperatorContext
from clonos_py.model.times import Duration, micros
from clonos_py.services.asking import RECONCILED
from clonos_py.services.definition import ServiceDefinition, named
from clonos_py.services.http import HTTP, TRANSIENT, ContentOptions, Options, Response, attempts, response
from clonos_py.services.keys import Origin
from clonos_py.services.metrics import FunctionMetrics

P = ParamSpec("P")
R = TypeVar("R")
SLEEP = "sleep"
"""The name used in place of a service's when a function awaits a time."""


@dataclass(frozen=True)
class Awaited(Generic[R]):
    """An awaitable call: ``question`` for a service, or the microseconds to SLEEP. Awaiting it returns the answer."""

    service: str
    question: Any

    def __await__(self) -> Generator[Awaited[Any], Any, R]:
        answer: R = yield self
        return answer


@dataclass
class AnswerHistory:
    """The answers that one row has received: ``[value]``, or ``[None, error]``. ``position``: how many of them a
    restarted function has received again."""

    answers: list[list[Any]] = field(default_factory=list)
    position: int = 0

    @property
    def repeating(self) -> bool:
        return self.position < len(self.answers)

    def next(self) -> list[Any]:
        self.position += 1
        return self.answers[self.position - 1]

    def add(self, value: Any, error: str | None = None) -> None:
        self.answers.append([value] if error is None else [None, error])
        self.position += 1

    def ask(self, live: Callable[[], Any]) -> Any:
        """Asks a question that is answered synchronously, from the history or by ``live``."""
        if not self.repeating:
            self.add(live())
            return self.answers[-1][0]
        return self.next()[0]


class AsyncContext:
    """The ``ctx`` of one row."""

    def __init__(
        self, ctx: OperatorContext, origin: Origin, history: AnswerHistory, metrics: Callable[[], FunctionMetrics]
    ) -> None:
        """``origin``: the origin of the row, from which idempotency keys are made (D16). ``metrics``: returns those of
        the operator, for this row."""
        self._ctx, self._origin, self._history, self._metrics = ctx, origin, history, metrics
        self._random: random.Random | None = None
        self._calls = 0
        self.http = AsyncHttp(self._next_call)
        self.time = RowClock(ctx, history)

    @property
    def random(self) -> random.Random:
        """A random generator of this row alone, like the module ``random``; its seed is logged."""
        if self._random is None:
            self._random = random.Random(self._history.ask(lambda: self._ctx.random.getrandbits(64)))
        return self._random

    @property
    def metrics(self) -> FunctionMetrics:
        """Counters, gauges and histograms. What the row gives them counts when the row is done."""
        return self._metrics()

    @property
    def frame(self) -> tuple[int, int]:
        """Input channel and sequence number of the frame that contained the row; (-1, n) for the n-th other event."""
        return self._origin.channel, self._origin.sequence

    @overload
    def call(self, service: ServiceDefinition[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Awaited[R]: ...
    @overload
    def call(
        self,
        service: ServiceDefinition[..., R],
        /,
        *args: Any,
        reconcile: ServiceDefinition[..., R | None],
        **kwargs: Any,
    ) -> Awaited[R]: ...
    def call(
        self,
        service: Any,
        /,
        *args: Any,
        reconcile: Any = None,
        **kwargs: Any,
    ) -> Awaited[Any]:
        """Calls a user's service; awaiting the call returns its answer, plain data. Any error of the service is raised
        as a ServiceError. Several threads may call the service, each with its own client. For ``reconcile`` see
        ``Context.call``."""
        name, before = named(self._ctx.operator, service, reconcile)
        if before is not None and self._ctx.may_repeat:
            return Awaited(RECONCILED, (name, before, args, kwargs))
        return Awaited(name, (args, kwargs))

    def sleep(self, duration: Duration) -> Awaited[None]:
        """Sleeps at least for a duration such as ``"100ms"``."""
        return Awaited(SLEEP, micros(duration))

    def _next_call(self) -> str:
        """The key of the next call, from the row's origin and the number of the call."""
        self._calls += 1
        return self._origin.key(self._ctx.operator, self._calls)


class RowClock:
    """``ctx.time``."""

    def __init__(self, ctx: OperatorContext, history: AnswerHistory) -> None:
        self._ctx, self._history = ctx, history

    def now(self) -> int:
        """Wall-clock time in microseconds UTC."""
        now_us: int = self._history.ask(self._ctx.time.now)
        return now_us


class AsyncHttp:
    """``ctx.http`` of an asynchronous function: the methods of ``Http`` as coroutines."""

    def __init__(self, key: Callable[[], str]) -> None:
        self._key = key

    async def get(self, url: str, **options: Unpack[Options]) -> Response:
        """A request without content. See ``Http.request`` for options and errors."""
        return await self.request("GET", url, **options)

    async def post(self, url: str, **options: Unpack[ContentOptions]) -> Response:
        """A request with ``json=`` or ``content=``."""
        return await self.request("POST", url, **options)

    async def put(self, url: str, **options: Unpack[ContentOptions]) -> Response:
        """A request with ``json=`` or ``content=``."""
        return await self.request("PUT", url, **options)

    async def patch(self, url: str, **options: Unpack[ContentOptions]) -> Response:
        """A request with ``json=`` or ``content=``."""
        return await self.request("PATCH", url, **options)

    async def delete(self, url: str, **options: Unpack[Options]) -> Response:
        """A request without content."""
        return await self.request("DELETE", url, **options)

    async def head(self, url: str, **options: Unpack[Options]) -> Response:
        """A request whose answer has no content."""
        return await self.request("HEAD", url, **options)

    async def options(self, url: str, **options: Unpack[Options]) -> Response:
        """A request without content."""
        return await self.request("OPTIONS", url, **options)

    async def request(self, method: str, url: str, **options: Unpack[ContentOptions]) -> Response:
        """Sends a request as ``Http.request`` does."""
        for attempt, last in attempts(method, url, self._key(), options):
            try:
                answer = await Awaited[Any](HTTP, attempt)
            except ServiceError:
                if last:
                    raise
            else:
                if last or answer["status"] not in TRANSIENT:
                    return response(url, answer)
        raise AssertionError("the last attempt ends the loop")
