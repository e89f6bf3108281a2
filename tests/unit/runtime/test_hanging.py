"""Processes that hang in the simulator: their events happen later, all in the order of arrival."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, cast

from clonos_py.runtime.sim.hanging import HangingDispatcher
from clonos_py.runtime.world.actions import Actions
from clonos_py.runtime.world.dispatcher import Dispatcher

PROCESS = 1


class Jumps:
    """Virtual time without delays."""

    is_alone = True

    def __init__(self) -> None:
        self._now_us = 0

    def now_us(self) -> int:
        return self._now_us

    def wait_until(self, time_us: int) -> int:
        self._now_us = max(self._now_us, time_us)
        return self._now_us

    def delay_us(self, kind: str, what: object = None) -> int:
        return 0

    def arrived(self) -> Sequence[Callable[[], None]]:
        return ()


class Seen:
    """A dispatcher that records the events of the process's link."""

    def __init__(self) -> None:
        self.events: list[Any] = []

    def link(self, number: int, event: Any) -> None:
        self.events.append(event)


def test_events_that_arrive_while_a_process_catches_up_come_after_those_that_waited() -> None:
    actions, seen = Actions(Jumps(), lambda: None, None), Seen()
    hanging = HangingDispatcher(cast(Dispatcher, seen))
    give = partial(hanging.link, PROCESS)
    hanging.hang([PROCESS], 10, actions, kill=lambda number: None)
    for event in ("1", "2"):
        actions.at(5, partial(give, cast(Any, event)))
    actions.at(10, partial(give, cast(Any, "3")))  # in the microsecond in which it continues, before the others
    actions.at(11, partial(give, cast(Any, "4")))
    actions.at(12, actions.stop)
    actions.run()
    assert seen.events == ["1", "2", "3", "4"]
    assert not hanging.hung()


def test_a_process_that_has_ended_handles_no_waiting_event() -> None:
    actions, seen = Actions(Jumps(), lambda: None, None), Seen()
    hanging = HangingDispatcher(cast(Dispatcher, seen))
    hanging.hang([PROCESS], 10, actions, kill=lambda number: None)
    actions.at(5, partial(hanging.link, PROCESS, cast(Any, "1")))
    actions.at(6, partial(hanging.ended, PROCESS))
    actions.at(12, actions.stop)
    actions.run()
    assert seen.events == []
