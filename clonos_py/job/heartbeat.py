"""Heartbeats: pings processes, and finds those that have been silent for too long (D9).

The limit follows how long answers take. On an overloaded machine, or across a slow network, every answer is late. A
process that is as late as all others has not failed; its replacement would be just as late. So the heartbeat timeout is
only the least limit. The limit grows with the slowest recent answer and with the silence of the other processes, up to
``_LIMIT_MAX`` times the timeout.
"""

from __future__ import annotations

from clonos_py.job.context import CoordinatorContext
from clonos_py.job.events import Instructions, Send
from clonos_py.job.fleet import TaskProcess
from clonos_py.model.messages import Ping, Pong
from clonos_py.model.times import MAX_TIME

_LIMIT_MAX = 8
"""A process that is silent for this many heartbeat timeouts has failed, however late the others are."""
_MARGIN = 4
"""A process may be this many times as late as the others."""
_DECAY = 50
"""With each heartbeat the slowest answer decays by one part in this many."""
_PROMPT_SHARE = 4
"""If one process in this many answers in time, then the lateness of the others is their own."""


class Heartbeat:
    """Pings every reachable process at the policy's interval. Every message of a process counts as a sign of life. With
    ``heartbeat_us`` 0 there are no pings: the platform reports every failure."""

    def __init__(self, context: CoordinatorContext) -> None:
        self._context = context
        self._number = 0
        self._asked_us: dict[int, int] = {}
        """By number of the ping: when it was sent, while an answer may still count."""
        self._slowest_us = 0
        self.next_us = MAX_TIME
        """When ``beat`` must be called next."""

    @property
    def unanswered(self) -> int:
        """The number of pings that may still be answered."""
        return len(self._asked_us)

    def start(self) -> None:
        heartbeat_us = self._context.policy.heartbeat_us
        self.next_us = self._context.now_us + heartbeat_us if heartbeat_us else MAX_TIME

    def beat(self) -> tuple[list[TaskProcess], Instructions]:
        """If it is time: the processes that have been silent for too long, and pings to all others."""
        context = self._context
        if context.now_us < self.next_us:
            return [], []
        self.start()
        self._slowest_us -= self._slowest_us // _DECAY
        reachable = [process for process in context.fleet.processes.values() if process.address is not None]
        limit_us = self._limit_us(reachable)
        number = self._new_ping()
        silent = [process for process in reachable if context.now_us - process.last_seen_us > limit_us]
        return silent, [Send(process.number, Ping(number)) for process in reachable if process not in silent]

    def _limit_us(self, processes: list[TaskProcess]) -> int:
        timeout_us = self._context.policy.heartbeat_timeout_us
        silences = sorted(self._context.now_us - process.last_seen_us for process in processes)
        prompt_us = silences[len(silences) // _PROMPT_SHARE] if len(silences) > 1 else 0
        return min(max(timeout_us, _MARGIN * max(prompt_us, self._slowest_us)), _LIMIT_MAX * timeout_us)

    def _new_ping(self) -> int:
        """Registers a new ping and returns its number."""
        context = self._context
        oldest_us = context.now_us - _LIMIT_MAX * context.policy.heartbeat_timeout_us
        self._asked_us = {number: at_us for number, at_us in self._asked_us.items() if at_us > oldest_us}
        self._number += 1
        self._asked_us[self._number] = context.now_us
        return self._number

    def answered(self, message: Pong) -> None:
        """A process has answered a ping: updates the slowest answer."""
        asked_us = self._asked_us.get(message.number)
        if asked_us is not None:
            self._slowest_us = max(self._slowest_us, self._context.now_us - asked_us)

    def ping(self, process: TaskProcess) -> Send:
        """Pings a suspected process out of turn."""
        return Send(process.number, Ping(self._number))
