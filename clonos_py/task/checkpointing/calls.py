"""Calls of the coordinator, triggers and aborts, until each is taken as an event of the log or turns out to be void."""

from __future__ import annotations

from collections import deque

from clonos_py.causal.determinants import Abort, Trigger
from clonos_py.process.contract import AbortCall, TriggerCall


class CheckpointCalls:
    """``aborted``: the checkpoints that are void, of those that may still be named."""

    def __init__(self) -> None:
        self._calls: deque[TriggerCall | AbortCall] = deque()
        self.aborted: set[int] = set()

    def offer(self, call: TriggerCall | AbortCall) -> None:
        self._calls.append(call)

    def next(self, epoch: int) -> Trigger | Abort | None:
        """The first call that changes anything in this epoch; only then it is an event."""
        while self._calls:
            call = self._calls.popleft()
            if call.checkpoint > epoch and call.checkpoint not in self.aborted:
                return (Abort if isinstance(call, AbortCall) else Trigger)(call.checkpoint)
        return None

    def passed(self, checkpoint: int) -> None:
        """A snapshot was taken: nothing names earlier checkpoints any more."""
        self.aborted = {c for c in self.aborted if c > checkpoint}
