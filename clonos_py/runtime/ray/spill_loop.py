"""The spill thread: writes retained frames to disk and reads them back, while the link goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from clonos_py.runtime.ray.request_loop import RequestLoop
from clonos_py.runtime.spill import FrameShelf, carry_out
from clonos_py.task.instructions import LinkEvent, Spilling


class SpillLoop(RequestLoop[Spilling]):
    """Owns the shelf, which goes with the thread."""

    def __init__(
        self, shelf: FrameShelf, answer: Callable[[LinkEvent], None], fail: Callable[[BaseException], None]
    ) -> None:
        super().__init__(answer, fail)
        self._shelf = shelf

    def _serve(self, request: Spilling) -> Iterable[LinkEvent]:
        return carry_out(request, self._shelf)

    def _close(self) -> None:
        self._shelf.close()
