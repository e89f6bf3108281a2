"""The actor of one process of a job, or the home of several that stand by. The driver owns it; it obeys one coordinator
at a time, the last that adopted it.

Control messages are calls. An actor with several threads does not keep the order of calls, so each carries a number
(``InOrder``); and each carries the coordinator's incarnation, so that what a lost coordinator ordered counts until it
has a successor, and no longer (D11).
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
from clonos_py.runtime.held_folders import hold
from clonos_py.runtime.last_words import leave_in
from clonos_py.runtime.leftovers import clear_scratch
from clonos_py.runtime.ray.cluster import import_ray
from clonos_py.runtime.ray.ordering import InOrder
from clonos_py.runtime.ray.process import Deployment, Process, tune_interpreter
from clonos_py.runtime.ray.process_table import cpu_us
from clonos_py.runtime.ray.shipping import unpack

_PROCESS_THREADS = 8
"""One is watched, two of a former coordinator may not have noticed yet; the others deliver."""
_GUEST_THREADS = 2
"""Messages that may wait for one more process to come up."""
_RECOVERY_S = 5.0
"""By then a task has recovered, and what guests have left behind may be cleared away."""


def concurrency(standbys_per_process: int) -> int:
    """How many calls an actor must be able to serve at once."""
    return _PROCESS_THREADS + _GUEST_THREADS * (standbys_per_process - 1)


class Guest:
    """A process in its home. ``process`` is none before it is up, and again when it is ``over``."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.process: Process | None = None
        self.over = False
        self.obey()

    def obey(self) -> None:
        """Another coordinator counts its messages anew."""
        self.in_order: InOrder[ToProcess] = InOrder(self._deliver)
        self.told = 0

    def _deliver(self, message: ToProcess) -> None:
        assert self.process is not None
        self.process.deliver(message)


class ProcessActor:
    """Processes are built when they are lodged, so that creating the actor fails only with its host."""

    def __init__(self, home: int, coordinator: Any, incarnation: int) -> None:
        """``home``: what processes are to say of where they are; 0 if there will be one only."""
        self._home, self._coordinator, self._incarnation = home, coordinator, incarnation
        self._changed = threading.Condition()
        self._guests: dict[int, Guest] = {}
        self._task = -1
        """The process that has become its task, if one has."""
        tune_interpreter()
        print_on(CarriedLines(self._carry))

    # ---- the driver

    def lodge(self, packed: bytes, number: int, task: TaskId) -> None:
        """Begins a process, which runs until it is told to stop."""
        with self._changed:
            guest = self._guests.setdefault(number, Guest(number))
            first = len(self._guests) == 1
        run = partial(self._run, guest, packed, TaskId(*task), first)
        threading.Thread(target=run, name=f"process {number}", daemon=True).start()

    def _run(self, guest: Guest, packed: bytes, task: TaskId, first: bool) -> None:
        self._introduce(guest)
        try:
            deployment: Deployment = unpack(packed)
            if first:
                self._scratch = hold(deployment.scratch)  # for as long as this process lives
                leave_in(deployment.scratch)
                clear_scratch()
                _settle_garbage()
            process = Process(deployment, guest.number, task, *_place(), partial(self._tell, guest), self._home)
        except BaseException as problem:  # noqa: BLE001 - a user's operator may raise anything when it is made
            self._tell(guest, messages.failed(guest.number, task, problem))
        else:
            self._change(guest, process)
            process.start()
            process.wait()
            del process
        self._change(guest, None, over=True)
        time.sleep(_RECOVERY_S)
        gc.collect()

    def _change(self, guest: Guest, process: Process | None, over: bool = False) -> None:
        with self._changed:
            guest.process, guest.over = process, over
            self._changed.notify_all()

    # ---- the coordinator

    def adopt(self, coordinator: Any, incarnation: int, numbers: Collection[int]) -> None:
        """A coordinator has taken the place of a lost one; these are the processes that it knows of here."""
        with self._changed:
            if incarnation <= self._incarnation:
                return
            self._coordinator, self._incarnation = coordinator, incarnation
            guests = [self._guests.setdefault(number, Guest(number)) for number in numbers]
            for guest in self._guests.values():
                guest.obey()
            self._changed.notify_all()
            for guest in guests:
                if guest.over:
                    coordinator.gone.remote(guest.number)
                elif guest.process is None:
                    self._tell(guest, messages.Present(guest.number))
                else:
                    guest.process.say_started()
        for guest in guests:
            self._introduce(guest)

    def watch(self, incarnation: int) -> None:
        """Lasts as long as its processes, or until another coordinator has adopted it. When it fails, Ray has seen them
        die, some 10 ms ago."""
        with self._changed:
            self._changed.wait_for(lambda: self._over or self._incarnation > incarnation)

    @property
    def _over(self) -> bool:
        return bool(self._guests) and all(guest.over for guest in self._guests.values())

    def deliver(self, incarnation: int, number: int, order: int, message: bytes) -> None:
        """A message of the coordinator to a process, the ``order``-th."""
        with self._changed:
            self._changed.wait_for(lambda: self._may_deliver(incarnation, number))
            guest = self._guests[number]
            if self._incarnation == incarnation and not guest.over:
                decoded = messages.decode_to_process(message)
                if isinstance(decoded, Promote):
                    self._task = number
                guest.in_order.take(order, decoded)

    def _may_deliver(self, incarnation: int, number: int) -> bool:
        """Whether the process is there and knows this coordinator."""
        guest = self._guests.get(number)
        if guest is None:
            return False
        return guest.over or (guest.process is not None and self._incarnation >= incarnation)

    def cpu_us(self, pid: int) -> int | None:
        """The processor time that a process of this node has used; None if there is none."""
        return cpu_us(pid)

    def die(self) -> None:
        """A failure on order, where the coordinator cannot reach the process itself; or the end of a run without Ray's
        help."""
        os.kill(os.getpid(), signal.SIGKILL)

    # ---- what processes say

    def _tell(self, guest: Guest, message: ToCoordinator) -> None:
        """What a lost coordinator is told nobody hears: its successor asks."""
        with self._changed:
            self._coordinator.tell.remote(guest.number, guest.told, messages.encode(message))
            guest.told += 1

    def _introduce(self, guest: Guest) -> None:
        node, _ = _place()
        self._coordinator.introduce.remote(guest.number, os.getpid(), node)

    def _carry(self, lines: str) -> bool:
        """Whether somebody took printed lines. Without a coordinator they wait for the next."""
        ray = import_ray()
        try:
            return bool(ray.get(self._coordinator.printed.remote(self._task, lines)))
        except ray.exceptions.RayActorError:
            return False


def _settle_garbage() -> None:
    """What has been imported stays: the collector need not look at it again. What guests leave behind it must find."""
    gc.collect()
    gc.freeze()


def _place() -> tuple[str, str]:
    """Identity and address of this node."""
    ray = import_ray()
    return ray.get_runtime_context().get_node_id(), ray.util.get_node_ip_address()
