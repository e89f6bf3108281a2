"""A thread that serves requests of the link, one after the other, while link and task go on: storage, or spilling."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from queue import SimpleQueue
from typing import Generic, TypeVar

from clonos_py.link.instructions import LinkEvent

R = TypeVar("R")


def _nothing() -> None:
    pass


class RequestLoop(Generic[R]):
    """``run`` is the thread; the other methods may be called by any thread."""

    def __init__(
        self,
        carry_out: Callable[[R], Iterable[LinkEvent]],
        answer: Callable[[LinkEvent], None],
        fail: Callable[[BaseException], None],
        close: Callable[[], None] = _nothing,
    ) -> None:
        """``carry_out`` does what a request asks, and ``answer`` takes what came of it. ``fail`` takes what ended the
        thread; ``close`` is called by the thread when there will be no more requests."""
        self._carry_out, self._answer, self._fail, self._close = carry_out, answer, fail, close
        self._inbox: SimpleQueue[R | None] = SimpleQueue()
        self._abandoned = False

    def put(self, request: R) -> None:
        self._inbox.put(request)

    def stop(self) -> None:
        self._inbox.put(None)

    def abandon(self) -> None:
        """Stops after the request that is being carried out."""
        self._abandoned = True
        self._inbox.put(None)

    def run(self) -> None:
        """Until stopped, or until a request fails that nothing but the process's end can answer."""
        try:
            while (request := self._inbox.get()) is not None and not self._abandoned:
                for event in self._carry_out(request):
                    self._answer(event)
            self._close()
        except Exception as problem:  # noqa: BLE001 - whatever it is, the coordinator must know
            self._fail(problem)
