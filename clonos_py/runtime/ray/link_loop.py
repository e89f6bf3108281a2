"""The link thread: feeds the link's machine with what sockets, coordinator, task and storage say (D8).

Everything reaches it through one inbox, in order per sender. The task thread is held back when the link is behind: it
may not produce faster than frames are encoded.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from clonos_py.model.messages import Drained, Ping, Pong, RollCall, Stop, ToCoordinator, ToProcess
from clonos_py.runtime.counters import Counters
from clonos_py.runtime.ray.channels import Channels
from clonos_py.task.events import FromTask, Observed, TaskState, ToTask
from clonos_py.task.instructions import (
    ClaimOutput,
    Commit,
    FreeFrames,
    Hand,
    Instruction,
    LinkEvent,
    Load,
    Persist,
    ReadFrames,
    SettleOutput,
    Shutdown,
    SinkWork,
    Spilling,
    Tell,
    WriteFrames,
    WriteOutput,
)
from clonos_py.task.link import LinkMachine

_STEPS_AHEAD = 32
"""Steps that the task may be ahead of the link."""
_WAIT_S_MAX = 1.0
_EVENTS_PER_TURN = 64
"""From the inbox between two looks at the sockets."""


@dataclass(frozen=True)
class Raised:
    """The task or the storage thread raised."""

    problem: BaseException


@dataclass(frozen=True)
class LinkPorts:
    """Whom the link talks to besides its peers."""

    tell: Callable[[ToCoordinator], None]
    hand: Callable[[ToTask], None]
    store: Callable[[Load | Persist | SinkWork], None]
    spill: Callable[[Spilling], None]
    shut_down: Callable[[str], None]


@dataclass(frozen=True)
class Step:
    """What one step of the task gave."""

    events: Sequence[FromTask]


Item = ToProcess | LinkEvent | Raised | Step


class LinkLoop:
    """Owns a LinkMachine and its channels. ``run`` is the thread; the other methods may be called by any thread."""

    def __init__(
        self,
        machine: LinkMachine,
        channels: Channels,
        ports: LinkPorts,
        counters: Counters,
        now_us: Callable[[], int],
    ) -> None:
        self._now_us = now_us
        self._machine, self._channels, self._ports, self._counters = machine, channels, ports, counters
        self._inbox: deque[Item] = deque()
        self._room = threading.Semaphore(_STEPS_AHEAD)
        self._running = True

    def put(self, item: ToProcess | LinkEvent | Raised) -> None:
        self._inbox.append(item)
        self._channels.wake()

    def put_step(self, events: Sequence[FromTask]) -> None:
        """What a step of the task gave. Waits while the link is too far behind."""
        while not self._room.acquire(timeout=_WAIT_S_MAX):
            if not self._running:
                return
        self._inbox.append(Step(events))
        self._channels.wake()

    def stop(self) -> None:
        """Ends the thread as it is."""
        self._running = False
        self._channels.wake()

    def run(self) -> None:
        """Until the machine is told to stop, or ``stop``."""
        while self._running:
            for event in self._channels.poll(0 if self._inbox else None):
                self._handle(event)
            for _ in range(min(len(self._inbox), _EVENTS_PER_TURN)):
                self._take(self._inbox.popleft())
        self._channels.close()

    def _take(self, item: Item) -> None:
        match item:
            case Raised(problem):
                self._perform(self._machine.fail(problem))
            case Step(events):
                for event in events:
                    self._handle(event)
                self._room.release()
            case _:
                self._handle(item)

    def _handle(self, event: ToProcess | LinkEvent | FromTask) -> None:
        if isinstance(event, Observed):
            self._counters.observe(self._machine.observed(event), self._now_us())
        elif self._machine.state is not TaskState.FAILED or isinstance(event, Stop | Ping | RollCall):
            try:
                self._perform(self._machine.handle(event))
            except Exception as problem:  # noqa: BLE001 - whatever it is, the coordinator must know
                self._perform(self._machine.fail(problem))

    def _perform(self, instructions: Sequence[Instruction]) -> None:
        for instruction in instructions:
            if self._channels.perform(instruction):
                continue
            match instruction:
                case Hand(item):
                    self._ports.hand(item)
                case Tell(message):
                    self._tell(message)
                case Load() | Persist() | Commit() | ClaimOutput() | WriteOutput() | SettleOutput():
                    self._ports.store(instruction)
                case WriteFrames() | ReadFrames() | FreeFrames():
                    self._ports.spill(instruction)
                case Shutdown(reason):
                    self._running = False
                    self._ports.shut_down(reason)

    def _tell(self, message: ToCoordinator) -> None:
        """Whoever counts is told with every heartbeat, and once more when there is nothing left to count."""
        if isinstance(message, Pong | Drained):
            number = message.number if isinstance(message, Pong) else 0
            counters = {**self._machine.counters, **self._counters.report(), "cpu_us": time.process_time_ns() // 1_000}
            self._ports.tell(Pong(message.process, number, counters))
        if not isinstance(message, Pong):
            self._ports.tell(message)
