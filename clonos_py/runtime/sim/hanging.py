"""Processes and coordinators that hang: events for them wait, and are handled when they continue.

A process that hangs cannot be ended, as on a host that is unreachable. Instead it becomes a zombie, which ends some
time after it has continued.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, KeysView
from functools import partial

from clonos_py.process.contract import ToTask
from clonos_py.runtime.executors.link import LinkInput
from clonos_py.runtime.world.actions import Actions
from clonos_py.runtime.world.dispatcher import Dispatcher
from clonos_py.runtime.world.processes import LocalProcess

_ZOMBIE_END_US = 20_000


class HangingDispatcher:
    """A layer before a world's dispatcher that makes processes and the coordinator hang."""

    def __init__(self, inner: Dispatcher) -> None:
        self._inner = inner
        self._hung: dict[int, list[Callable[[], None]]] = {}
        """By hanging process: its waiting actions. It counts as hanging until all of them have been performed."""
        self._resuming: dict[int, Actions] = {}
        """The hanging processes that have continued and perform their waiting actions."""
        self._zombies: set[int] = set()
        self._standstill: list[Callable[[], None]] | None = None
        """The waiting actions of the coordinator; None if it does not hang."""

    # ---- processes

    def hung(self) -> KeysView[int]:
        """The processes that hang."""
        return self._hung.keys()

    def hang(self, numbers: Iterable[int], duration_us: int, actions: Actions, kill: Callable[[int], None]) -> None:
        """Makes processes hang for ``duration_us``. ``kill`` then ends those that have become zombies."""
        for number in numbers:
            self._hung.setdefault(number, [])
            self._resuming.pop(number, None)
            actions.at(actions.now_us + duration_us, partial(self._resume, number, actions, kill))

    def _resume(self, number: int, actions: Actions, kill: Callable[[int], None]) -> None:
        """Performs the waiting actions in order, then those that arrive meanwhile."""
        waiting = len(self._hung.get(number, ()))
        self._resuming[number] = actions
        for _ in range(waiting):
            actions.at(actions.now_us, partial(self._do_next, number))
        if not waiting:
            self.ended(number)
        if number in self._zombies:
            actions.at(actions.now_us + _ZOMBIE_END_US, partial(kill, number))

    def _do_next(self, number: int) -> None:
        if waiting := self._hung.get(number):
            waiting.pop(0)()
            if not waiting:
                self.ended(number)

    def _wait(self, number: int, action: Callable[[], None]) -> None:
        self._hung[number].append(action)
        if (actions := self._resuming.get(number)) is not None:
            actions.at(actions.now_us, partial(self._do_next, number))

    def becomes_zombie(self, number: int) -> None:
        """A process that hangs is to be ended: it ends after it has continued."""
        self._zombies.add(number)

    def ended(self, number: int) -> None:
        """The process does not hang any more, or has ended."""
        self._hung.pop(number, None)
        self._resuming.pop(number, None)

    def link(self, number: int, event: LinkInput) -> None:
        if number in self._hung:
            self._wait(number, partial(self._inner.link, number, event))
        else:
            self._inner.link(number, event)

    def offer(self, process: LocalProcess, item: ToTask) -> None:
        if process.number in self._hung:
            self._wait(process.number, partial(self._inner.offer, process, item))
        else:
            self._inner.offer(process, item)

    def step(self, process: LocalProcess, token: int) -> None:
        if process.number in self._hung:
            self._wait(process.number, partial(self._inner.step, process, token))
        else:
            self._inner.step(process, token)

    def host(self, number: int, action: Callable[[], None]) -> None:
        if number in self._hung:
            self._wait(number, partial(self._inner.host, number, action))
        else:
            self._inner.host(number, action)

    # ---- the coordinator

    def stand_still(self, duration_us: int, actions: Actions) -> None:
        """Makes the coordinator hang for ``duration_us``, as if it were stopped, or its machine suspended."""
        if self._standstill is None:
            self._standstill = []
            actions.at(actions.now_us + duration_us, self._resume_coordinator)

    def _resume_coordinator(self) -> None:
        """Performs the waiting actions in order."""
        waiting, self._standstill = self._standstill or [], None
        for action in waiting:
            action()

    def coordinator_lost(self) -> None:
        """The coordinator is lost. Its waiting actions are dropped."""
        if self._standstill is not None:
            self._standstill.clear()

    def coordinator_begins(self) -> None:
        """A new coordinator begins, which does not hang."""
        self._standstill = None

    def coordinator(self, action: Callable[[], None]) -> None:
        if self._standstill is not None:
            self._standstill.append(action)
        else:
            self._inner.coordinator(action)
