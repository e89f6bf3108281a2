"""The actor that is the host process of one process of a job, or of several standbys. The driver owns it. It accepts
messages of one coordinator at a time: the last one that adopted it.

Control messages are calls. An actor with several threads does not keep the order of calls, so each carries a number
(``InOrder``). Each also carries the coordinator's term: messages of a lost coordinator are valid until its successor
adopts the process (D11).
"""

from __future__ import annotations

import gc
import os
import signal
import threading
import time
from collections.abc import Collection, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from clonos_py.connectors.terminal import CarriedLines, print_on
from clonos_py.model import messages
from clonos_py.model.errors import MemoryLimitError
from clonos_py.model.ids import TaskId
from clonos_py.model.messages import Promote, ToCoordinator, ToProcess
from clonos_py.runtime import garbage
from clonos_py.runtime.crash_notes import write_notes_to
from clonos_py.runtime.function_output import LineOrigin, install
from clonos_py.runtime.held_folders import hold
from clonos_py.runtime.leftovers import clear_scratch
from clonos_py.runtime.pandas_import import defer_pandas
from clonos_py.runtime.process_log import carry_warnings
from clonos_py.runtime.ray.cluster import import_ray
from clonos_py.runtime.ray.ordering import InOrder
from clonos_py.runtime.ray.process import Deployment, ProcessRuntime, tune_interpreter
from clonos_py.runtime.ray.process_table import cpu_us
from clonos_py.runtime.ray.shipping import unpack

if TYPE_CHECKING:
    from clonos_py.runtime.memory_limit import MemoryWatch
    from clonos_py.runtime.ray.death_watch import DeathWatch
    from clonos_py.runtime.ray.process_handle import ProcessHandle

_PROCESS_THREADS = 8
"""One thread runs ``watch``, two may still run calls of a former coordinator, the others deliver messages."""
_THREADS_PER_FURTHER_PROCESS = 2
"""Additional threads for each further process: messages may wait in them until the process is up."""
_END_S_MAX = 5.0
"""The time that a process gets to end a step or a write when another begins in its place."""
_REPORTED_S = 0.25
"""The time that a message gets to leave a process that ends itself."""
_RECOVERY_S = 5.0
"""After this time a task has usually recovered, and the garbage of ended standbys may be collected."""


def concurrency(standbys_per_process: int) -> int:
    """The number of calls that an actor must be able to serve at once."""
    return _PROCESS_THREADS + _THREADS_PER_FURTHER_PROCESS * (standbys_per_process - 1)


class ProcessStart(NamedTuple):
    """A process that is to start. ``host_process``: the number of this actor. ``shared``: whether it may share it with
    others, so that it reports the number in ``Started``. ``reuse``: the process that it replaces. Its coordinator is
    that of ``term``."""

    number: int
    task: TaskId
    host_process: int
    shared: bool
    reuse: int | None
    coordinator: Any
    term: int


class HostDescription(NamedTuple):
    """What an actor tells a new driver. ``processes``: the tasks of its processes that have not ended, by number.
    ``term``: of the last coordinator; -1 before it has a process."""

    term: int
    host_process: int
    processes: Mapping[int, TaskId]


class HostedProcess:
    """One process in its host process. ``process`` is None before it is up, and again when it is ``ended``."""

    def __init__(self, number: int, task: TaskId | None = None) -> None:
        """``task``: None for a process of which only a coordinator has told."""
        self.number, self.task = number, task
        self.process: ProcessRuntime | None = None
        self.ended = False
        self.begin_numbering()

    def begin_numbering(self) -> None:
        """Begins with a new coordinator: both sides number their messages from 0."""
        self.in_order: InOrder[ToProcess] = InOrder(self._deliver)
        self.messages_sent = 0

    def _deliver(self, message: ToProcess) -> None:
        assert self.process is not None
        self.process.deliver(message)


class ProcessActor:
    """The actor of a host process. ``start_process`` builds processes, not the constructor, so that creating the actor
    fails only if its node fails, and can be done before it is known for which task."""

    def __init__(self) -> None:
        self._coordinator: Any = None
        self._term = self._host_process = -1
        self._deployments: dict[str, Deployment] = {}
        """By vertex. Standbys of several vertices may be here."""
        self._unpacking = threading.Lock()
        self._changed = threading.Condition()
        self._hosted: dict[int, HostedProcess] = {}
        self._task = -1
        """The number of the process that was promoted; -1 if none was."""
        idle = threading.Thread(target=threading.Event().wait, name="idle", daemon=True)
        idle.start()
        assert idle.native_id is not None
        self._idle_thread = idle.native_id
        """A thread that ends with this process, and before its memory is freed."""
        self._neighbours: dict[int, ProcessHandle] = {}
        self._death_watch: DeathWatch | None = None
        defer_pandas()
        tune_interpreter()
        print_on(CarriedLines(partial(self._carry, LineOrigin.SINK)))
        install(CarriedLines(partial(self._carry, LineOrigin.FUNCTION)).write)
        carry_warnings(CarriedLines(partial(self._carry, LineOrigin.ENGINE)).offer)

    # ---- the driver

    def start_process(self, packed: bytes, start: ProcessStart) -> None:
        """Starts a process, which runs until it gets a message to stop. ``packed``: the deployment of its vertex."""
        start = ProcessStart(*start)
        with self._changed:
            if start.term > self._term:
                self._coordinator, self._term = start.coordinator, start.term
                self._changed.notify_all()
            hosted = self._hosted.setdefault(start.number, HostedProcess(start.number))
            hosted.task, self._host_process = TaskId(*start.task), start.host_process
            before = self._hosted[start.reuse].process if start.reuse in self._hosted else None
            first = len(self._hosted) == 1
        run = partial(self._run, hosted, packed, start, first, before)
        threading.Thread(target=run, name=f"process {start.number}", daemon=True).start()

    def _run(
        self, hosted: HostedProcess, packed: bytes, start: ProcessStart, first: bool, before: ProcessRuntime | None
    ) -> None:
        task = TaskId(*start.task)
        self._introduce(hosted)
        if before is not None and not before.end(_END_S_MAX):
            self.die()  # functions and writes cannot be interrupted, and must not run twice at once
        watch: MemoryWatch | None = None
        try:
            deployment = self._deployment(task.vertex, packed)
            limit_bytes = deployment.plan.by_name[task.vertex].resources.memory_bytes
            if limit_bytes:
                from clonos_py.runtime.memory_limit import MemoryWatch  # most tasks have no limit

                watch = MemoryWatch(limit_bytes, partial(self._end_outgrown, hosted, task))
            if first:
                self._scratch = hold(deployment.scratch)  # until this process ends
                write_notes_to(deployment.scratch)
                clear_scratch()
                garbage.keep()  # 50 ms less than to collect some hundred objects among 80,000
            process = ProcessRuntime(
                deployment,
                hosted.number,
                task,
                *_place(),
                partial(self._send_to_coordinator, hosted),
                start.host_process if start.shared else 0,
            )
        except BaseException as problem:  # noqa: BLE001 - a user's operator may raise anything when it is made
            self._send_to_coordinator(hosted, messages.failed(hosted.number, task, problem))
        else:
            self._change(hosted, process)
            process.start()
            process.wait()
            del process
        finally:
            if watch is not None:
                watch.stop()
        self._change(hosted, None, ended=True)
        time.sleep(_RECOVERY_S)
        gc.collect()

    def _end_outgrown(self, hosted: HostedProcess, task: TaskId, problem: MemoryLimitError) -> None:
        """Ends this process, which grows. It is the task's alone, since the task has a limit."""
        self._send_to_coordinator(hosted, messages.failed(hosted.number, task, problem))
        time.sleep(_REPORTED_S)
        self.die()

    def _deployment(self, vertex: str, packed: bytes) -> Deployment:
        """The deployment of a vertex, unpickled once."""
        with self._unpacking:
            if vertex not in self._deployments:
                self._deployments[vertex] = unpack(packed)
            return self._deployments[vertex]

    def _change(self, hosted: HostedProcess, process: ProcessRuntime | None, ended: bool = False) -> None:
        with self._changed:
            hosted.process, hosted.ended = process, ended
            self._changed.notify_all()

    def describe(self) -> HostDescription:
        """Tells a new driver what is here."""
        with self._changed:
            here = {number: hosted.task for number, hosted in self._hosted.items() if not hosted.ended and hosted.task}
            return HostDescription(self._term, self._host_process, here)

    def leave(self) -> None:
        """Ends this actor, of which nobody else needs anything, once its processes have ended."""
        with self._changed:
            self._changed.wait_for(lambda: self._ended, _END_S_MAX)
        os._exit(0)

    # ---- the coordinator

    def adopt(self, coordinator: Any, term: int, numbers: Collection[int]) -> None:
        """A new coordinator takes over from a lost one. ``numbers``: the processes here that it has in its roster."""
        with self._changed:
            if term <= self._term:
                return
            self._coordinator, self._term = coordinator, term
            all_hosted = [self._hosted.setdefault(number, HostedProcess(number)) for number in numbers]
            for hosted in self._hosted.values():
                hosted.begin_numbering()
            self._changed.notify_all()
            for hosted in all_hosted:
                if hosted.ended:
                    coordinator.already_left.remote(hosted.number)
                elif hosted.process is None:
                    self._send_to_coordinator(hosted, messages.StatusReport(hosted.number))
                else:
                    hosted.process.report_started()
        for hosted in all_hosted:
            self._introduce(hosted)

    def watch(self, term: int) -> None:
        """Returns when all processes here have ended, or another coordinator has adopted them. If the call fails, Ray
        has seen the actor die, about 10 ms ago."""
        with self._changed:
            self._changed.wait_for(lambda: self._ended or self._term > term)

    @property
    def _ended(self) -> bool:
        return bool(self._hosted) and all(hosted.ended for hosted in self._hosted.values())

    def deliver(self, term: int, number: int, sequence: int, message: bytes) -> None:
        """Takes a message of the coordinator to a process. ``sequence``: the number of the message, from 0."""
        with self._changed:
            self._changed.wait_for(lambda: self._may_deliver(term, number))
            hosted = self._hosted[number]
            if self._term == term and not hosted.ended:
                decoded = messages.decode_to_process(message)
                if isinstance(decoded, Promote):
                    self._task = number
                hosted.in_order.take(sequence, decoded)

    def _may_deliver(self, term: int, number: int) -> bool:
        """Whether the process is up and the coordinator of ``term`` has adopted it, or the process has ended."""
        hosted = self._hosted.get(number)
        if hosted is None:
            return False
        return hosted.ended or (hosted.process is not None and self._term >= term)

    def watch_neighbour(self, number: int, pid: int, thread: int) -> None:
        """Reports the death of a process on this node to the coordinator, which is on another one. ``thread``: see
        ``ProcessHandle.of``."""
        from clonos_py.runtime.ray.death_watch import DeathWatch  # not needed on the coordinator's node
        from clonos_py.runtime.ray.process_handle import ProcessHandle

        with self._changed:
            if number not in self._neighbours and (handle := ProcessHandle.of(pid, thread)) is not None:
                self._neighbours[number] = handle
                self._death_watch = self._death_watch or DeathWatch(self._on_neighbour_died)
                self._death_watch.add(number, handle)

    def _on_neighbour_died(self, number: int) -> None:
        with self._changed:
            self._neighbours.pop(number).close()
            self._coordinator.neighbour_died.remote(number)

    def cpu_us(self, pid: int) -> int | None:
        """The processor time that a process of this node has used; None if there is none."""
        return cpu_us(pid)

    def die(self) -> None:
        """Ends this process by SIGKILL: for an ordered failure that the coordinator cannot carry out itself, or when a
        run ends because Ray is gone."""
        os.kill(os.getpid(), signal.SIGKILL)

    # ---- messages of processes

    def _send_to_coordinator(self, hosted: HostedProcess, message: ToCoordinator) -> None:
        """Sends a message. One to a lost coordinator is lost: its successor requests the status."""
        with self._changed:
            self._coordinator.deliver.remote(hosted.number, hosted.messages_sent, messages.encode(message))
            hosted.messages_sent += 1

    def _introduce(self, hosted: HostedProcess) -> None:
        node, _ = _place()
        self._coordinator.introduce.remote(hosted.number, os.getpid(), self._idle_thread, node)

    def _carry(self, origin: LineOrigin, lines: str) -> bool:
        """Sends lines to the coordinator. False if it has not taken them: they then wait, for example until there is a
        new coordinator. Warnings of standbys are those of the first one in this process."""
        ray, number = import_ray(), self._task
        if origin is LineOrigin.ENGINE and number < 0:
            number = next(iter(self._hosted), number)
        if self._coordinator is None:
            return False
        try:
            return bool(ray.get(self._coordinator.printed.remote(number, lines, origin)))
        except ray.exceptions.RayActorError:
            return False


def _place() -> tuple[str, str]:
    """Identity and address of this node."""
    ray = import_ray()
    return ray.get_runtime_context().get_node_id(), ray.util.get_node_ip_address()
