"""Runs processes as actors for the coordinator's loop: requests, adopts, watches and ends them.

An actor is the host process of one process, or of several standbys. Messages are addressed by process number. Watching
and killing apply to the host process.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from clonos_py.job.events import EndedByFunction, NoRoom, ProcessDied, StartProcess
from clonos_py.model import messages
from clonos_py.model.errors import UserCodeError
from clonos_py.model.ids import TaskId
from clonos_py.model.messages import Promote, StatusReport, Stop, ToProcess
from clonos_py.runtime import crash_notes
from clonos_py.runtime.ray.actor_registry import ProcessRequest, RegisteredProcess
from clonos_py.runtime.ray.cluster import NodeResources, import_ray, node_ids, node_resources
from clonos_py.runtime.ray.death_watch import DeathWatch
from clonos_py.runtime.ray.neighbours import Neighbours, NeighbourWatch
from clonos_py.runtime.ray.opened_actors import on_node
from clonos_py.runtime.ray.process_handle import ProcessHandle
from clonos_py.runtime.ray.process_table import cpu_us
from clonos_py.runtime.ray.remote_cpu import RemoteCpuTimes
from clonos_py.runtime.ray.room import lacking_text
from clonos_py.runtime.ray.room_waits import RoomWaits
from clonos_py.runtime.roster import NO_PLACE, Roster

_AGAIN_S = 1.0
"""The time between attempts to look up the nodes."""
_FREED_S = 1.0
"""How long Ray may take until it knows of a death, and what the process had is free."""
_DIED = "its process died"


class RayPlatform:
    """The ``Platform`` on Ray. The driver creates processes as ``request_process`` requests, and passes them on with
    ``join``; until then messages to them wait. Any thread may call any method."""

    def __init__(
        self,
        request_process: Callable[[ProcessRequest], None],
        dismissed: Callable[[int], None],
        notify: Callable[[EndedByFunction | NoRoom | ProcessDied | StatusReport], None],
        term: int,
        standbys_per_process: int,
        scratch: Path,
    ) -> None:
        """``dismissed`` takes the processes that the driver need not keep any longer. ``notify`` takes deaths, lack of
        room, and status reports for processes that are not up yet. ``scratch``: the folder with crash notes of
        processes."""
        self._ray = import_ray()
        self._request_process, self._dismissed, self._notify, self._term = request_process, dismissed, notify, term
        self._scratch = scratch
        context = self._ray.get_runtime_context()
        self._node, self._me = context.get_node_id(), context.current_actor
        self._roster = Roster(standbys_per_process, self._release)
        self._lock = threading.RLock()
        self._death_executor = ThreadPoolExecutor(1, "deaths")
        self._start_executor = ThreadPoolExecutor(1, "starts")
        self._closed = threading.Event()
        self._waiting: dict[int, list[ToProcess]] = {}
        """By process: the messages that wait until the driver has created it."""
        self._room_waits = RoomWaits(self._begin_late)
        self._sent: dict[int, int] = {}
        self._actors: dict[int, Any] = {}
        self._watched: dict[int, Any] = {}
        """A call that ends with the host process. This and ``_actors`` are by host process."""
        self.places: dict[int, tuple[int, str]] = {}
        """The process id and the node of each process."""
        self._handles: dict[int, ProcessHandle] = {}
        """Handles of the processes on this node."""
        self._death_watch = DeathWatch(self.on_died)
        self._neighbours = Neighbours()
        self._threads: dict[int, int] = {}
        """By process on another node: see ``ProcessHandle.of``."""
        self._unknown_to_ray: set[int] = set()
        """Host processes that have died, which Ray does not know yet."""
        self._known_to_ray = threading.Condition(self._lock)
        self._crashed: set[int] = set()
        """Processes that an ordered failure has killed, which may not have ended yet."""
        self._remote_cpu = RemoteCpuTimes()

    # ---- processes come

    def start(self, request: StartProcess) -> None:
        number, reuse = request.process, request.reuse
        with self._lock:
            self._waiting[number] = []
        if reuse is None:
            self._start_executor.submit(self._start_on_a_node, request)
        elif not self._begin(request, {}):
            self.kill(reuse)
            self._notify(ProcessDied(number, NO_PLACE))

    def _start_on_a_node(self, request: StartProcess) -> None:
        """Looks up the nodes, in a thread of its own: while Ray's head is gone nobody answers, and the job goes on."""
        if request.demand:
            self._await_that_ray_knows()
        while not self._closed.is_set():
            try:
                nodes = node_resources() if request.demand else dict.fromkeys(node_ids())
            except self._ray.exceptions.RayError:
                self._closed.wait(_AGAIN_S)
                continue
            if not self._begin(request, nodes):
                lacking = lacking_text(request.demand, filter(None, nodes.values()))
                self._notify(NoRoom(request.process, lacking))
                self._room_waits.add(request)
            return

    def _await_that_ray_knows(self) -> None:
        """Until Ray knows of a death, what the process had is not free."""
        with self._known_to_ray:
            if not self._known_to_ray.wait_for(lambda: not self._unknown_to_ray, _FREED_S):
                self._unknown_to_ray.clear()

    def _begin(self, request: StartProcess, nodes: Mapping[str, NodeResources | None]) -> bool:
        """Requests the process from the driver, if it is still wanted. False if it has no place. ``nodes``: with what
        they have, if it demands anything."""
        number = request.process
        free = {node: found.free for node, found in nodes.items() if found is not None}
        with self._lock:
            if number not in self._waiting:
                return True
            seat = self._roster.place(request, list(nodes), free)
            if seat is None:
                if request.reuse is not None:
                    self._waiting.pop(number)
                return False
            self._request_process(
                ProcessRequest(number, request.task, seat.node, seat.host_process, request.reuse, request.demand)
            )
            if request.reuse is not None:  # after the request, so that the host process never seems empty
                self._roster.drop(request.reuse)
            return True

    def _begin_late(self, request: StartProcess) -> bool:
        """Tries again to begin a process that had no room."""
        try:
            begun = self._begin(request, node_resources())
        except self._ray.exceptions.RayError:  # its head is gone
            return False
        if begun:
            self._notify(NoRoom(request.process, ""))
        return begun

    def join(self, number: int, actor: Any) -> None:
        """The driver has created the process."""
        with self._lock:
            waiting = self._waiting.pop(number, None)
            if waiting is not None:
                host_process = self._roster.host_process(number)
                assert host_process is not None
                self._sent[number] = 0
                self._watch(host_process, actor)
                for message in waiting:
                    self.send(number, message)
                self._roster.created(number)
        if waiting is None:
            self._ray.kill(actor)

    def adopt(self, processes: Mapping[int, RegisteredProcess]) -> None:
        """Takes over the processes of a lost coordinator. Those that have died are reported like any death. For those
        whose host process is not up yet, this method answers the status request."""
        with self._lock:
            host_processes = {process.host_process: process.actor for process in processes.values()}
            for number, process in processes.items():
                self._roster.adopt(number, TaskId(*process.task), process.host_process)
                self._sent[number] = 0
            for host_process, actor in host_processes.items():
                actor.adopt.remote(self._me, self._term, self._roster.in_host_process(host_process))
                self._watch(host_process, actor)
            for number, process in sorted(processes.items()):
                if not process.up:
                    self._notify(StatusReport(number))

    def _watch(self, host_process: int, actor: Any) -> None:
        if host_process not in self._actors:
            self._actors[host_process] = actor
            watched = self._watched[host_process] = actor.watch.remote(self._term)
            watched.future().add_done_callback(self._ended(host_process))

    def introduce(self, number: int, pid: int, thread: int, node: str) -> None:
        """``thread``: see ``ProcessHandle.of``."""
        with self._lock:
            if self._roster.introduce(number, node):
                self.places[number] = pid, node
                host_process = self._roster.host_process(number)
                if node != self._node and host_process is not None:
                    self._threads[number] = thread
                    self._have_watched(self._neighbours.add(number, node, host_process))
                elif number not in self._handles and (handle := ProcessHandle.of(pid, thread)) is not None:
                    self._handles[number] = handle
                    self._death_watch.add(number, handle)

    def _have_watched(self, watches: list[NeighbourWatch]) -> None:
        """Asks processes on other nodes to report the deaths of their neighbours."""
        for watcher, watched in watches:
            if (actor := self._actor(watcher)) is not None:
                actor.watch_neighbour.remote(watched, self.places[watched][0], self._threads[watched])

    def seen(self, number: int) -> None:
        """A process has sent a message, so its node is not suspected."""
        with self._lock:
            self._roster.seen(number, time.monotonic())
            if number in self.places and (actor := self._actor(number)) is not None:
                self._remote_cpu.received(number, self.places[number][1], actor)

    # ---- messages

    def send(self, number: int, message: ToProcess) -> None:
        with self._lock:
            if number in self._waiting:
                self._waiting[number].append(message)
            elif (actor := self._actor(number)) is not None:
                actor.deliver.remote(self._term, number, self._sent[number], messages.encode(message))
                self._sent[number] += 1
            if isinstance(message, Promote):
                self._roster.promoted(number)

    # ---- processes go

    def dismiss(self, number: int) -> None:
        with self._lock:
            self.send(number, Stop("its process has become another task's"))
            if self._roster.host_process(number) is None:
                self._waiting.pop(number, None)
            self._roster.dismiss(number)

    def already_left(self, number: int) -> None:
        """A process had left before this coordinator took it over."""
        with self._lock:
            if number in self._roster:
                self._roster.drop(number)
                self._notify(ProcessDied(number, "its process had left"))

    def kill(self, number: int) -> None:
        with self._lock:
            host_process = self._roster.host_process(number)
            if host_process is None:
                self._waiting.pop(number, None)
                return
            actor = self._actors.pop(host_process, None)
            others = [other for other in self._end(host_process) if other != number]
        if actor is not None:
            self._ray.kill(actor)
        for other in others:
            self._notify(ProcessDied(other, f"it shared the process of number {number}, which was ended"))

    def crash(self, number: int) -> bool:
        with self._lock:
            handle = self._handles.get(number)
            actor = self._actor(number)
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
        self._room_waits.close()
        self._death_watch.close()
        self._closed.set()
        watched = [self._watched[host] for host in list(self._actors) if self._roster.belongs_to_a_task(host)]
        if watched:
            self._ray.wait(watched, num_returns=len(watched), timeout=patience_s)
        for number in self._roster:
            self.kill(number)

    def _ended(self, host_process: int) -> Callable[[Any], None]:
        """A callback for the end of a host process. A thread of Ray calls it, which must not wait for a thread that is
        calling Ray: so another thread does the work."""

        def submit_end(future: Any) -> None:
            self._death_executor.submit(self._on_end_known_to_ray, host_process, future.exception())

        return submit_end

    def on_died(self, number: int) -> None:
        """A process has died, says one on its node."""
        with self._lock:
            host_process = self._roster.host_process(number)
            if host_process is None:
                return
            self._unknown_to_ray.add(host_process)
        self._death_executor.submit(self._on_host_process_ended, host_process, _DIED, died=True)

    def _on_end_known_to_ray(self, host_process: int, problem: BaseException | None) -> None:
        with self._known_to_ray:
            self._unknown_to_ray.discard(host_process)
            self._known_to_ray.notify_all()
        self._on_host_process_ended(host_process, _cause(problem), died=problem is not None)

    def _on_host_process_ended(self, host_process: int, reason: str, died: bool) -> None:
        with self._lock:
            self._actors.pop(host_process, None)
            numbers = self._roster.in_host_process(host_process)
            place = next((self.places[number] for number in numbers if number in self.places), None)
            dead = self._end(host_process)
        if died and place is not None and dead:
            self._read_crash_notes(*place)
        for number in dead:
            self._notify(ProcessDied(number, reason))

    def _read_crash_notes(self, pid: int, node: str) -> None:
        """Reports what the crash notes of a process say. Those on another machine arrive later; the tasks are replaced
        meanwhile."""
        if node == self._node or (self._scratch / f"{pid}.note").exists():
            self._report_crash(crash_notes.read(self._scratch, pid))
            return
        read = self._ray.remote(crash_notes.read).options(scheduling_strategy=on_node(node), num_cpus=0, max_retries=0)
        read.remote(self._scratch, pid).future().add_done_callback(self._read_elsewhere)

    def _read_elsewhere(self, future: Any) -> None:
        if future.exception() is None:  # else the node is gone, too
            self._death_executor.submit(self._report_crash, future.result())

    def _report_crash(self, error: UserCodeError | None) -> None:
        if error is not None:
            self._notify(EndedByFunction(str(error), error.traceback))

    def _actor(self, number: int) -> Any | None:
        """The actor of a process; None if the driver has not created it, or it is gone."""
        host_process = self._roster.host_process(number)
        return None if host_process is None else self._actors.get(host_process)

    def _end(self, host_process: int) -> list[int]:
        """Drops a host process that has ended. Returns its processes that belonged to the job."""
        return self._roster.end_host_process(host_process, time.monotonic())

    def _release(self, number: int) -> None:
        """Drops what is kept of a process that has left."""
        self._waiting.pop(number, None)
        if (handle := self._handles.pop(number, None)) is not None:
            self._death_watch.remove(handle)
            handle.close()
        self.places.pop(number, None)
        self._threads.pop(number, None)
        self._have_watched(self._neighbours.remove(number))
        self._crashed.discard(number)
        self._dismissed(number)


def _cause(problem: BaseException | None) -> str:
    """Why a process is gone, in short. Ray's own text begins with the same sentence for every death of an actor."""
    if problem is None:
        return "its process has ended"
    text = str(problem).strip()
    if not isinstance(problem, import_ray().exceptions.RayActorError):
        return text.split("\n")[0]
    if "node has died" in text:
        return "its node was lost"
    return "the node is low on memory, Ray ended its process" if "low on memory" in text else _DIED
