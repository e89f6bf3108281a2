"""The storage or spill thread: serves requests of the link one after the other, while link and task go on."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from queue import SimpleQueue
from typing import Generic, TypeVar

from clonos_py.link.instructions import LinkEvent

R = TypeVar("R")


def _nothing() -> None:
    pass


class InboxLoop(Generic[R]):
    """A thread with an inbox. Subclasses add ``run``, the body of the thread; any thread may call the other methods."""

    def __init__(self) -> None:
        self._inbox: SimpleQueue[R | None] = SimpleQueue()
        self._abandoned = False

    def put(self, item: R) -> None:
        self._inbox.put(item)

    def stop(self) -> None:
        """Stops the thread in order: after the items before this."""
        self._inbox.put(None)

    def abandon(self) -> None:
        """Stops the thread after the current item; drops the others."""
        self._abandoned = True
        self._inbox.put(None)


class RequestLoop(InboxLoop[R]):
    """Serves the requests in its inbox."""

    def __init__(
        self,
        carry_out: Callable[[R], Iterable[LinkEvent]],
        answer: Callable[[LinkEvent], None],
        fail: Callable[[BaseException], None],
        begin: Callable[[], None] = _nothing,
        close: Callable[[], None] = _nothing,
    ) -> None:
        """``carry_out`` serves a request, and ``answer`` takes the resulting events. ``fail`` takes an error that ended
        the thread. The thread calls ``begin`` before the first request and ``close`` after the last one."""
        super().__init__()
        self._carry_out, self._answer, self._fail = carry_out, answer, fail
        self._begin, self._close = begin, close

    def run(self) -> None:
        """Serves requests until stopped, or until one raises an error, which ends the process."""
        try:
            self._begin()
            while (request := self._inbox.get()) is not None and not self._abandoned:
                for event in self._carry_out(request):
                    self._answer(event)
            self._close()
        except Exception as problem:  # noqa: BLE001 - every error is reported to the coordinator
            self._fail(problem)
