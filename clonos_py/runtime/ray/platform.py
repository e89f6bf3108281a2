"""Processes as actors, for the coordinator's loop: wished for, adopted, told, watched, ended."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from clonos_py.job.events import ProcessDied
from clonos_py.model import messages
from clonos_py.model.ids import TaskId
from clonos_py.model.messages import Present, ToProcess
from clonos_py.runtime.ray.cluster import import_ray
from clonos_py.runtime.ray.crew import Member, Wish
from clonos_py.runtime.ray.placement import Placement


class RayPlatform:
    """The driver makes processes, as ``wish`` asks, and hands them over with ``join``. Until then messages wait. Any
    thread may call any method."""

    def __init__(
        self,
        wish: Callable[[Wish], None],
        dismissed: Callable[[int], None],
        tell: Callable[[ProcessDied | Present], None],
        incarnation: int,
    ) -> None:
        """``dismissed`` hears of processes that the driver need not keep any longer, ``tell`` of deaths, and of those
        that are not up yet."""
        self._ray = import_ray()
        self._wish, self._dismissed, self._tell, self._incarnation = wish, dismissed, tell, incarnation
        context = self._ray.get_runtime_context()
        self._node, self._me = context.get_node_id(), context.current_actor
        self._placement = Placement()
        self._lock = threading.RLock()
        self._tasks: dict[int, TaskId] = {}
        self._waiting: dict[int, list[ToProcess]] = {}
        self._actors: dict[int, Any] = {}
        self._watched: dict[int, Any] = {}
        self._sent: dict[int, int] = {}
        self.places: dict[int, tuple[int, str]] = {}
        """Process id and node."""

    # ---- processes come

    def start(self, number: int, task: TaskId) -> None:
        nodes = [node["NodeID"] for node in self._ray.nodes() if node["Alive"]]
        with self._lock:
            self._tasks[number], self._waiting[number] = task, []
            self._wish(Wish(number, task, self._placement.place(number, task, nodes)))

    def join(self, number: int, actor: Any) -> None:
        """The driver has made the process."""
        with self._lock:
            waiting = self._waiting.pop(number, None)
            if waiting is None:
                self._ray.kill(actor)
                return
            self._watch(number, actor)
            for message in waiting:
                self.send(number, message)

    def adopt(self, members: Mapping[int, Member]) -> None:
        """Takes the processes of a lost coordinator over. Who is dead is told of like any death, and for those that are
        not up yet the answer to the roll call is given here."""
        with self._lock:
            for number, (task, actor, up) in sorted(members.items()):
                self._tasks[number] = TaskId(*task)
                actor.adopt.remote(self._me, self._incarnation)
                self._watch(number, actor)
                if not up:
                    self._tell(Present(number))

    def _watch(self, number: int, actor: Any) -> None:
        self._actors[number], self._sent[number] = actor, 0
        watched = self._watched[number] = actor.watch.remote(self._incarnation)
        watched.future().add_done_callback(self._ended(number))

    def introduce(self, number: int, pid: int, node: str) -> None:
        with self._lock:
            if number in self._tasks:
                self.places[number] = pid, node
                self._placement.put(number, self._tasks[number], node)

    def heard(self, number: int) -> None:
        """A process has said something, so its node answers."""
        with self._lock:
            self._placement.heard(number, time.monotonic())

    # ---- messages

    def send(self, number: int, message: ToProcess) -> None:
        with self._lock:
            if actor := self._actors.get(number):
                actor.deliver.remote(self._incarnation, self._sent[number], messages.encode(message))
                self._sent[number] += 1
            elif number in self._waiting:
                self._waiting[number].append(message)

    # ---- processes go

    def kill(self, number: int) -> None:
        with self._lock:
            self._waiting.pop(number, None)
            if actor := self._actors.pop(number, None):
                self._ray.kill(actor)
            self._forget(number)

    def crash(self, number: int) -> None:
        pid, node = self.places.get(number, (0, ""))
        if node == self._node:
            os.kill(pid, signal.SIGKILL)
        elif actor := self._actors.get(number):
            actor.die.remote()

    def close(self, patience_s: float) -> None:
        watched = [self._watched[number] for number in list(self._actors)]
        if watched:
            self._ray.wait(watched, num_returns=len(watched), timeout=patience_s)
        for number in list(self._actors):
            self.kill(number)

    def _ended(self, number: int) -> Callable[[Any], None]:
        def tell(future: Any) -> None:
            problem = future.exception()
            with self._lock:
                self._actors.pop(number, None)
                self._forget(number)
            reason = str(problem).strip().split("\n")[0] if problem else "it has stopped"
            self._tell(ProcessDied(number, reason))

        return tell

    def _forget(self, number: int) -> None:
        if self._tasks.pop(number, None) is not None:
            self._placement.remove(number, time.monotonic())
            self._dismissed(number)
