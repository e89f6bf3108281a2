"""A thread that serves requests of the link, one after the other, while link and task go on."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from queue import SimpleQueue
from typing import Generic, TypeVar

from clonos_py.task.instructions import LinkEvent

R = TypeVar("R")


class RequestLoop(Generic[R]):
    """``run`` is the thread; ``put`` and ``stop`` may be called by any thread."""

    def __init__(self, answer: Callable[[LinkEvent], None], fail: Callable[[BaseException], None]) -> None:
        """``answer`` takes results, ``fail`` what ended the thread."""
        self._answer, self._fail = answer, fail
        self._inbox: SimpleQueue[R | None] = SimpleQueue()

    def put(self, request: R) -> None:
        self._inbox.put(request)

    def stop(self) -> None:
        self._inbox.put(None)

    def run(self) -> None:
        """Until stopped, or until a request fails that nothing but the process's end can answer."""
        try:
            while (request := self._inbox.get()) is not None:
                for event in self._serve(request):
                    self._answer(event)
            self._close()
        except Exception as problem:  # noqa: BLE001 - whatever it is, the coordinator must know
            self._fail(problem)

    def _serve(self, request: R) -> Iterable[LinkEvent]:
        """Carries a request out and says what came of it."""
        raise NotImplementedError

    def _close(self) -> None:
        """There will be no more requests."""
