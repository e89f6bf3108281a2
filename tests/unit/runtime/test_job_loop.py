"""The coordinator's loop with storage and processes of the test: some hang, raise, or are dead already."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from clonos_py.checkpoint.memory import MemoryStore
from clonos_py.job.events import EndJob, JobPolicy, ProcessDied, StartProcess
from clonos_py.model.coordinator_events import (
    CheckpointAborted,
    CheckpointCompleted,
    CoordinatorEvent,
    Deployed,
    StandbyActivated,
    StorageAwaited,
    TaskLost,
)
from clonos_py.model.ids import Attempt, TaskId
from clonos_py.model.messages import (
    Failed,
    HeldLogsReport,
    Ping,
    Pong,
    Promote,
    Sever,
    Snapshotted,
    Started,
    ToProcess,
    TriggerCheckpoint,
)
from clonos_py.model.snapshots import Manifest, TaskHandle
from clonos_py.runtime.ray.job_loop import Interrupt, JobListeners, JobLoop
from tests.machines import job_machine
from tests.unit.job.stage import MIDDLE, SINK, SOURCE, chain
from tests.waiting import wait_until

TASKS = (SOURCE, MIDDLE, SINK)


class Cast:
    """Processes that only answer. ``hosts``: by task, its process."""

    def __init__(self) -> None:
        self.loop: JobLoop
        self.hosts: dict[TaskId, int] = {}
        self.dead: list[int] = []
        self._tasks: dict[int, TaskId] = {}

    def start(self, request: StartProcess) -> None:
        self._tasks[request.process] = request.task
        self.loop.put(Started(request.process, f"host:{request.process}"))

    def send(self, number: int, message: ToProcess) -> None:
        if number in self.dead:
            return
        match message:
            case Promote():
                self.hosts[self._tasks[number]] = number
            case Ping(ping):
                self.loop.put(Pong(number, ping))
            case Sever(round_):
                self.loop.put(HeldLogsReport(number, round_, [], []))
            case TriggerCheckpoint(checkpoint):
                for task in TASKS:
                    self.loop.put(Snapshotted(self.hosts[task], TaskHandle(task, checkpoint, {}, b"", {})))
            case _:
                pass

    def dismiss(self, number: int) -> None: ...

    def kill(self, number: int) -> None: ...

    def crash(self, number: int) -> bool:
        if number in self.dead:
            return False
        self.dead.append(number)
        self.loop.put(ProcessDied(number, "killed"))
        return True

    def cpu_us(self, number: int) -> int | None:
        return None

    def close(self, patience_s: float) -> None: ...


class Storage(MemoryStore):
    """Storage that writes no manifest before it is allowed to, or raises instead."""

    def __init__(self) -> None:
        super().__init__("stage")
        self.allowed = threading.Event()
        self.problem: Exception | None = None

    def write_manifest(self, manifest: Manifest) -> None:
        if self.problem is not None:
            raise self.problem
        self.allowed.wait()
        super().write_manifest(manifest)


@pytest.fixture
def storage() -> Iterator[Storage]:
    made = Storage()
    yield made
    made.allowed.set()


def loop_of(
    storage: Storage,
    policy: JobPolicy,
    kills: list[tuple[int, TaskId]],
    events: list[CoordinatorEvent],
    crashed: list[Any],
) -> tuple[JobLoop, Cast]:
    machine = job_machine(chain(), policy, None, storage.open_generation())
    listeners = JobListeners(
        lambda at, event: events.append(event), lambda at, task: crashed.append(task), lambda t, n, c: None
    )
    loop, cast = JobLoop(machine, storage, listeners, kills=kills), Cast()
    cast.loop = loop
    return loop, cast


def test_storage_that_hangs_during_a_manifest_ends_the_job_after_the_timeout(storage: Storage) -> None:
    policy = JobPolicy(checkpoint_interval_us=20_000, manifest_timeout_us=200_000, heartbeat_us=20_000)
    loop, cast = loop_of(storage, policy, [(60_000, MIDDLE)], [], [])
    end = loop.run(cast)
    assert end is not None
    assert end.error == "CheckpointError"
    assert "storage has not answered" in end.message


def test_a_manifest_is_written_as_soon_as_storage_answers(storage: Storage) -> None:
    events: list[CoordinatorEvent] = []
    storage.allowed.set()
    loop, cast = loop_of(storage, JobPolicy(checkpoint_interval_us=20_000, heartbeat_us=20_000), [], events, [])
    storage.be_silent_after_manifest(3)
    ended = threading.Thread(target=loop.run, args=(cast,))
    ended.start()
    wait_until(lambda: any(isinstance(event, CheckpointCompleted) for event in events), lambda: str(events))
    loop.put(Interrupt())
    ended.join()
    assert [event.task for event in events if isinstance(event, StorageAwaited)] == [None]
    assert not any(isinstance(event, CheckpointAborted) for event in events)


def test_an_interrupt_ends_a_wait_for_storage(storage: Storage) -> None:
    """The job rolls back, and no generation can be opened."""
    events: list[CoordinatorEvent] = []
    ends: list[EndJob | None] = []
    loop, cast = loop_of(storage, JobPolicy(checkpoint_interval_us=0, heartbeat_us=20_000), [], events, [])
    ended = threading.Thread(target=lambda: ends.append(loop.run(cast)))
    ended.start()
    wait_until(lambda: any(isinstance(event, Deployed) for event in events))
    storage.be_silent(1 << 60)
    loop.put(Failed(cast.hosts[SINK], "ProtocolError", "a gap"))
    wait_until(lambda: any(isinstance(event, StorageAwaited) for event in events))
    loop.put(Interrupt(EndJob("ClusterError", "taken over")))
    ended.join()
    assert ends == [EndJob("ClusterError", "taken over")]


def test_any_exception_while_a_manifest_is_written_ends_the_job_with_its_text(storage: Storage) -> None:
    storage.problem = ValueError("a client's own\nmistake")
    loop, cast = loop_of(storage, JobPolicy(checkpoint_interval_us=20_000, heartbeat_us=20_000), [], [], [])
    end = loop.run(cast)
    assert end == EndJob("CheckpointError", "the manifest of checkpoint 1: ValueError: a client's own mistake")


def test_two_ordered_failures_of_one_task_hit_it_and_then_its_replacement(storage: Storage) -> None:
    events: list[CoordinatorEvent] = []
    crashed: list[TaskId] = []
    policy = JobPolicy(checkpoint_interval_us=0, heartbeat_us=20_000)
    loop, cast = loop_of(storage, policy, [(1_000, MIDDLE), (1_000, MIDDLE)], events, crashed)
    ended = threading.Thread(target=loop.run, args=(cast,))
    ended.start()
    while [type(event) for event in events].count(StandbyActivated) < 2:
        assert ended.is_alive()
        time.sleep(0.01)
    loop.put(Interrupt())
    ended.join()
    assert crashed == [MIDDLE, MIDDLE]
    lost = [event.attempt for event in events if isinstance(event, TaskLost)]
    assert lost == [Attempt(1, 1), Attempt(1, 2)]
