"""Executes the coordinator: events go to the job's machine, and each instruction becomes a call of its environment.

A standby is started when neither the deployment nor a recovery needs the processors (``standby_starts.py``).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Protocol

from clonos_py.checkpoint.store import SnapshotStore
from clonos_py.job.events import (
    DismissProcess,
    EndJob,
    JobEvent,
    JobInstruction,
    KillProcess,
    ManifestWritten,
    OpenGeneration,
    ProcessDied,
    ReportEvent,
    Send,
    StartProcess,
    WriteManifest,
)
from clonos_py.job.fleet import TaskProcess
from clonos_py.model.coordinator_events import CoordinatorEvent, StorageAwaited
from clonos_py.model.errors import CheckpointError
from clonos_py.model.ids import TaskId
from clonos_py.model.messages import Promote, ToCoordinator, ToProcess
from clonos_py.model.snapshots import Manifest
from clonos_py.runtime.manifests import retire, write_manifest
from clonos_py.runtime.standby_starts import PATIENCE_US, StandbyStarts
from clonos_py.runtime.storage_waits import until_answered


class Coordinator(Protocol):
    """The methods of a JobMachine that the executor calls."""

    @property
    def wake_us(self) -> int: ...

    @property
    def processes(self) -> Mapping[int, TaskProcess]: ...

    def start(self, now_us: int, prepared: Collection[TaskProcess] = ()) -> list[JobInstruction]: ...

    def take_over(self, roster: Mapping[int, TaskId], now_us: int) -> list[JobInstruction]: ...

    def handle(self, event: ToCoordinator | JobEvent, now_us: int) -> list[JobInstruction]: ...

    def tick(self, now_us: int) -> list[JobInstruction]: ...


class JobEnvironment(Protocol):
    """The environment of a coordinator: processes, checkpoint storage, and the job's listeners."""

    def now_us(self) -> int:
        """The run's clock, which is never set."""
        ...

    def start(self, request: StartProcess) -> None:
        """Starts a process, which reports itself with ``Started``. If it cannot begin in the place of ``reuse``, its
        death is reported."""
        ...

    def send(self, number: int, message: ToProcess) -> None:
        """Sends a message, in order for each process. Messages to a process that is gone are dropped."""
        ...

    def dismiss(self, number: int) -> None:
        """Stops a process. Other processes in its host process stay."""
        ...

    def kill(self, number: int) -> None:
        """Ends a process and all others in its host process. The deaths of the others come back as events."""
        ...

    def write_manifest(self, manifest: Manifest) -> None:
        """Starts ``complete``, in order and without waiting for it. Its results come back as events."""
        ...

    def open_generation(self, generation: int) -> None:
        """Opens a generation and waits: from then on storage refuses manifests of earlier generations. Raises
        CheckpointError; after a StorageUnavailableError it may be called again."""
        ...

    def is_interrupted(self) -> bool:
        """Whether the run is to stop, so that it does not wait for storage any longer."""
        ...

    def report(self, event: CoordinatorEvent) -> None:
        """Reports an event to the listeners."""
        ...

    def end(self, end: EndJob) -> None:
        """The job has ended. ``end`` says how."""
        ...


class JobExecutor:
    """Owns a JobMachine. Only one thread at a time may call it."""

    def __init__(
        self, machine: Coordinator, environment: JobEnvironment, standby_patience_us: int = PATIENCE_US
    ) -> None:
        """``standby_patience_us``: see ``StandbyStarts``."""
        self.machine, self._environment, self._patience_us = machine, environment, standby_patience_us
        self._standby_starts = StandbyStarts(standby_patience_us)

    @property
    def wake_us(self) -> int:
        """The time at which ``tick`` is due at the latest."""
        return min(self.machine.wake_us, self._standby_starts.due_us)

    def start(self, prepared: Collection[TaskProcess] = ()) -> None:
        """Begins the deployment. ``prepared``: processes that were started ahead."""
        self._standby_starts = StandbyStarts(self._patience_us, deploys=True)
        for process in prepared:
            self._standby_starts.on_prepared(process.number, process.task)
        self.carry_out(self.machine.start(self._environment.now_us(), prepared))

    def take_over(self, roster: Mapping[int, TaskId]) -> None:
        """Takes over from a lost coordinator. ``roster``: every process that may be running, by number."""
        self.carry_out(self.machine.take_over(roster, self._environment.now_us()))

    def handle(self, event: ToCoordinator | JobEvent) -> None:
        if isinstance(event, ProcessDied):
            self._start(self._standby_starts.on_gone(event.process))
        self.carry_out(self.machine.handle(event, self._environment.now_us()))

    def tick(self) -> None:
        """Called at ``wake_us``: lets the machine handle what is due, and starts processes that have waited long
        enough."""
        now_us = self._environment.now_us()
        self._start(self._standby_starts.on_time(now_us))
        self.carry_out(self.machine.tick(now_us))

    def carry_out(self, instructions: Sequence[JobInstruction]) -> None:
        for instruction in instructions:
            match instruction:
                case StartProcess():
                    self._start(self._standby_starts.on_start(instruction, self._environment.now_us()))
                case Send(number, message):
                    if isinstance(message, Promote) and number in self.machine.processes:  # else given up again since
                        self._standby_starts.on_promoted(self.machine.processes[number].task)
                    self._environment.send(number, message)
                case DismissProcess(number):
                    self._environment.dismiss(number)
                case KillProcess(number):
                    self._environment.kill(number)
                    self._start(self._standby_starts.on_gone(number))
                case WriteManifest(manifest):
                    self._environment.write_manifest(manifest)
                case OpenGeneration(generation):
                    self._open_generation(generation)
                case ReportEvent(event):
                    self._environment.report(event)
                    self._start(self._standby_starts.on_event(event))
                case EndJob():
                    self._environment.end(instruction)

    def _start(self, requests: Sequence[StartProcess]) -> None:
        for request in requests:
            if request.process in self.machine.processes:
                self._environment.start(request)

    def _open_generation(self, generation: int) -> None:
        """Opens a generation, however long storage does not answer: nothing of the job goes on without it. Ends the
        job's run if it cannot be opened, as for a coordinator that has been replaced."""
        environment = self._environment
        try:
            until_answered(
                lambda: environment.open_generation(generation),
                lambda problem: environment.report(StorageAwaited(None, problem)),
                environment.is_interrupted,
            )
        except CheckpointError as problem:
            environment.end(EndJob(type(problem).__name__, str(problem)))


def complete(manifest: Manifest, store: SnapshotStore, kept: int = 2) -> Iterator[JobEvent]:
    """Writes a manifest, which completes its checkpoint. Then deletes all checkpoints but the ``kept`` newest."""
    event = write_manifest(manifest, store)
    yield event
    if isinstance(event, ManifestWritten):
        yield retire(store, kept)
