"""Sends a process's messages to the coordinator: those of its link, and its counters with every heartbeat."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from clonos_py.model.counters import ProcessCounters
from clonos_py.model.messages import Drained, Pong, ToCoordinator
from clonos_py.process.contract import Observed
from clonos_py.runtime.counters import Counters
from clonos_py.runtime.ray.process_table import used_here


class Reporting:
    """Counts what the task does and adds the counters to messages. Its methods belong to the environment of the
    link, and are called by the link thread."""

    def __init__(
        self,
        send_to_coordinator: Callable[[ToCoordinator], None],
        link_counters: Callable[[], ProcessCounters],
        with_times: Callable[[ProcessCounters], ProcessCounters],
        now_us: Callable[[], int],
    ) -> None:
        """``send_to_coordinator`` sends a message. ``with_times`` adds how the task has spent its time. ``now_us``: the
        run's clock."""
        self._send_to_coordinator, self._link_counters, self._now_us = send_to_coordinator, link_counters, now_us
        self._with_times = with_times
        self._counters = Counters()

    def observe(self, observed: Observed) -> None:
        self._counters.observe(observed, self._now_us())

    def send_to_coordinator(self, message: ToCoordinator) -> None:
        """Sends a message. Adds the counters to every answer to a ping, and sends them again before ``Drained``."""
        if isinstance(message, Pong | Drained):
            number = message.number if isinstance(message, Pong) else 0
            counters = self._with_times(self._counters.added_to(self._link_counters()))
            used = used_here()
            counters = msgspec.structs.replace(counters, cpu_us=used.cpu_us, resident_bytes=used.resident_bytes)
            self._send_to_coordinator(Pong(message.process, number, counters))
        if not isinstance(message, Pong):
            self._send_to_coordinator(message)
