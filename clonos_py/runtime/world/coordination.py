"""The coordinator of a world: the environment of its executor, and its processes. It can be lost and replaced.

Messages from a lost coordinator arrive as long as it has no successor. Messages to it are lost. Processes that it has
requested start in any case. A manifest that it was writing may still be written; if a successor has opened a generation
before that, storage refuses it.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Hashable, Iterator, Sequence
from functools import partial
from typing import TypeVar

from clonos_py.checkpoint.store import SnapshotStore
from clonos_py.job.completed import CompletedCheckpoint
from clonos_py.job.events import EndJob, JobEvent, JobPolicy, ProcessDied, StartProcess, StopRequested
from clonos_py.job.fleet import TaskProcess
from clonos_py.job.machine import JobMachine
from clonos_py.model.coordinator_events import CoordinatorEvent, StorageAwaited
from clonos_py.model.ids import TaskId
from clonos_py.model.messages import Promote, Started, StatusReport, Stop, ToCoordinator, ToProcess
from clonos_py.model.plan import PhysicalPlan
from clonos_py.model.snapshots import Manifest
from clonos_py.model.times import MAX_TIME
from clonos_py.protocols.known import protocol_of
from clonos_py.runtime.executors.job import JobExecutor
from clonos_py.runtime.executors.preparation import PreparationExecutor
from clonos_py.runtime.manifests import dated
from clonos_py.runtime.roster import NO_PLACE, Roster
from clonos_py.runtime.storage_waits import until_answered
from clonos_py.runtime.world.actions import Actions
from clonos_py.runtime.world.dispatcher import Dispatcher
from clonos_py.runtime.world.layers import Layers

T = TypeVar("T")
_NODE = ""


class Coordination:
    """The coordinators of a job, one after the other, and their processes. Implements ``JobEnvironment``."""

    def __init__(
        self,
        plan: PhysicalPlan,
        store: SnapshotStore,
        policy: JobPolicy,
        code_digest: str,
        standbys_per_process: int,
        standby_patience_us: int,
        listener: Callable[[int, CoordinatorEvent], None],
        actions: Actions,
        dispatcher: Dispatcher,
        layers: Layers,
        processes: Container[int],
        start_process: Callable[[StartProcess], None],
        end_process: Callable[[int], object],
        end: Callable[[EndJob], None],
        store_outside: Callable[[Callable[[], Callable[[], None]]], None] | None,
    ) -> None:
        """``processes``: the numbers of the processes that are up. ``end`` is called when the job ends.
        ``store_outside``: see ``OutsideStorage``."""
        self._plan, self._store, self._policy, self._code_digest = plan, store, policy, code_digest
        self._listener, self._actions, self._dispatcher, self._layers = listener, actions, dispatcher, layers
        self._processes, self._start_process, self._end_process = processes, start_process, end_process
        self._fence = layers.fence or end_process
        self._end = end
        self._store_outside = store_outside
        self._standbys_per_process, self._standby_patience_us = standbys_per_process, standby_patience_us
        self._kept: dict[int, TaskId] = {}
        """The processes that the driver keeps: a coordinator has requested them, and none has said that they are
        gone."""
        self._host_processes: dict[int, int] = {}
        """Of all processes that were ever requested."""
        self._ended_host_processes: set[int] = set()
        self._term = 0
        self._stop_requested = False
        self.lost = False
        self.preparation: PreparationExecutor | None = None
        """The processes that start and load state before the deployment begins."""
        self._starting: set[int] = set()
        self._tick_at = MAX_TIME
        self._begin()

    def _begin(self) -> None:
        """Opens the generation, then reads the last checkpoint: from then on it stays the last one. The successor of a
        lost coordinator waits for storage."""
        generation, latest = self._answered(self._store.open_generation), self._answered(self._store.latest)
        self.job = JobMachine(
            self._plan,
            self._policy,
            protocol_of(self._plan).job,
            latest,
            generation,
            self._code_digest,
        )
        self._executor = JobExecutor(self._layers.coordinator(self.job), self, self._standby_patience_us)
        self._roster = Roster(self._standbys_per_process, self._gone)

    def _answered(self, ask: Callable[[], T]) -> T:
        return until_answered(ask, lambda problem: self.report(StorageAwaited(None, problem)), lambda: self._term == 0)

    def _gone(self, number: int) -> None:
        """The driver learns that it need not keep a process any longer, unless the coordinator is lost before that."""
        self._actions.after("control", "coordinator to driver", partial(self._dropped, self._term, number))

    def _dropped(self, term: int, number: int) -> None:
        if term == self._term and not self.lost:
            self.drop(number)

    def drop(self, number: int) -> None:
        """The driver keeps a process no longer: no later coordinator takes it over."""
        self._kept.pop(number, None)

    # ---- loss

    def lose(self) -> None:
        """The coordinator dies now, as if by SIGKILL. Another replaces it after a while."""
        if not self.lost:
            self.lost = True
            self._actions.after("start", "coordinator", self._replace)

    def _replace(self) -> None:
        self.lost, self.preparation, self._tick_at = False, None, MAX_TIME
        self._term += 1
        self._begin()
        for number, task in self._kept.items():
            self._roster.adopt(number, task, self._host_processes[number])
            self._roster.introduce(number, _NODE)
        self._executor.take_over(dict(self._kept))
        self._plan_tick()
        for number in sorted(self._kept):
            if number in self._starting:
                self.send_to_coordinator(number, StatusReport(number))
            elif number in self._processes:
                self.send_to_coordinator(number, self._up(number))
            else:
                self.notice_death(number, "its process has ended")
        if self._stop_requested:
            self.request_stop()

    # ---- events for the coordinator

    def send_to_coordinator(self, queue: Hashable, event: ToCoordinator | JobEvent) -> None:
        """Sends a message or event to the coordinator."""
        self._send_to_coordinator_after("control", (queue, "to coordinator"), event)

    def notice_death(self, number: int, reason: str) -> None:
        """Reports a death after a while, as a platform would. The process may have ended, or only seem dead."""
        self._send_to_coordinator_after("detect", ("detect", number), ProcessDied(number, reason))

    def started(self, number: int) -> None:
        """A process has started."""
        self._starting.discard(number)
        self.send_to_coordinator(number, self._up(number))

    def _up(self, number: int) -> Started:
        return Started(number, str(number), self._host_processes[number] if self._standbys_per_process > 1 else 0)

    def _send_to_coordinator_after(self, kind: str, queue: Hashable, event: ToCoordinator | JobEvent) -> None:
        """Delivers an event to the current coordinator, unless it is lost by then."""
        take = partial(self._take, self._term, event)
        self._actions.after(kind, queue, partial(self._dispatcher.coordinator, take))

    def _take(self, term: int, event: ToCoordinator | JobEvent) -> None:
        if term == self._term and not self.lost:
            self._note(event)
            self._handle(event)

    def _note(self, event: ToCoordinator | JobEvent) -> None:
        """Keeps the roster up to date, as a platform does when a process is created or dies."""
        match event:
            case Started(number) if self._roster.host_process(number) is not None:
                self._roster.created(number)
            case ProcessDied(number) if self.in_host_process_of(number):  # it only seems dead, or has left its place
                self._roster.drop(number)
            case ProcessDied(number):
                self._end_in_roster(number)
            case _:
                pass

    def _end_in_roster(self, number: int) -> None:
        host_process = self._roster.host_process(number)
        if host_process is not None:
            self._roster.end_host_process(host_process, self._actions.now_us / 1e6)

    # ---- time

    def start_job(self, ahead: CompletedCheckpoint | None = None) -> None:
        """Begins the deployment. ``ahead``: a checkpoint that its processes load before, as for a run that another one
        follows."""
        if ahead is None:
            self._start_deployment()
        else:
            self.preparation = PreparationExecutor(self._layers.preparation(self._plan), self)
            self.preparation.start()
            self.preparation.load(ahead)

    def _start_deployment(self, prepared: Sequence[TaskProcess] = ()) -> None:
        self._executor.start(prepared)
        self._plan_tick()

    def _prepare(self, executor: PreparationExecutor, event: ToCoordinator | JobEvent) -> None:
        executor.handle(event)
        preparation = executor.preparation
        assert preparation.problem is None
        if preparation.settled:
            self.preparation = None
            self._start_deployment(preparation.up)
            if self._stop_requested:
                self.request_stop()

    def request_stop(self) -> None:
        """The driver requests it of each coordinator that takes the place of a lost one, too."""
        self._stop_requested = True
        self.send_to_coordinator("driver", StopRequested())

    def _handle(self, event: ToCoordinator | JobEvent) -> None:
        if self.preparation is not None:
            self._prepare(self.preparation, event)
            return
        self._executor.handle(event)
        self._plan_tick()

    def _plan_tick(self) -> None:
        wake_us = self._executor.wake_us
        if wake_us != self._tick_at:
            self._tick_at = wake_us
            tick = partial(self._tick, wake_us, self._term)
            self._actions.at(wake_us, partial(self._dispatcher.coordinator, tick))

    def _tick(self, at_us: int, term: int) -> None:
        if at_us == self._tick_at and term == self._term and not self.lost:
            self._tick_at = MAX_TIME
            self._executor.tick()
            self._plan_tick()

    def now_us(self) -> int:
        return self._actions.now_us

    # ---- processes

    def start(self, request: StartProcess) -> None:
        number, reuse = request.process, request.reuse
        seat = self._roster.place(request, (_NODE,))
        if seat is None:
            self.notice_death(number, NO_PLACE)
            return
        self._kept[number], self._host_processes[number] = request.task, seat.host_process
        self._starting.add(number)
        start = partial(self._start_requested, request)
        if reuse is None:
            self._actions.after("start", ("start", number), start)
        else:
            self._roster.drop(reuse)
            begin = partial(self._dispatcher.host, reuse, start)
            self._actions.after("control", (reuse, "from coordinator"), begin)

    def _start_requested(self, request: StartProcess) -> None:
        """Starts a process, unless it was killed before that or its host process has died."""
        number = request.process
        if number not in self._starting:
            return
        if self._host_processes[number] not in self._ended_host_processes:
            self._start_process(request)
        else:
            self._starting.discard(number)
            self.notice_death(number, "its process died")

    def host_process(self, number: int) -> int:
        """The number of the host process of a process: that of the first process in it."""
        return self._host_processes[number]

    def send(self, number: int, message: ToProcess) -> None:
        if isinstance(message, Promote):
            self._roster.promoted(number)
        self._actions.after(
            "control", (number, "from coordinator"), partial(self._deliver, self._term, number, message)
        )

    def _deliver(self, term: int, number: int, message: ToProcess) -> None:
        if term == self._term:
            self._dispatcher.link(number, message)

    def dismiss(self, number: int) -> None:
        self.send(number, Stop("its process has become another task's"))
        self._roster.dismiss(number)

    def kill(self, number: int) -> None:
        self._end_in_roster(number)
        self._starting.discard(number)
        self._fence(number)
        self.end_host_process(number, "its process was ended", self._fence)

    def in_host_process_of(self, number: int) -> list[int]:
        """All processes in the host process of a process, up or still starting. None if it had no place."""
        host_process = self._host_processes.get(number)
        return [
            n
            for n in sorted(self._host_processes)
            if self._host_processes[n] == host_process and (n in self._processes or n in self._starting)
        ]

    def end_host_process(self, number: int, reason: str, end: Callable[[int], object]) -> None:
        """Ends all other processes in the host process of a process, and reports their deaths."""
        others = [other for other in self.in_host_process_of(number) if other != number]
        self._ended_host_processes.add(self._host_processes[number])
        for other in others:
            self._starting.discard(other)
            end(other)
            self.notice_death(other, reason)

    # ---- checkpoint storage

    def write_manifest(self, manifest: Manifest) -> None:
        manifest = dated(manifest, self._actions.now_us)
        if self._store_outside is not None:
            self._write_outside(manifest, iter(self._layers.complete(manifest, self._store)))
        else:
            self._actions.after("disk", "manifest", partial(self._write, manifest))

    def _write(self, manifest: Manifest) -> None:
        for event in self._layers.complete(manifest, self._store):
            self._dispatcher.coordinator(partial(self._stored, manifest, event))

    def _write_outside(self, manifest: Manifest, events: Iterator[JobEvent]) -> None:
        """Requests the next event. Each is delivered at once: a checkpoint is complete before others are deleted."""
        assert self._store_outside is not None
        self._store_outside(partial(self._next_stored, manifest, events))

    def _next_stored(self, manifest: Manifest, events: Iterator[JobEvent]) -> Callable[[], None]:
        """Writes or deletes. Returns an action for the thread of the world: it delivers the result and continues."""
        event = next(events, None)
        return partial(self._deliver_stored, manifest, event, events)

    def _deliver_stored(self, manifest: Manifest, event: JobEvent | None, events: Iterator[JobEvent]) -> None:
        if event is not None:
            self._dispatcher.coordinator(partial(self._stored, manifest, event))
            self._write_outside(manifest, events)

    def _stored(self, manifest: Manifest, event: JobEvent) -> None:
        """Passes the result of writing a manifest to the coordinator that requested it, if it is still there."""
        if not self.lost and manifest.generation == self.job.generation:
            self._handle(event)

    def open_generation(self, generation: int) -> None:
        self._store.open_generation(generation - 1)

    # ---- events

    def is_interrupted(self) -> bool:
        return False

    def report(self, event: CoordinatorEvent) -> None:
        self._listener(self._actions.now_us, event)

    def end(self, end: EndJob) -> None:
        self._end(end)
