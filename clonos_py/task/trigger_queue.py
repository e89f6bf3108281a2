"""The queue of triggers and aborts from the coordinator. Each becomes an event of the log, or is dropped as void."""

from __future__ import annotations

from collections import deque

from clonos_py.causal.determinants import Abort, Trigger
from clonos_py.process.contract import AbortRequest, TriggerRequest


class TriggerQueue:
    """``aborted``: the void checkpoints that a barrier or trigger may still name."""

    def __init__(self) -> None:
        self._queue: deque[TriggerRequest | AbortRequest] = deque()
        self.aborted: set[int] = set()

    def offer(self, request: TriggerRequest | AbortRequest) -> None:
        self._queue.append(request)

    def next(self, epoch: int) -> Trigger | Abort | None:
        """The first in the queue that has an effect in this epoch. Those without one are dropped, not logged."""
        while self._queue:
            request = self._queue.popleft()
            if request.checkpoint > epoch and request.checkpoint not in self.aborted:
                return (Abort if isinstance(request, AbortRequest) else Trigger)(request.checkpoint)
        return None

    def passed(self, checkpoint: int) -> None:
        """A snapshot was taken: no barrier or trigger names earlier checkpoints any more."""
        self.aborted = {c for c in self.aborted if c > checkpoint}
