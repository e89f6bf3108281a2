"""The spill thread: writes retained frames to disk and reads them back, while the link goes on."""

from __future__ import annotations

from collections.abc import Callable
from queue import SimpleQueue

from clonos_py.runtime.spill import FrameShelf, carry_out
from clonos_py.task.instructions import LinkEvent, Spilling


class SpillLoop:
    """One request after the other. ``run`` is the thread; ``put`` and ``stop`` may be called by any thread."""

    def __init__(
        self, shelf: FrameShelf, answer: Callable[[LinkEvent], None], fail: Callable[[BaseException], None]
    ) -> None:
        """``answer`` takes results, ``fail`` what ended the thread."""
        self._shelf, self._answer, self._fail = shelf, answer, fail
        self._inbox: SimpleQueue[Spilling | None] = SimpleQueue()

    def put(self, request: Spilling) -> None:
        self._inbox.put(request)

    def stop(self) -> None:
        self._inbox.put(None)

    def run(self) -> None:
        """Until stopped."""
        try:
            while (request := self._inbox.get()) is not None:
                for event in carry_out(request, self._shelf):
                    self._answer(event)
            self._shelf.close()
        except Exception as problem:  # noqa: BLE001 - whatever it is, the coordinator must know
            self._fail(problem)
