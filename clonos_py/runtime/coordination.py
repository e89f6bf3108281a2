"""The coordinator of a world: feeds the job's machine and carries out what it asks. It can be lost, and replaced.

What a lost coordinator had sent arrives as long as it has no successor; what it was told is lost. Processes that it has
asked for come up all the same. A manifest that it was writing may still be written: if that is too late, storage
refuses it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

from clonos_py.checkpoint.store import SnapshotStore
from clonos_py.job.events import (
    DismissProcess,
    EndJob,
    JobEvent,
    JobInstruction,
    JobPolicy,
    KillProcess,
    ManifestWritten,
    OpenGeneration,
    ProcessDied,
    Report,
    Send,
    StartProcess,
    WriteManifest,
)
from clonos_py.job.machine import JobMachine
from clonos_py.model.ids import TaskId
from clonos_py.model.messages import Present, Promote, Started, Stop, ToProcess
from clonos_py.model.plan import PhysicalPlan
from clonos_py.model.snapshots import Manifest
from clonos_py.model.times import MAX_TIME
from clonos_py.runtime.disk import retire, write_manifest
from clonos_py.runtime.placement import Placement, Seat


class Coordination:
    """The part of a world that is its coordinator, one after the other. What it does to processes is for the rest."""

    plan: PhysicalPlan
    store: SnapshotStore
    now_us: int
    ended: EndJob | None
    processes: dict[int, Any]

    def __init__(
        self,
        policy: JobPolicy,
        code_digest: str,
        listener: Callable[[int, Report], None],
        standbys_per_process: int,
    ) -> None:
        self._policy, self._code_digest, self._listener = policy, code_digest, listener
        self._standbys_per_process = standbys_per_process
        self._placement = Placement(standbys_per_process)
        self._host_processes: dict[int, int] = {}
        self._gone_host_processes: set[int] = set()
        self._term = 0
        self._lost = False
        self._roster: dict[int, TaskId] = {}
        self._starting: set[int] = set()
        self._tick_at = MAX_TIME
        self.job = self._machine()

    def _machine(self) -> JobMachine:
        """The generation is opened first: what is the last checkpoint then stays the last."""
        generation = self.store.open_generation()
        return JobMachine(self.plan, self._policy, self.store.latest(), generation, self._code_digest)

    # ---- what the rest of the world does

    def at(self, time_us: int, action: Callable[[], None]) -> None:
        raise NotImplementedError

    def after(self, kind: str, queue: Hashable, action: Callable[[], None]) -> None:
        raise NotImplementedError

    def _start(self, number: int, task: TaskId) -> None:
        raise NotImplementedError

    def _end_process(self, number: int) -> bool:
        raise NotImplementedError

    def _link_event(self, number: int, event: Any) -> None:
        raise NotImplementedError

    # ---- loss

    def lose_coordinator(self) -> None:
        """The coordinator dies now, as by SIGKILL. Another takes its place after a while."""
        if not self._lost:
            self._lost = True
            self.after("start", "coordinator", self._replace_coordinator)

    def _replace_coordinator(self) -> None:
        self._lost, self._tick_at = False, MAX_TIME
        self._term += 1
        self.job = self._machine()
        self._placement = Placement(self._standbys_per_process)
        for number, task in self._roster.items():
            self._placement.put(number, task, Seat("", self._host_processes[number]))
        self._coordinate(self.job.take_over(dict(self._roster), self.now_us))
        for number in sorted(self._roster):
            if number in self._starting:
                self.tell(number, Present(number))
            elif number in self.processes:
                self.tell(number, self._up(number))
            else:
                self.notice_death(number, "it is gone")

    # ---- what the coordinator hears

    def tell(self, queue: Hashable, event: Any) -> None:
        """A message or event is on its way to the coordinator."""
        self._tell_after("control", (queue, "to coordinator"), event)

    def notice_death(self, number: int, reason: str) -> None:
        """The platform will notice that a process has ended, or takes it for dead."""
        self._tell_after("detect", ("detect", number), ProcessDied(number, reason))

    def _started(self, number: int) -> None:
        """A process has come up."""
        self._starting.discard(number)
        self.tell(number, self._up(number))

    def _up(self, number: int) -> Started:
        return Started(number, str(number), self._host_processes[number] if self._standbys_per_process > 1 else 0)

    def _in_host_process_of(self, number: int) -> list[int]:
        """All processes that are one for the operating system, up or still starting."""
        host_process = self._host_processes[number]
        return [
            n
            for n in sorted(self._host_processes)
            if self._host_processes[n] == host_process and (n in self.processes or n in self._starting)
        ]

    def _end_host_process(self, number: int, reason: str, end: Callable[[int], Any]) -> None:
        """Whoever shares the process's host process ends with it, and the platform will notice."""
        others = [other for other in self._in_host_process_of(number) if other != number]
        self._gone_host_processes.add(self._host_processes[number])
        for other in others:
            self._starting.discard(other)
            end(other)
            self.notice_death(other, reason)

    def _fence(self, number: int) -> None:
        """The platform ends a process."""
        self._end_process(number)

    def _tell_after(self, kind: str, queue: Hashable, event: Any) -> None:
        """For the coordinator that there is now, if it is still there then."""
        term = self._term

        def hear() -> None:
            if term == self._term and not self._lost:
                if isinstance(event, ProcessDied):
                    self._placement.remove(event.process, self.now_us / 1e6)
                self._coordinate(self.job.handle(event, self.now_us))

        self.after(kind, queue, lambda: self._by_coordinator(hear))

    def _by_coordinator(self, action: Callable[[], None]) -> None:
        """It is the coordinator's turn to do something."""
        action()

    # ---- what the coordinator asks for

    def _coordinate(self, instructions: list[JobInstruction]) -> None:
        for instruction in instructions:
            self._obey_coordinator(instruction)
        if self.ended is None and self.job.wake_us != self._tick_at:
            at_us, term = self.job.wake_us, self._term
            self._tick_at = at_us
            self.at(at_us, lambda: self._by_coordinator(lambda: self._tick(at_us, term)))

    def _tick(self, at_us: int, term: int) -> None:
        if at_us == self._tick_at and term == self._term and not self._lost:
            self._tick_at = MAX_TIME
            self._coordinate(self.job.tick(self.now_us))

    def _obey_coordinator(self, instruction: JobInstruction) -> None:
        match instruction:
            case StartProcess(number, task, shares):
                self._roster[number] = task
                self._starting.add(number)
                self._host_processes[number] = self._placement.place(number, task, ("",), shares).host_process
                self.after("start", ("start", number), lambda: self._start_wanted(number, task))
            case DismissProcess(number):
                self._placement.leave(number)
                self._send(number, Stop("its process has become another task's"))
            case KillProcess(number):
                self._roster.pop(number, None)
                self._placement.leave(number)
                self._starting.discard(number)
                self._fence(number)
                self._end_host_process(number, "its process was ended", self._fence)
            case Send(number, message):
                self._send(number, message)
            case WriteManifest():
                self.after("disk", "manifest", lambda: self._write_manifest(instruction))
            case OpenGeneration(generation):
                self.store.open_generation(generation - 1)
            case Report():
                self._listener(self.now_us, instruction)
            case EndJob():
                self.ended = instruction

    def _start_wanted(self, number: int, task: TaskId) -> None:
        """Comes up, unless it was killed before, or where it was to be all have died."""
        if number in self._roster and self._host_processes[number] not in self._gone_host_processes:
            self._start(number, task)
        elif number in self._starting:
            self._starting.discard(number)
            self.notice_death(number, "its process died")

    def _send(self, number: int, message: ToProcess) -> None:
        term = self._term
        if isinstance(message, Promote):
            self._placement.promoted(number)

        def deliver() -> None:
            if term == self._term:
                self._link_event(number, message)

        self.after("control", (number, "from coordinator"), deliver)

    def _write_manifest(self, instruction: WriteManifest) -> None:
        event = write_manifest(instruction.manifest, self.store)
        self._by_coordinator(lambda: self._stored(instruction.manifest, event))
        if isinstance(event, ManifestWritten):
            retired = retire(self.store)
            self._by_coordinator(lambda: self._stored(instruction.manifest, retired))

    def _stored(self, manifest: Manifest, event: JobEvent) -> None:
        """What has become of a manifest, for the coordinator that wished for it."""
        if not self._lost and manifest.generation == self.job.generation:
            self._coordinate(self.job.handle(event, self.now_us))
