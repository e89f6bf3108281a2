"""The environment of the coordinator's executor: processes on a platform, and a thread for checkpoint storage."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Protocol

from clonos_py.checkpoint.store import SnapshotStore
from clonos_py.job.events import EndJob, JobEvent, StartProcess
from clonos_py.model.coordinator_events import CoordinatorEvent
from clonos_py.model.errors import CheckpointError
from clonos_py.model.messages import ToProcess
from clonos_py.model.snapshots import Manifest
from clonos_py.runtime.clock import SteadyClock, time_of_day_us
from clonos_py.runtime.executors.job import complete
from clonos_py.runtime.manifests import dated
from clonos_py.runtime.ray.serial_executor import SerialExecutor

_STORAGE_S_MAX = 60.0
"""If storage opens no generation within this time, it counts as not answering."""


class Platform(Protocol):
    """Starts and ends processes, and sends them messages in order. It puts deaths into the loop as events."""

    def start(self, request: StartProcess) -> None:
        """Starts a process. If it cannot begin in the place of ``reuse``, its death is reported."""
        ...

    def send(self, number: int, message: ToProcess) -> None:
        """Sends a message. Messages to a process that is gone are dropped."""
        ...

    def dismiss(self, number: int) -> None:
        """Stops a process. Other processes in its host process stay."""
        ...

    def kill(self, number: int) -> None:
        """Ends a process for good. Its own death need not be reported; those of others in its host process are."""
        ...

    def crash(self, number: int) -> bool:
        """Carries out an ordered failure by SIGKILL; its death is detected like any other. False if the process is dead
        already."""
        ...

    def cpu_us(self, number: int) -> int | None:
        """The processor time that a process has used; None if it is not available."""
        ...

    def close(self, patience_s: float) -> None:
        """Ends all processes that are left. Those of tasks, which may be stopping, get ``patience_s`` for it."""
        ...


class PlatformEnvironment:
    """The coordinator's environment over a platform."""

    def __init__(
        self,
        platform: Platform,
        store: SnapshotStore,
        checkpoints_kept: int,
        clock: SteadyClock,
        answer: Callable[[JobEvent], None],
        report: Callable[[CoordinatorEvent], None],
        is_interrupted: Callable[[], bool],
    ) -> None:
        """``answer`` takes the results of writing manifests, on the thread that writes them. ``report`` takes the
        coordinator's events."""
        self._platform, self._store = platform, store
        self._checkpoints_kept, self._clock = checkpoints_kept, clock
        self._answer, self._report = answer, report
        self.is_interrupted = is_interrupted
        self._writer = SerialExecutor("manifests")
        self.ended: EndJob | None = None

    def now_us(self) -> int:
        return self._clock.now_us()

    # ---- processes

    def start(self, request: StartProcess) -> None:
        self._platform.start(request)

    def send(self, number: int, message: ToProcess) -> None:
        self._platform.send(number, message)

    def dismiss(self, number: int) -> None:
        self._platform.dismiss(number)

    def kill(self, number: int) -> None:
        self._platform.kill(number)

    # ---- checkpoint storage

    def write_manifest(self, manifest: Manifest) -> None:
        """Writes a manifest in the writer's thread, so that heartbeats go on meanwhile."""
        self._writer.submit(partial(self._complete, manifest))

    def _complete(self, manifest: Manifest) -> None:
        manifest = dated(manifest, time_of_day_us())
        for event in complete(manifest, self._store, self._checkpoints_kept):
            self._answer(event)

    def savepoint(self, name: str) -> Future[Manifest]:
        """Keeps the last complete checkpoint under a name, in the writer's thread, between two manifests. The result
        raises CheckpointError."""
        return self._writer.submit(partial(self._keep, name))

    def _keep(self, name: str) -> Manifest:
        manifest = self._store.latest()
        if manifest is None:
            raise CheckpointError("no checkpoint is complete yet: ask again soon")
        self._store.write_savepoint(name, manifest)
        return manifest

    def open_generation(self, generation: int) -> None:
        """Opens a generation in storage. Raises CheckpointError, also if storage does not answer."""
        try:
            self._writer.submit(partial(self._store.open_generation, generation - 1)).result(_STORAGE_S_MAX)
        except TimeoutError as problem:
            raise CheckpointError(f"checkpoint storage has not answered for {_STORAGE_S_MAX:g} s") from problem

    def stop(self, wait_s: float) -> None:
        """Ends the writer. Waits for up to ``wait_s`` until it has written the manifests that it has."""
        self._writer.stop(wait_s)

    # ---- events

    def report(self, event: CoordinatorEvent) -> None:
        self._report(event)

    def end(self, end: EndJob) -> None:
        self.ended = end
