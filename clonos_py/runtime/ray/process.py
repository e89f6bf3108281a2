"""One process of a job, active or standby: its link, task, storage and spill threads, without Ray (D8).

Processes of a job differ only in their task and number. They share everything else, the ``Deployment``.
"""

from __future__ import annotations

import shutil
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy.ma  # noqa: F401 - else Arrow imports it with its first array from numpy, which takes 40 ms
import pyarrow as pa

from clonos_py.checkpoint.store import SnapshotStore
from clonos_py.link.checkpointing import LinkSide
from clonos_py.link.instructions import Spilling
from clonos_py.link.machine import LinkMachine
from clonos_py.model.calls import ServiceCall
from clonos_py.model.ids import TaskId
from clonos_py.model.messages import FunctionHangNoticed, Started, ToCoordinator, ToProcess
from clonos_py.model.plan import PhysicalPlan, Vertex
from clonos_py.process.contract import ChannelLimits, SourceArrival, ToTask
from clonos_py.runtime.callers import Callers, http_client
from clonos_py.runtime.clock import LostProcessorTime, SteadyClock
from clonos_py.runtime.executors.link import LinkEnvironment, LinkExecutor
from clonos_py.runtime.executors.spill import SpillExecutor
from clonos_py.runtime.executors.storage import StorageExecutor, StorageWork
from clonos_py.runtime.executors.task import TaskEnvironment, TaskExecutor
from clonos_py.runtime.hangs import HangWatch
from clonos_py.runtime.held_folders import hold
from clonos_py.runtime.operator_environment import LiveEnvironment
from clonos_py.runtime.ray.background import Background
from clonos_py.runtime.ray.channels import Channels
from clonos_py.runtime.ray.link_loop import LinkLoop, Raised
from clonos_py.runtime.ray.reporting import Reporting
from clonos_py.runtime.ray.request_loop import RequestLoop
from clonos_py.runtime.ray.task_loop import TaskLoop
from clonos_py.runtime.ray.wire_codec import WireCodec
from clonos_py.runtime.ray.work_times import WorkTimes
from clonos_py.runtime.spill import FileShelf
from clonos_py.runtime.transport.endpoint import Endpoint
from clonos_py.runtime.transport.tls import TlsFiles
from clonos_py.services.registry import ServiceRegistry
from clonos_py.task.checkpointing import TaskSide
from clonos_py.task.machine import TASK_SETTINGS, TaskMachine

SWITCH_INTERVAL_S = 0.0005
"""The interpreter's thread switch interval. Measured: while the task runs pure Python, a link answers 136 times a
second with the default, and 2,042 times with this."""
_JOIN_S_MAX = 5.0


@dataclass(frozen=True)
class Deployment:
    """The settings that all processes of a job share. ``open_store`` opens the job's checkpoint storage."""

    plan: PhysicalPlan
    task_side: TaskSide
    """Of the plan's checkpoint protocol, as the next."""
    link_side: LinkSide
    open_store: Callable[[], SnapshotStore]
    secret: bytes
    limits: ChannelLimits
    linger_us: int
    retain: bool
    """False for at-most-once: no frame is kept after it was sent."""
    scratch: Path
    """Folder for Unix-domain sockets and spilled frames, created if it is missing. Sockets need a short path."""
    tls: TlsFiles | None = None
    """None: connections between nodes are plain."""
    clock: SteadyClock = field(default_factory=SteadyClock.start)
    """The clock of the run."""
    function_timeout_us: int = 60_000_000
    """A call of a user's function that lasts longer than this is reported."""


def of_vertex(deployment: Deployment, name: str) -> Deployment:
    """The deployment for processes of one vertex. It leaves out what they do not use, so that it is not sent and its
    imports are not loaded: the operators of other vertices, and settings that are for other parts of the run."""
    plan = deployment.plan
    vertices = tuple(vertex if vertex.name == name else _bare(vertex) for vertex in plan.vertices)
    settings = {key: value for key, value in plan.settings.items() if key in TASK_SETTINGS}
    return replace(deployment, plan=replace(plan, vertices=vertices, settings=settings))


def _bare(vertex: Vertex) -> Vertex:
    operators = tuple(replace(operator, factory=_elsewhere) for operator in vertex.operators)
    return replace(vertex, operators=operators, source=vertex.source and replace(vertex.source, factory=_elsewhere))


def _elsewhere() -> Any:
    raise AssertionError("an operator was made in a process that does not run it")


class ProcessRuntime:
    """Assembles and runs the threads of a process. ``deliver`` and ``wait`` may be called by any thread."""

    def __init__(
        self,
        deployment: Deployment,
        number: int,
        task: TaskId,
        node: str,
        host: str,
        send_to_coordinator: Callable[[ToCoordinator], None],
        host_process: int = 0,
    ) -> None:
        """``node`` and ``host``: identity and address of the node it runs on. ``host_process``: see ``Started``. Raises
        ClonosError if an operator or a file for TLS cannot be opened."""
        plan, clock = deployment.plan, deployment.clock.here()
        self._done = threading.Event()
        self._services = ServiceRegistry({}, http_client)
        environment = LiveEnvironment(self._services, deployment.open_store, task, number)
        self._machine = TaskMachine(
            plan, task, environment, deployment.task_side, deployment.linger_us, deployment.limits
        )
        self._scratch = hold(deployment.scratch)
        tls = deployment.tls.load() if deployment.tls else None
        channels = Channels(Endpoint(deployment.secret, node, host, deployment.scratch, tls=tls), plan, task)
        self._spilled = deployment.scratch / f"spilled-{number}"
        link = LinkMachine(plan, task, number, WireCodec(), deployment.link_side, deployment.limits, deployment.retain)
        times = WorkTimes(clock.now_us)
        reporting = Reporting(send_to_coordinator, lambda: link.counters, times.added_to, clock.now_us)
        self._link = LinkLoop(
            LinkExecutor(
                link,
                LinkEnvironment(
                    channels,
                    hand=self._hand,
                    send_to_coordinator=reporting.send_to_coordinator,
                    store=self._store,
                    spill=self._spill_frames,
                    observe=reporting.observe,
                    shut_down=self._shut_down,
                ),
            ),
            channels,
        )
        self._callers = Callers(http_client)
        self._background = Background(f"background of {task}")
        task_environment = TaskEnvironment(
            self._link.put_step, self._start_call, self._background, clock.now_us, clock.now_us
        )
        self._task = TaskLoop(
            TaskExecutor(self._machine, task_environment), self._raised, self._close_services, clock.now_us, times
        )
        self._machine.notify(partial(self._task.put, SourceArrival()))
        storage = StorageExecutor(
            deployment.open_store(),
            self._machine.committing,
            clock.now_us,
            self._background,
            LostProcessorTime().lost_us,
        )
        self._storage = RequestLoop(storage.carry_out, self._link.put, self._raised, begin=storage.warm_up)
        spill = SpillExecutor(FileShelf(self._spilled))
        self._spill = RequestLoop(spill.carry_out, self._link.put, self._raised, close=spill.close)
        loops: list[tuple[str, Callable[[], None]]] = [
            ("link", self._link.run),
            ("task", self._task.run),
            ("storage", self._storage.run),
            ("spill", self._spill.run),
        ]
        self._threads = [threading.Thread(target=run, name=f"{name} of {task}", daemon=True) for name, run in loops]
        self._started = partial(send_to_coordinator, Started(number, channels.address, host_process))
        self._hangs = lambda reason: send_to_coordinator(FunctionHangNoticed(number, reason))
        self._function_timeout_us = deployment.function_timeout_us
        self._watch: HangWatch | None = None

    def start(self) -> None:
        """Starts the threads and sends ``Started`` to the coordinator."""
        for thread in self._threads:
            thread.start()
        task_thread = self._threads[1].ident
        assert task_thread is not None
        self._watch = HangWatch(task_thread, self._function_timeout_us, self._hangs)
        self.report_started()

    def report_started(self) -> None:
        """Sends the coordinator the address at which peers reach this process."""
        self._started()

    def deliver(self, message: ToProcess) -> None:
        """Takes a message of the coordinator."""
        self._link.put(message)

    def wait(self) -> None:
        """Waits until the process has stopped, then for its threads, and removes its spilled frames."""
        self._done.wait()
        self._join()
        shutil.rmtree(self._spilled, ignore_errors=True)
        self._scratch.release()

    def end(self, patience_s: float) -> bool:
        """Stops the process as a message of the coordinator would, but drops waiting writes. Returns whether within
        ``patience_s`` all threads have ended, so that no operator runs and nothing is written any more."""
        self._storage.abandon()
        self._spill.abandon()
        self._shut_down("another process takes its place")
        until_s = time.monotonic() + patience_s
        for thread in self._threads:
            thread.join(max(0.0, until_s - time.monotonic()))
        return not any(thread.is_alive() for thread in self._threads)

    def abandon(self) -> None:
        """Ends the threads and closes the connections without a message, as if the process had died. On return no
        thread is at work any more."""
        self._link.stop()
        self._task.abandon()
        self._storage.stop()
        self._spill.stop()
        self._join()
        self._scratch.release()

    def _join(self) -> None:
        if self._watch is not None:
            self._watch.stop()
        for thread in self._threads:
            thread.join(_JOIN_S_MAX)
        self._background.stop()

    def _hand(self, item: ToTask) -> None:
        self._task.put(item)

    def _store(self, request: StorageWork) -> None:
        self._storage.put(request)

    def _spill_frames(self, request: Spilling) -> None:
        self._spill.put(request)

    def _start_call(self, call: ServiceCall) -> None:
        self._callers.start(call, self._task.put)

    def _close_services(self) -> None:
        self._services.close()
        self._callers.close()

    def _raised(self, problem: BaseException) -> None:
        self._link.put(Raised(problem))

    def _shut_down(self, reason: str) -> None:
        self._link.stop()
        self._storage.stop()
        self._spill.stop()
        self._task.stop()
        self._done.set()


def tune_interpreter() -> None:
    """For a process that only runs tasks: fast switches between link and task, one thread per Arrow kernel (D12)."""
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    pa.set_cpu_count(1)
