"""Heartbeats: who is asked for a sign of life, and who has kept silent for too long (D9)."""

from __future__ import annotations

from clonos_py.job.desk import Desk
from clonos_py.job.fleet import Process
from clonos_py.model.ids import TaskId
from clonos_py.model.messages import Ping
from clonos_py.model.times import MAX_TIME


class Heartbeat:
    """Pings every reachable process at the policy's pace. Whatever a process says counts as a sign of life."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._number = 0
        self.next_us = MAX_TIME
        """When ``beat`` is due."""

    def start(self) -> None:
        self.next_us = self._desk.now_us + self._desk.policy.heartbeat_us

    def beat(self) -> list[Process]:
        """Pings, if it is time. Those who have been silent for the heartbeat timeout."""
        desk = self._desk
        if desk.now_us < self.next_us:
            return []
        self.start()
        self._number += 1
        silent = []
        for process in desk.fleet.processes.values():
            if process.address is None:
                continue
            if desk.now_us - process.heard_us > desk.policy.heartbeat_timeout_us:
                silent.append(process)
            else:
                desk.send(process, Ping(self._number))
        return silent

    def suspect(self, task: TaskId) -> None:
        """A connection to ``task`` broke: its process is asked, and not replaced for that (D9)."""
        owner = self._desk.fleet.owner(task)
        if owner is not None:
            self._desk.send(owner, Ping(self._number))
