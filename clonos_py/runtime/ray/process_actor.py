"""The actor that is the host process of one process of a job, or of several standbys. The driver owns it. It accepts
the messages of one coordinator at a time, the last one that adopted it.

Control messages are calls. An actor with several threads does not keep the order of calls, so each carries a number
(``InOrder``). Each carries the coordinator's term, too: messages of a lost coordinator are valid until its successor
adopts the process (D11).
"""

from __future__ import annotations

import gc
import os
import signal
import threading
import time
from collections.abc import Collection
from functools import partial
from typing import Any

from clonos_py.connectors.terminal import CarriedLines, print_on
from clonos_py.model import messages
from clonos_py.model.ids import TaskId
from clonos_py.model.messages import Promote, ToCoordinator, ToProcess
from clonos_py.runtime.crash_notes import leave_in
from clonos_py.runtime.held_folders import hold
from clonos_py.runtime.leftovers import clear_scratch
from clonos_py.runtime.ray.cluster import import_ray
from clonos_py.runtime.ray.ordering import InOrder
from clonos_py.runtime.ray.process import Deployment, ProcessRuntime, tune_interpreter
from clonos_py.runtime.ray.process_table import cpu_us
from clonos_py.runtime.ray.shipping import unpack

_PROCESS_THREADS = 8
"""One is watched, two of a former coordinator may not have noticed yet; the others deliver."""
_GUEST_THREADS = 2
"""Messages that may wait for one more process to come up."""
_END_S_MAX = 5.0
"""A step, or a write, of a process in whose place another begins may last so long."""
_RECOVERY_S = 5.0
"""By then a task has recovered, and what standbys have left behind may be cleared away."""


def concurrency(standbys_per_process: int) -> int:
    """How many calls an actor must be able to serve at once."""
    return _PROCESS_THREADS + _GUEST_THREADS * (standbys_per_process - 1)


class HostedProcess:
    """A process in its host process. ``process`` is none before it is up, and again when it is ``over``."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.process: ProcessRuntime | None = None
        self.over = False
        self.obey()

    def obey(self) -> None:
        """Another coordinator counts its messages from 0."""
        self.in_order: InOrder[ToProcess] = InOrder(self._deliver)
        self.messages_sent = 0

    def _deliver(self, message: ToProcess) -> None:
        assert self.process is not None
        self.process.deliver(message)


class ProcessActor:
    """Processes are built when they are lodged, so that creating the actor fails only with its host."""

    def __init__(self, host_process: int, coordinator: Any, term: int) -> None:
        """``host_process``: what processes are to say of where they are; 0 if there will be one only."""
        self._host_process, self._coordinator, self._term = host_process, coordinator, term
        self._changed = threading.Condition()
        self._hosted: dict[int, HostedProcess] = {}
        self._task = -1
        """The process that has become its task, if one has."""
        tune_interpreter()
        print_on(CarriedLines(self._carry))

    # ---- the driver

    def start_process(self, packed: bytes, number: int, task: TaskId, reuse: int | None = None) -> None:
        """Begins a process, which runs until it is told to stop. ``reuse``: the process in whose place it begins."""
        with self._changed:
            hosted = self._hosted.setdefault(number, HostedProcess(number))
            before = self._hosted[reuse].process if reuse in self._hosted else None
            first = len(self._hosted) == 1
        run = partial(self._run, hosted, packed, TaskId(*task), first, before)
        threading.Thread(target=run, name=f"process {number}", daemon=True).start()

    def _run(
        self, hosted: HostedProcess, packed: bytes, task: TaskId, first: bool, before: ProcessRuntime | None
    ) -> None:
        self._introduce(hosted)
        if before is not None and not before.end(_END_S_MAX):
            self.die()  # functions and writes cannot be interrupted, and must not run beside themselves
        try:
            deployment: Deployment = unpack(packed)
            if first:
                self._scratch = hold(deployment.scratch)  # for as long as this process lives
                leave_in(deployment.scratch)
                clear_scratch()
                _settle_garbage()
            process = ProcessRuntime(
                deployment,
                hosted.number,
                task,
                *_place(),
                partial(self._send_to_coordinator, hosted),
                self._host_process,
            )
        except BaseException as problem:  # noqa: BLE001 - a user's operator may raise anything when it is made
            self._send_to_coordinator(hosted, messages.failed(hosted.number, task, problem))
        else:
            self._change(hosted, process)
            process.start()
            process.wait()
            del process
        self._change(hosted, None, over=True)
        time.sleep(_RECOVERY_S)
        gc.collect()

    def _change(self, hosted: HostedProcess, process: ProcessRuntime | None, over: bool = False) -> None:
        with self._changed:
            hosted.process, hosted.over = process, over
            self._changed.notify_all()

    # ---- the coordinator

    def adopt(self, coordinator: Any, term: int, numbers: Collection[int]) -> None:
        """A coordinator has taken the place of a lost one; these are the processes that it knows of here."""
        with self._changed:
            if term <= self._term:
                return
            self._coordinator, self._term = coordinator, term
            all_hosted = [self._hosted.setdefault(number, HostedProcess(number)) for number in numbers]
            for hosted in self._hosted.values():
                hosted.obey()
            self._changed.notify_all()
            for hosted in all_hosted:
                if hosted.over:
                    coordinator.gone.remote(hosted.number)
                elif hosted.process is None:
                    self._send_to_coordinator(hosted, messages.StatusReport(hosted.number))
                else:
                    hosted.process.say_started()
        for hosted in all_hosted:
            self._introduce(hosted)

    def watch(self, term: int) -> None:
        """Lasts as long as its processes, or until another coordinator has adopted it. When it fails, Ray has seen them
        die, some 10 ms ago."""
        with self._changed:
            self._changed.wait_for(lambda: self._over or self._term > term)

    @property
    def _over(self) -> bool:
        return bool(self._hosted) and all(hosted.over for hosted in self._hosted.values())

    def deliver(self, term: int, number: int, order: int, message: bytes) -> None:
        """A message of the coordinator to a process, the ``order``-th."""
        with self._changed:
            self._changed.wait_for(lambda: self._may_deliver(term, number))
            hosted = self._hosted[number]
            if self._term == term and not hosted.over:
                decoded = messages.decode_to_process(message)
                if isinstance(decoded, Promote):
                    self._task = number
                hosted.in_order.take(order, decoded)

    def _may_deliver(self, term: int, number: int) -> bool:
        """Whether the process is there and knows this coordinator."""
        hosted = self._hosted.get(number)
        if hosted is None:
            return False
        return hosted.over or (hosted.process is not None and self._term >= term)

    def cpu_us(self, pid: int) -> int | None:
        """The processor time that a process of this node has used; None if there is none."""
        return cpu_us(pid)

    def die(self) -> None:
        """A failure on order, where the coordinator cannot reach the process itself; or the end of a run without Ray's
        help."""
        os.kill(os.getpid(), signal.SIGKILL)

    # ---- what processes say

    def _send_to_coordinator(self, hosted: HostedProcess, message: ToCoordinator) -> None:
        """A message to a lost coordinator is lost: its successor asks."""
        with self._changed:
            self._coordinator.deliver.remote(hosted.number, hosted.messages_sent, messages.encode(message))
            hosted.messages_sent += 1

    def _introduce(self, hosted: HostedProcess) -> None:
        node, _ = _place()
        self._coordinator.introduce.remote(hosted.number, os.getpid(), node)

    def _carry(self, lines: str) -> bool:
        """Whether printed lines were taken. Without a coordinator they wait for the next."""
        ray = import_ray()
        try:
            return bool(ray.get(self._coordinator.printed.remote(self._task, lines)))
        except ray.exceptions.RayActorError:
            return False


def _settle_garbage() -> None:
    """Imported objects stay, so the collector skips them from now on. Garbage of standbys it must still find."""
    gc.collect()
    gc.freeze()


def _place() -> tuple[str, str]:
    """Identity and address of this node."""
    ray = import_ray()
    return ray.get_runtime_context().get_node_id(), ray.util.get_node_ip_address()
