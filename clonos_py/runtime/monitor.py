"""Work of a world's driver between actions: ordered failures (``--kill``), and events and counters for a listener."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial

from clonos_py.model.coordinator_events import CoordinatorEvent, Deployed, FunctionHangs
from clonos_py.model.ids import TaskId
from clonos_py.process.contract import Observed
from clonos_py.runtime.counters import Counters
from clonos_py.runtime.event_publisher import CoordinatorNews, EventPublisher
from clonos_py.runtime.interrupts import Interrupts
from clonos_py.runtime.planned_kills import PlannedKills
from clonos_py.runtime.world.world import World


class Monitor:
    """Called between the actions of a world: injects ordered failures, and publishes events and counters."""

    def __init__(
        self,
        publisher: EventPublisher,
        ordered_kills: list[tuple[int, TaskId]],
        now_us: Callable[[], int],
        interrupted: Interrupts,
        publish_us: int = 50_000,
    ) -> None:
        """``ordered_kills``: failures as (microseconds after deployment, task). ``now_us``: the clock of the world.
        News are published every ``publish_us``."""
        self._publisher, self._now_us, self._interrupted = publisher, now_us, interrupted
        self._publish_us = publish_us
        self._kills = PlannedKills(ordered_kills)
        self._news = CoordinatorNews()
        self._publishing = threading.Lock()
        self._counters: dict[TaskId, Counters] = {}
        self._numbers: dict[TaskId, int] = {}
        self._publish_at_us = 0

    def report(self, time_us: int, event: CoordinatorEvent) -> None:
        if isinstance(event, Deployed):
            self._kills.deployed(time_us)
        self._news.events.append((time_us, event))

    def observe(self, time_us: int, task: TaskId, observed: Observed) -> None:
        self._counters.setdefault(task, Counters()).observe(observed, time_us)

    def __call__(self, world: World) -> None:
        self._interrupted.check()
        self._kills.carry_out(world.now_us, partial(self._crash, world))
        if world.now_us >= self._publish_at_us:
            self._publish_at_us = world.now_us + self._publish_us
            self.publish(world)

    def _crash(self, world: World, task: TaskId) -> bool:
        """Kills the task's process. Returns whether there was one."""
        owners = [p.number for p in world.processes.values() if p.task == task and p.link.attempt is not None]
        for number in owners:
            self._news.crashes.append((world.now_us, task))
            world.kill(number)
        return bool(owners)

    def publish(self, world: World) -> None:
        """Publishes the events since the last call and the current counters."""
        for process in world.processes.values():
            if process.link.attempt is not None:
                counters = self._counters.setdefault(process.task, Counters())
                number = self._numbers.setdefault(process.task, len(self._numbers))
                self._news.counters[number] = (process.task, counters.added_to(process.link.counters))
        news, self._news = self._news, CoordinatorNews()
        self._pass_on(news)

    def hangs(self, what: str) -> None:
        """Publishes that a function hangs. It blocks the thread of the world, so another thread calls this."""
        self._pass_on(CoordinatorNews(events=[(self._now_us(), FunctionHangs(what))]))

    def _pass_on(self, news: CoordinatorNews) -> None:
        with self._publishing:
            self._publisher.publish(news, self._now_us())
