"""The actor of one process of a job. The driver owns it; it obeys one coordinator at a time, the last that adopted it.

Control messages are calls. An actor with several threads does not keep the order of calls, so each carries a number
(``InOrder``); and each carries the coordinator's incarnation, so that what a lost coordinator ordered counts until it
has a successor, and no longer (D11).
"""

from __future__ import annotations

import os
import signal
import threading
from typing import Any

from clonos_py.connectors.terminal import CarriedLines, print_on
from clonos_py.model import messages
from clonos_py.model.errors import ClonosError
from clonos_py.model.ids import TaskId
from clonos_py.model.messages import ToCoordinator, ToProcess
from clonos_py.runtime.ray.cluster import import_ray
from clonos_py.runtime.ray.ordering import InOrder
from clonos_py.runtime.ray.process import Deployment, Process, tune_interpreter
from clonos_py.runtime.ray.shipping import unpack

PROCESS_THREADS = 8
"""One runs the process, one is watched, two of a former coordinator may not have noticed yet; the others deliver."""


class ProcessActor:
    """It is built in ``run``, so that creating the actor fails only with its host."""

    def __init__(self, packed: bytes, number: int, task: TaskId, coordinator: Any, incarnation: int) -> None:
        self._packed, self._number, self._task = packed, number, TaskId(*task)
        self._changed = threading.Condition()
        self._process: Process | None = None
        self._over = False
        self._obey(coordinator, incarnation)

    def _obey(self, coordinator: Any, incarnation: int) -> None:
        self._coordinator, self._incarnation = coordinator, incarnation
        self._in_order: InOrder[ToProcess] = InOrder(self._deliver)
        self._told = 0

    # ---- the driver

    def run(self) -> None:
        """Runs the process until it is told to stop."""
        tune_interpreter()
        self._introduce()
        print_on(CarriedLines(self._carry))
        try:
            deployment: Deployment = unpack(self._packed)
            process = Process(deployment, self._number, self._task, *_place(), self._tell)
        except Exception as problem:  # noqa: BLE001 - a user's operator may raise anything when it is made
            kind = type(problem).__name__ if isinstance(problem, ClonosError) else "ClonosError"
            self._tell(messages.Failed(self._number, kind, f"{self._task} cannot start: {problem}"))
        else:
            self._change(process)
            process.start()
            process.wait()
        self._change(None, over=True)

    def _change(self, process: Process | None, over: bool = False) -> None:
        with self._changed:
            self._process, self._over = process, over
            self._changed.notify_all()

    # ---- the coordinator

    def adopt(self, coordinator: Any, incarnation: int) -> None:
        """A coordinator has taken the place of a lost one."""
        with self._changed:
            if incarnation <= self._incarnation:
                return
            self._obey(coordinator, incarnation)
            self._changed.notify_all()
            if self._process is None:
                self._tell(messages.Present(self._number))
            else:
                self._process.say_started()
        self._introduce()

    def watch(self, incarnation: int) -> None:
        """Lasts as long as the process, or until another coordinator has adopted it. When it fails, Ray has seen the
        process die, some 10 ms ago."""
        with self._changed:
            self._changed.wait_for(lambda: self._over or self._incarnation > incarnation)

    def deliver(self, incarnation: int, order: int, message: bytes) -> None:
        """A message of the coordinator, its ``order``-th."""
        with self._changed:
            self._changed.wait_for(lambda: self._over or self._may_deliver(incarnation))
            if self._incarnation == incarnation and not self._over:
                self._in_order.take(order, messages.decode_to_process(message))

    def _may_deliver(self, incarnation: int) -> bool:
        """Whether the process is there and knows this coordinator."""
        return self._process is not None and self._incarnation >= incarnation

    def die(self) -> None:
        """A failure on order, where the coordinator cannot reach the process itself."""
        os.kill(os.getpid(), signal.SIGKILL)

    # ---- what the process says

    def _deliver(self, message: ToProcess) -> None:
        assert self._process is not None
        self._process.deliver(message)

    def _tell(self, message: ToCoordinator) -> None:
        """What a lost coordinator is told nobody hears: its successor asks."""
        with self._changed:
            self._coordinator.tell.remote(self._number, self._told, messages.encode(message))
            self._told += 1

    def _introduce(self) -> None:
        node, _ = _place()
        self._coordinator.introduce.remote(self._number, os.getpid(), node)

    def _carry(self, lines: str) -> bool:
        """Whether somebody took printed lines. Without a coordinator they wait for the next."""
        ray = import_ray()
        try:
            return bool(ray.get(self._coordinator.printed.remote(self._number, lines)))
        except ray.exceptions.RayActorError:
            return False


def _place() -> tuple[str, str]:
    """Identity and address of this node."""
    ray = import_ray()
    return ray.get_runtime_context().get_node_id(), ray.util.get_node_ip_address()
