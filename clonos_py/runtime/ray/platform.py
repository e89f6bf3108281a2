"""Processes as actors, for the coordinator's loop: wished for, adopted, told, watched, ended.

An actor is the home of one process, or of several that stand by. Messages go to a process by its number; watched, and
ended for good, is the home.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from clonos_py.job.events import EndedByFunction, ProcessDied
from clonos_py.model import messages
from clonos_py.model.errors import UserCodeError
from clonos_py.model.ids import TaskId
from clonos_py.model.messages import Present, Promote, Stop, ToProcess
from clonos_py.runtime import last_words
from clonos_py.runtime.placement import Placement, Seat
from clonos_py.runtime.ray.cluster import import_ray
from clonos_py.runtime.ray.crew import Member, Wish, on_node
from clonos_py.runtime.ray.process_handle import ProcessHandle
from clonos_py.runtime.ray.process_table import cpu_us
from clonos_py.runtime.ray.remote_cpu import RemoteCpuTimes


class RayPlatform:
    """The driver makes processes, as ``wish`` asks, and hands them over with ``join``. Until then messages wait. Any
    thread may call any method."""

    def __init__(
        self,
        wish: Callable[[Wish], None],
        dismissed: Callable[[int], None],
        tell: Callable[[EndedByFunction | ProcessDied | Present], None],
        incarnation: int,
        standbys_per_process: int,
        scratch: Path,
    ) -> None:
        """``dismissed`` hears of processes that the driver need not keep any longer, ``tell`` of deaths, and of those
        that are not up yet. ``scratch``: the folder in which processes leave what ended them."""
        self._ray = import_ray()
        self._wish, self._dismissed, self._tell, self._incarnation = wish, dismissed, tell, incarnation
        self._scratch = scratch
        context = self._ray.get_runtime_context()
        self._node, self._me = context.get_node_id(), context.current_actor
        self._placement = Placement(standbys_per_process)
        self._lock = threading.RLock()
        self._undertaker = ThreadPoolExecutor(1, "deaths")
        self._tasks: dict[int, TaskId] = {}
        self._homes: dict[int, int] = {}
        self._waiting: dict[int, list[ToProcess]] = {}
        self._sent: dict[int, int] = {}
        self._actors: dict[int, Any] = {}
        self._watched: dict[int, Any] = {}
        """These two by home."""
        self.places: dict[int, tuple[int, str]] = {}
        """Process id and node."""
        self._handles: dict[int, ProcessHandle] = {}
        """Of those on this node."""
        self._crashed: set[int] = set()
        """Killed on order, and perhaps not gone yet."""
        self._remote_cpu = RemoteCpuTimes()

    # ---- processes come

    def start(self, number: int, task: TaskId, shares: bool) -> None:
        nodes = [node["NodeID"] for node in self._ray.nodes() if node["Alive"]]
        with self._lock:
            seat = self._placement.place(number, task, nodes, shares)
            self._tasks[number], self._homes[number], self._waiting[number] = task, seat.home, []
            self._wish(Wish(number, task, seat.node, seat.home))

    def join(self, number: int, actor: Any) -> None:
        """The driver has made the process."""
        with self._lock:
            waiting = self._waiting.pop(number, None)
            if waiting is not None:
                self._sent[number] = 0
                self._watch(self._homes[number], actor)
                for message in waiting:
                    self.send(number, message)
                if number not in self._tasks:
                    self._release(number)
        if waiting is None:
            self._ray.kill(actor)

    def adopt(self, members: Mapping[int, Member]) -> None:
        """Takes the processes of a lost coordinator over. Who is dead is told of like any death, and for those whose
        home is not up yet the answer to the roll call is given here."""
        with self._lock:
            homes = {member.home: member.actor for member in members.values()}
            for number, member in members.items():
                self._tasks[number], self._homes[number], self._sent[number] = TaskId(*member.task), member.home, 0
            for home, actor in homes.items():
                actor.adopt.remote(self._me, self._incarnation, self._at_home(home))
                self._watch(home, actor)
            for number, member in sorted(members.items()):
                if not member.up:
                    self._tell(Present(number))

    def _watch(self, home: int, actor: Any) -> None:
        if home not in self._actors:
            self._actors[home] = actor
            watched = self._watched[home] = actor.watch.remote(self._incarnation)
            watched.future().add_done_callback(self._ended(home))

    def introduce(self, number: int, pid: int, node: str) -> None:
        with self._lock:
            if number in self._tasks:
                self.places[number] = pid, node
                if node == self._node and (handle := ProcessHandle.of(pid)) is not None:
                    self._handles[number] = handle
                self._placement.put(number, self._tasks[number], Seat(node, self._homes[number]))

    def heard(self, number: int) -> None:
        """A process has said something, so its node answers."""
        with self._lock:
            self._placement.heard(number, time.monotonic())
            if number in self.places and (actor := self._actors.get(self._homes[number])) is not None:
                self._remote_cpu.received(number, self.places[number][1], actor)

    # ---- messages

    def send(self, number: int, message: ToProcess) -> None:
        with self._lock:
            if number in self._waiting:
                self._waiting[number].append(message)
            elif actor := self._actors.get(self._homes.get(number, -1)):
                actor.deliver.remote(self._incarnation, number, self._sent[number], messages.encode(message))
                self._sent[number] += 1
            if isinstance(message, Promote):
                self._placement.promoted(number)

    # ---- processes go

    def dismiss(self, number: int) -> None:
        with self._lock:
            self.send(number, Stop("its process has become another task's"))
            self._placement.leave(number)
            if self._tasks.pop(number, None) is not None and number not in self._waiting:
                self._release(number)

    def gone(self, number: int) -> None:
        """A process had left before it was taken over."""
        with self._lock:
            if number in self._tasks:
                del self._tasks[number]
                self._placement.leave(number)
                self._release(number)
                self._tell(ProcessDied(number, "it had left"))

    def kill(self, number: int) -> None:
        with self._lock:
            home = self._homes.get(number)
            if home is None:
                return
            actor = self._actors.pop(home, None)
            others = [other for other in self._forget(home) if other != number]
        if actor is not None:
            self._ray.kill(actor)
        for other in others:
            self._tell(ProcessDied(other, f"it shared the process of number {number}, which was ended"))

    def crash(self, number: int) -> bool:
        with self._lock:
            handle = self._handles.get(number)
            actor = self._actors.get(self._homes.get(number, -1))
            if number in self._crashed or (handle is None and actor is None):
                return False
            self._crashed.add(number)
        if handle is not None:
            return handle.kill()
        if actor is not None:
            actor.die.remote()
        return True

    def cpu_us(self, number: int) -> int | None:
        with self._lock:
            if number in self._handles:
                return cpu_us(self.places[number][0])
            return self._remote_cpu.cpu_us(number, *self.places[number]) if number in self.places else None

    def close(self, patience_s: float) -> None:
        watched = [self._watched[home] for home in list(self._actors)]
        if watched:
            self._ray.wait(watched, num_returns=len(watched), timeout=patience_s)
        for number in list(self._homes):
            self.kill(number)

    def _ended(self, home: int) -> Callable[[Any], None]:
        """Ray's own thread calls it, which must not wait for whoever is just telling Ray something."""

        def tell(future: Any) -> None:
            self._undertaker.submit(self._bury, home, future.exception())

        return tell

    def _bury(self, home: int, problem: BaseException | None) -> None:
        with self._lock:
            self._actors.pop(home, None)
            place = next((self.places[number] for number in self._at_home(home) if number in self.places), None)
            dead = self._forget(home)
        if problem is not None and place is not None and dead:
            self._hear_last_words(*place)
        reason = str(problem).strip().split("\n")[0] if problem else "it has stopped"
        for number in dead:
            self._tell(ProcessDied(number, reason))

    def _hear_last_words(self, pid: int, node: str) -> None:
        """Of a process on another machine they come later: its tasks are replaced meanwhile."""
        if node == self._node or (self._scratch / f"{pid}.note").exists():
            self._tell_last_words(last_words.read(self._scratch, pid))
            return
        read = self._ray.remote(last_words.read).options(scheduling_strategy=on_node(node), num_cpus=0, max_retries=0)
        read.remote(self._scratch, pid).future().add_done_callback(self._read_elsewhere)

    def _read_elsewhere(self, future: Any) -> None:
        if future.exception() is None:  # else the node has gone, too
            self._undertaker.submit(self._tell_last_words, future.result())

    def _tell_last_words(self, error: UserCodeError | None) -> None:
        if error is not None:
            self._tell(EndedByFunction(str(error), error.traceback))

    def _at_home(self, home: int) -> list[int]:
        return sorted(number for number, where in self._homes.items() if where == home)

    def _forget(self, home: int) -> list[int]:
        """A home is gone. Who was there, besides those that had been dismissed."""
        dead = []
        for number in self._at_home(home):
            self._placement.remove(number, time.monotonic())
            self._waiting.pop(number, None)
            if self._tasks.pop(number, None) is not None:
                dead.append(number)
            self._release(number)
        return dead

    def _release(self, number: int) -> None:
        """Nobody need know where the process was."""
        del self._homes[number]
        if (handle := self._handles.pop(number, None)) is not None:
            handle.close()
        self.places.pop(number, None)
        self._crashed.discard(number)
        self._dismissed(number)
