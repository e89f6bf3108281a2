"""A listener that injects faults into the two-witness job: one after each checkpoint, when there is enough to lose."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Semaphore

from clonos_py.bench import witnesses
from clonos_py.bench.fault_injector import FaultInjector, InjectedFault
from clonos_py.model.coordinator_events import CheckpointCompleted, Deployed, Deploying, StandbyActivated
from clonos_py.model.ids import TaskId
from clonos_py.observe.events import Event, Progress, TaskFailed

FRAMES_AT_LEAST = 8
RATE = 40
"""Rows a second of each partition while faults are injected."""
PlannedFault = tuple[InjectedFault, tuple[str, ...]]
"""What is done, and to which tasks; a fault of none has none."""
ROWS_MAX = 10**9
"""The total of a job until the last fault has happened."""


class Killer:
    """``first`` happens when the job is deployed, ``faults`` in their order later, each a while after a checkpoint when
    all tasks have recovered. The job runs until the last one has happened: then its total is written to ``unpaced``."""

    def __init__(
        self,
        faults: Sequence[PlannedFault],
        unpaced: Path,
        first: PlannedFault | None = None,
        after_checkpoint_us: int = 500_000,
        before_each: Callable[[FaultInjector], object] = lambda injector: None,
    ) -> None:
        """``before_each``: is called before each fault, in the thread that injects it."""
        self.total: int | None = None
        """The rows of the job, once it is known."""
        self.events: list[Event] = []
        self._began_s = 0.0
        """When the sources may have begun to read."""
        self.injector = FaultInjector("witnesses")
        self._first, self._left, self._unpaced = first, list(faults), unpaced
        self._to_come = Semaphore(len(faults) + (first is not None) - 1)
        """One less than the faults that have not happened: one may begin before the one before has ended."""
        self._after_checkpoint_us, self._before_each = after_checkpoint_us, before_each
        self._ready_us: int | None = None
        self._recovering: set[TaskId] = set()

    def __call__(self, at_us: int, event: Event) -> None:
        self.events.append(event)
        self._follow(event)
        match event:
            case Deploying() if not self._began_s:
                self._began_s = time.monotonic()
            case Deployed() if self._first is not None:
                self._start(self._first)
                self._first = None
            case CheckpointCompleted() if self._ready_us is None:  # later checkpoints do not delay it
                self._ready_us = at_us + self._after_checkpoint_us
            case Progress() if self._left and self._ready(at_us):
                _, victims = self._left[0]
                stakes = {str(task): frames for task, frames in event.frames_at_stake.items()}
                if all(stakes.get(victim, 0) >= FRAMES_AT_LEAST for victim in victims):
                    self._ready_us = None
                    self._start(self._left.pop(0))

    def _follow(self, event: Event) -> None:
        """Records the tasks that recover, which a fault could not hit."""
        match event:
            case TaskFailed(task=task):
                self._recovering.add(task)
            case StandbyActivated(task=task):
                self._recovering.discard(task)
            case Deployed():
                self._recovering.clear()

    def _ready(self, at_us: int) -> bool:
        return self._ready_us is not None and at_us >= self._ready_us and not self._recovering

    def _start(self, planned: PlannedFault) -> None:
        threading.Thread(target=self._do, args=planned, daemon=True).start()

    def _do(self, fault: InjectedFault, victims: tuple[str, ...]) -> None:
        try:
            self._before_each(self.injector)
            self.injector.inject(fault, victims or ("",))
        finally:
            if not self._to_come.acquire(blocking=False):
                self._end_job()

    def _end_job(self) -> None:
        """Ends the job with more rows than the sources can have read by now, and as few as possible: how many are
        needed depends on the machine."""
        due = math.ceil((time.monotonic() - self._began_s) * RATE)
        self.total = (due + 1) * witnesses.PARTITIONS
        written = self._unpaced.with_suffix(".new")
        written.write_text(str(self.total))
        written.rename(self._unpaced)
