"""Starts the coordinator and the processes of a run while another one goes on that it will follow
(``job/preparation.py``).

Until that one has stopped, the driver is the coordinator of these processes. Each has the state of the newest
checkpoint by then, so that it loads no more than what has changed since.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any

from clonos_py.job.completed import CompletedCheckpoint
from clonos_py.job.events import ProcessDied, StartProcess
from clonos_py.job.preparation import Preparation
from clonos_py.model import messages
from clonos_py.model.errors import ClusterError, one_line
from clonos_py.model.messages import ToCoordinator, ToProcess
from clonos_py.model.plan import PhysicalPlan
from clonos_py.plan.pickling import pack
from clonos_py.runtime.executors.preparation import PreparationExecutor
from clonos_py.runtime.placement import Placement
from clonos_py.runtime.ray.actor_registry import ActorRegistry, ProcessRequest
from clonos_py.runtime.ray.actors import JobSpec
from clonos_py.runtime.ray.cluster import JobName, import_ray, node_ids
from clonos_py.runtime.ray.driver import StartedAhead, start_coordinator
from clonos_py.runtime.ray.names import is_free_in
from clonos_py.runtime.ray.ordering import InOrder
from clonos_py.runtime.ray.run import PREPARING_TERM, PreparedRun

_LOOK_S = 0.1
"""The interval of looks for processes that have died, and for the end of the run before."""


class RunPreparer:
    """Prepares one run. ``deliver`` may be called by any thread, everything else by one."""

    def __init__(self, plan: PhysicalPlan, spec: JobSpec, actors: ActorRegistry, home: str, driver: Any) -> None:
        """``home``: the namespace, in Ray, of its coordinators. ``driver``: the actor to which processes send messages;
        it passes them to ``deliver``."""
        self._ray = import_ray()
        self._spec, self._actors, self._home, self._driver = spec, actors, home, driver
        self._name = JobName(plan.job, spec.cluster.namespace)
        self._start_timeout_s = spec.policy.start_timeout_us / 1e6
        self._preparation, self._placement, self._nodes = Preparation(plan), Placement(), node_ids()
        self._executor = PreparationExecutor(self._preparation, self)
        self._undemanding = plan.undemanding
        self._inbox: SimpleQueue[ToCoordinator | ProcessDied] = SimpleQueue()
        self._lock = threading.Lock()
        self._in_order: dict[int, InOrder[ToCoordinator]] = {}
        self._hosts: dict[int, Any] = {}
        """The actor of each process."""
        self._watched: dict[Any, int] = {}
        """By call that ends with the process."""
        self._sent: dict[int, int] = {}

    def deliver(self, number: int, sequence: int, message: bytes) -> None:
        """Takes a message of a process. ``sequence``: its number among those of the process, from 0."""
        with self._lock:
            in_order = self._in_order.setdefault(number, InOrder(self._inbox.put))
        in_order.take(sequence, messages.decode_to_coordinator(message))

    def run(self, newest: Callable[[], CompletedCheckpoint | None], goes_on: Callable[[], str]) -> PreparedRun:
        """Returns once everything has started and holds the newest state. ``newest``: what can be loaded now.
        ``goes_on``: why the run before does not go on; empty if it does. Raises ClusterError."""
        coordinator = None
        try:
            if not is_free_in(self._home, self._name.job):
                raise ClusterError(f"an earlier coordinator of {self._name.job!r} does not end: see `ray list actors`")
            coordinator = start_coordinator(self._name, self._home, pack(self._spec), self._spec.cluster)
            self._start_processes(coordinator)
            if (ahead := newest()) is not None:
                self._executor.load(ahead)
            self._await(goes_on)
            if (later := newest()) is not None and later.number > self._preparation.checkpoint:
                self._executor.load(later)
                self._await(goes_on)
            prepared = StartedAhead(coordinator, self._preparation.up)
            return PreparedRun(self._spec, self._actors, prepared)
        except BaseException:
            self._actors.close()
            if coordinator is not None:
                self._ray.kill(coordinator)
            raise

    def _start_processes(self, coordinator: Any) -> None:
        self._actors.opened.open_ahead(self._undemanding, self._nodes)
        until_s = time.monotonic() + self._start_timeout_s
        try:
            started = self._actors.opened.await_ahead(self._start_timeout_s)
            coming = [coordinator.__ray_ready__.remote()]
            started = started and bool(self._ray.wait(coming, timeout=max(0.0, until_s - time.monotonic()))[0])
            self._ray.get(coming if started else [])
        except self._ray.exceptions.RayActorError as error:
            raise ClusterError(f"a process for the new parallelism has died: {one_line(error)}") from error
        if not started:
            raise ClusterError(
                "the processes for the new parallelism do not start: does the cluster have room for them?"
            )
        self._executor.start()

    def _await(self, goes_on: Callable[[], str]) -> None:
        """Waits until all processes are settled. Raises ClusterError if they do not get there."""
        until_s = time.monotonic() + self._start_timeout_s
        preparation = self._preparation
        while not preparation.settled:
            try:
                self._executor.handle(self._inbox.get(timeout=_LOOK_S))
            except Empty:
                self._look_for_deaths()
            if preparation.problem is not None:
                raise ClusterError(preparation.problem)
            if ended := goes_on():
                raise ClusterError(ended)
            if not preparation.started and time.monotonic() > until_s:
                raise ClusterError("the processes for the new parallelism do not start")

    def _look_for_deaths(self) -> None:
        ended, _ = self._ray.wait(list(self._watched), num_returns=len(self._watched), timeout=0)
        for watched in ended:
            number = self._watched.pop(watched)
            self._actors.dismiss([number])
            self._executor.handle(ProcessDied(number, "its process died"))

    # ---- the environment of the executor

    def send(self, number: int, message: ToProcess) -> None:
        sequence = self._sent[number]
        self._sent[number] += 1
        self._hosts[number].deliver.remote(PREPARING_TERM, number, sequence, messages.encode(message))

    def start(self, request: StartProcess) -> None:
        number = request.process
        seat = self._placement.place(number, request.task, self._nodes)
        assert seat is not None  # it demands nothing
        created = ProcessRequest(number, request.task, seat.node, seat.host_process)
        self._hosts[number], self._sent[number] = self._actors.create(created, self._driver, PREPARING_TERM), 0
        self._watched[self._hosts[number].watch.remote(PREPARING_TERM)] = number
