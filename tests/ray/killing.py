"""A listener that injects faults into the two-witness job: one after each checkpoint, when there is enough to lose."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from clonos_py.bench.fault_injector import FaultInjector, InjectedFault
from clonos_py.model.coordinator_events import CheckpointCompleted, Deployed
from clonos_py.observe.events import Event, Progress

FRAMES_AT_LEAST = 20
_AFTER_CHECKPOINT_US = 500_000
PlannedFault = tuple[InjectedFault, str, str]
"""What is done, and to which tasks."""


class Killer:
    """``first`` happens when the job is deployed, ``faults`` in their order later."""

    def __init__(self, faults: Sequence[PlannedFault], first: PlannedFault | None = None) -> None:
        self.events: list[Event] = []
        self.harm = FaultInjector("witnesses")
        self._first, self._left = first, list(faults)
        self._ready_us: int | None = None

    def __call__(self, at_us: int, event: Event) -> None:
        self.events.append(event)
        match event:
            case Deployed() if self._first is not None:
                self._do(*self._first)
            case CheckpointCompleted():
                self._ready_us = at_us + _AFTER_CHECKPOINT_US
            case Progress() if self._left and self._ready_us is not None and at_us >= self._ready_us:
                _, *victims = self._left[0]
                stakes = {str(task): frames for task, frames in event.frames_at_stake.items()}
                if all(stakes.get(victim, 0) >= FRAMES_AT_LEAST for victim in victims if victim):
                    self._do(*self._left.pop(0))
                    self._ready_us = None

    def _do(self, fault: InjectedFault, *victims: str) -> None:
        threading.Thread(target=self.harm.do, args=(fault, victims), daemon=True).start()
