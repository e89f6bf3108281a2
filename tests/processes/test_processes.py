"""The driver's threads and sockets with real processes' life, but in one Python process and without Ray."""

from __future__ import annotations

import gc
import socket
import threading
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from clonos_py.checkpoint.storage import CheckpointStore
from clonos_py.connectors.digests import read_digest
from clonos_py.job.events import EndJob, JobPolicy, ProcessDied, StartProcess
from clonos_py.model.coordinator_events import (
    CheckpointCompleted,
    CoordinatorEvent,
    CoordinatorReplaced,
    Deployed,
    Replayed,
    RolledBack,
    StandbyLost,
    StandbyPromoted,
    TaskLost,
)
from clonos_py.model.ids import TaskId
from clonos_py.model.messages import Promote, Started, Stop, ToCoordinator, ToProcess
from clonos_py.model.plan import PhysicalPlan
from clonos_py.model.retention import Spill
from clonos_py.process.contract import ChannelLimits
from clonos_py.runtime.held_folders import LOCK_FILE, unheld
from clonos_py.runtime.placement import Placement
from clonos_py.runtime.ray.job_loop import Interrupt, JobListeners, JobLoop
from clonos_py.runtime.ray.process import Deployment, ProcessRuntime
from clonos_py.runtime.transport.tls import TlsFiles
from tests.machines import job_machine, sides_of
from tests.ray.counting_job import counting, expected_digest
from tests.unit.runtime.certificates import Authority
from tests.waiting import wait_until


class Threads:
    """The platform of these tests: a process is a few threads. It serves one coordinator after the other."""

    standbys_per_process = 1
    nodes: Sequence[str] = ("node 0", "node 1")

    def __init__(self, deployment: Deployment) -> None:
        self._deployment = deployment
        self._placement = Placement(self.standbys_per_process)
        self._loop: JobLoop | None = None
        self._processes: dict[int, ProcessRuntime] = {}
        self.roster: dict[int, TaskId] = {}
        self.outlives = False
        """Whether processes go on when the coordinator ends."""

    def serve(self, loop: JobLoop) -> None:
        """Messages that the former coordinator has not received are lost."""
        self._loop = loop
        for process in list(self._processes.values()):
            process.report_started()

    def put(self, event: Any) -> None:
        assert self._loop is not None
        self._loop.put(event)

    def start(self, request: StartProcess) -> None:
        number, task = request.process, request.task
        if request.reuse is not None:
            before = self._drop(request.reuse)
            assert before is not None
            assert before.end(patience_s=5.0)
            before.wait()
        seat = self._placement.place(number, task, self.nodes, request.shares)
        assert seat is not None
        process = ProcessRuntime(self._deployment, number, task, seat.node, "127.0.0.1", self.put, seat.host_process)
        self._processes[number], self.roster[number] = process, task
        process.start()

    def send(self, number: int, message: ToProcess) -> None:
        if isinstance(message, Promote):
            self._placement.promoted(number)
        if number in self._processes:
            self._processes[number].deliver(message)

    def dismiss(self, number: int) -> None:
        self.send(number, Stop("its home is a task's now"))
        self._drop(number)

    def kill(self, number: int) -> None:
        for sharing in self._placement.sharing(number):
            if process := self._drop(sharing):
                process.abandon()
            if sharing != number:
                self.put(ProcessDied(sharing, "its home was ended"))

    def _drop(self, number: int) -> ProcessRuntime | None:
        self.roster.pop(number, None)
        self._placement.leave(number)
        return self._processes.pop(number, None)

    def cpu_us(self, number: int) -> int | None:
        return None

    def crash(self, number: int) -> bool:
        if number not in self._processes:
            return False
        self.kill(number)
        self.put(ProcessDied(number, "killed"))
        return True

    def close(self, patience_s: float) -> None:
        for number in [] if self.outlives else list(self._processes):
            self.kill(number)


class SharedHomes(Threads):
    """Three standbys share a host, until one of them is needed. There is one node: the loss of another would promote
    several of them together."""

    standbys_per_process = 3
    nodes = ("node 0",)


class Zombies(Threads):
    """A process that is to crash is declared dead, and continues to run."""

    def crash(self, number: int) -> bool:
        self.put(ProcessDied(number, "silent for the heartbeat timeout"))
        return True


class Cuts(Threads):
    """All connections of a process that is to crash break."""

    def crash(self, number: int) -> bool:
        endpoint = self._processes[number]._link._channels._endpoint
        for connection in list(endpoint._connections.values()):
            with suppress(OSError):
                connection.sock.shutdown(socket.SHUT_RDWR)
        return True


def run(
    plan: PhysicalPlan,
    folder: Path,
    kills: list[tuple[int, TaskId]],
    limits: ChannelLimits = ChannelLimits(),  # noqa: B008 - frozen
    tls: TlsFiles | None = None,
    platform: type[Threads] = Threads,
    coordinators_s: Sequence[float] = (),
    meanwhile: Callable[[Threads, JobLoop], None] = lambda threads, loop: None,
) -> tuple[EndJob | None, list[CoordinatorEvent]]:
    """``coordinators_s``: how long each coordinator but the last runs; ``meanwhile`` is called after each."""
    events: list[CoordinatorEvent] = []
    store = CheckpointStore(str(folder / "checkpoints"), plan.job)
    with TemporaryDirectory(prefix="clonos-") as sockets:
        open_store = partial(CheckpointStore, str(folder / "checkpoints"), plan.job)
        deployment = Deployment(plan, *sides_of(plan), open_store, b"secret", limits, 10_000, True, Path(sockets), tls)
        threads = platform(deployment)
        for life_s in coordinators_s:
            threads.outlives = True
            loop = _loop(plan, store, events, kills, threads)
            timer = threading.Timer(life_s, loop.put, [Interrupt()])
            timer.start()
            assert loop.run(threads) is None
            meanwhile(threads, loop)
            kills = []
        threads.outlives = False
        return _loop(plan, store, events, kills, threads).run(threads), events


def _loop(
    plan: PhysicalPlan,
    store: CheckpointStore,
    events: list[CoordinatorEvent],
    kills: list[tuple[int, TaskId]],
    threads: Threads,
) -> JobLoop:
    """A coordinator, the first or another, whose messages the processes accept from now on."""
    policy = JobPolicy(checkpoint_interval_us=400_000)
    generation = store.open_generation()
    machine = job_machine(plan, policy, store.latest(), generation)

    listeners = JobListeners(
        lambda at_us, event: events.append(event), lambda at_us, task: None, lambda task, number, counts: None
    )
    loop = JobLoop(machine, store, listeners, kills=kills, roster=dict(threads.roster) or None)
    threads.serve(loop)
    return loop


def loops_at_work() -> list[str]:
    """The threads of processes that have not ended."""
    return [t.name for t in threading.enumerate() if t.name.split()[0] in ("link", "task", "storage", "spill")]


def test_a_job_runs_to_its_end_over_sockets(tmp_path: Path) -> None:
    end, events = run(counting(str(tmp_path), total=2_000, rate=4_000), tmp_path, [])
    assert end == EndJob()
    assert read_digest(str(tmp_path / "rows")) == expected_digest(2_000)
    assert read_digest(str(tmp_path / "near")) == read_digest(str(tmp_path / "far"))
    assert CheckpointCompleted in [type(event) for event in events]
    wait_until(lambda: not loops_at_work(), threading.enumerate)


def test_every_task_dies_in_turn_and_no_row_is_lost_or_doubled(tmp_path: Path) -> None:
    kills = [
        (700_000, TaskId("count", 0)),
        (1_400_000, TaskId("numbers", 1)),
        (2_100_000, TaskId("audit", 0)),
    ]
    end, events = run(counting(str(tmp_path), total=6_000, rate=2_000), tmp_path, kills)
    happened = [type(event) for event in events]
    assert end == EndJob()
    assert happened.count(Replayed) == 3
    assert RolledBack not in happened
    assert read_digest(str(tmp_path / "rows")) == expected_digest(6_000)
    assert read_digest(str(tmp_path / "near")) == read_digest(str(tmp_path / "far"))


def test_all_tasks_go_back_in_their_processes_when_one_dies(tmp_path: Path) -> None:
    plan = replace(counting(str(tmp_path), total=6_000, rate=2_000), sharing_depth=0, rollback=True)
    kills = [(700_000, TaskId("count", 0)), (1_400_000, TaskId("numbers", 1)), (2_100_000, TaskId("audit", 0))]
    end, events = run(plan, tmp_path, kills)
    happened = [type(event) for event in events]
    assert end == EndJob()
    assert 1 <= happened.count(RolledBack) <= 3, "kills that are late come together, and cost one rollback"
    assert StandbyLost not in happened
    assert read_digest(str(tmp_path / "rows")) == expected_digest(6_000)
    assert read_digest(str(tmp_path / "near")) == read_digest(str(tmp_path / "far"))
    wait_until(lambda: not loops_at_work(), threading.enumerate)


def test_standbys_that_share_a_host_are_promoted_and_leave_in_turn(tmp_path: Path) -> None:
    """Remaining threads would be found at the end."""
    kills = [
        (700_000, TaskId("count", 0)),
        (700_000, TaskId("count", 1)),
        (1_400_000, TaskId("numbers", 1)),
        (2_100_000, TaskId("audit", 0)),
    ]
    end, events = run(counting(str(tmp_path), total=6_000, rate=2_000), tmp_path, kills, platform=SharedHomes)
    happened = [type(event) for event in events]
    assert end == EndJob()
    assert happened.count(Replayed) >= 4
    assert happened.count(StandbyLost) > 0
    assert RolledBack not in happened
    assert read_digest(str(tmp_path / "rows")) == expected_digest(6_000)
    assert read_digest(str(tmp_path / "near")) == read_digest(str(tmp_path / "far"))
    wait_until(lambda: not loops_at_work(), threading.enumerate)


def test_a_standby_that_is_stopped_leaves_no_threads_sockets_or_state(tmp_path: Path) -> None:
    """Other standbys may continue in its process: no threads, sockets or state of this one may stay with them."""
    plan = counting(str(tmp_path))
    messages: list[ToCoordinator] = []
    before = set(threading.enumerate())  # some of these may end meanwhile
    with TemporaryDirectory(prefix="clonos-") as sockets:
        open_store = partial(CheckpointStore, str(tmp_path / "checkpoints"), plan.job)
        deployment = Deployment(
            plan, *sides_of(plan), open_store, b"secret", ChannelLimits(), 10_000, True, Path(sockets)
        )
        process = ProcessRuntime(
            deployment, 7, TaskId("count", 0), "node", "127.0.0.1", messages.append, host_process=4
        )
        process.start()
        assert [message.host_process for message in messages if isinstance(message, Started)] == [4]
        process.deliver(Stop("its home is a task's now"))
        process.wait()
        assert not set(threading.enumerate()) - before
        assert [path.name for path in Path(sockets).iterdir()] == [LOCK_FILE]
        with unheld(Path(sockets)) as left_behind:
            assert left_behind
    left = weakref.ref(process._machine)
    del process
    gc.collect()
    assert left() is None


LIKE_THRESHOLD = (Spill.EPOCH, Spill.BUFFER)
"""``tests/sim`` has all policies; what a process reads back from its disk is the same."""


@pytest.mark.parametrize(
    "policy", [Spill.THRESHOLD, *(pytest.param(policy, marks=pytest.mark.thorough) for policy in LIKE_THRESHOLD)]
)
def test_frames_replayed_from_disk_equal_those_that_were_sent(tmp_path: Path, policy: Spill) -> None:
    kills = [(500_000, TaskId("count", 0)), (1_300_000, TaskId("audit", 1))]
    limits = ChannelLimits(policy=policy, spill_bytes=1_000)
    end, events = run(counting(str(tmp_path), total=4_000, rate=2_000), tmp_path, kills, limits)
    assert end == EndJob()
    assert [type(event) for event in events].count(StandbyPromoted) == 2
    assert read_digest(str(tmp_path / "rows")) == expected_digest(4_000)
    assert read_digest(str(tmp_path / "near")) == read_digest(str(tmp_path / "far"))


def test_frames_are_regenerated_for_replaced_receivers_and_a_source_restarts_at_its_last_landmark(
    tmp_path: Path,
) -> None:
    plan = counting(str(tmp_path), total=6_000, rate=2_000)
    numbers, *others = plan.vertices
    regenerating = replace(plan, vertices=(replace(numbers, regenerates=True), *others))
    kills = [
        (500_000, TaskId("count", 0)),
        (1_100_000, TaskId("numbers", 1)),
        (1_700_000, TaskId("numbers", 0)),
        (1_700_000, TaskId("count", 1)),
    ]
    end, events = run(regenerating, tmp_path, kills, ChannelLimits(policy=Spill.REGENERATE))
    assert end == EndJob()
    assert [type(event) for event in events].count(StandbyPromoted) == 4
    assert RolledBack not in [type(event) for event in events]
    assert read_digest(str(tmp_path / "rows")) == expected_digest(6_000)
    assert read_digest(str(tmp_path / "near")) == read_digest(str(tmp_path / "far"))


def test_tasks_die_and_no_row_is_lost_or_doubled_over_tls(tmp_path: Path) -> None:
    kills = [(500_000, TaskId("count", 0)), (1_300_000, TaskId("numbers", 1))]
    tls = Authority(tmp_path / "authority").files()
    end, events = run(counting(str(tmp_path), total=4_000, rate=2_000), tmp_path, kills, tls=tls)
    assert end == EndJob()
    assert [type(event) for event in events].count(StandbyPromoted) == 2
    assert read_digest(str(tmp_path / "rows")) == expected_digest(4_000)
    assert read_digest(str(tmp_path / "near")) == read_digest(str(tmp_path / "far"))


def test_tasks_that_are_replaced_while_they_still_run_do_no_harm(tmp_path: Path) -> None:
    """Sources, operators and sinks: their zombies keep their sockets, their storage and their sinks."""
    kills = [
        (700_000, TaskId("audit", 0)),
        (1_000_000, TaskId("count", 0)),
        (1_500_000, TaskId("numbers", 1)),
        (1_900_000, TaskId("count", 1)),
    ]
    end, events = run(counting(str(tmp_path), total=5_000, rate=2_000), tmp_path, kills, platform=Zombies)
    happened = [type(event) for event in events]
    assert end == EndJob()
    assert happened.count(StandbyPromoted) == 4
    assert RolledBack not in happened
    assert read_digest(str(tmp_path / "rows")) == expected_digest(5_000)
    assert read_digest(str(tmp_path / "near")) == read_digest(str(tmp_path / "far"))


def test_broken_connections_lose_no_row_and_replace_no_process(tmp_path: Path) -> None:
    tasks = [TaskId("count", 0), TaskId("numbers", 1), TaskId("audit", 1), TaskId("count", 1)]
    kills = [(500_000 + 100_000 * number, tasks[number % 4]) for number in range(12)]
    end, events = run(counting(str(tmp_path), total=4_000, rate=2_000), tmp_path, kills, platform=Cuts)
    assert end == EndJob()
    assert TaskLost not in [type(event) for event in events]
    assert read_digest(str(tmp_path / "rows")) == expected_digest(4_000)
    assert read_digest(str(tmp_path / "near")) == read_digest(str(tmp_path / "far"))


def test_coordinators_are_lost_and_their_successors_take_over_the_running_tasks(tmp_path: Path) -> None:
    """A task dies while there is no coordinator, and again when the next is lost."""

    def kill(threads: Threads, loop: JobLoop) -> None:
        owners = {task: number for number, (task, active, _) in loop.processes().items() if active}
        threads.kill(owners[TaskId("count", 1)])

    plan = counting(str(tmp_path), total=6_000, rate=2_000)
    end, events = run(plan, tmp_path, [], coordinators_s=(1.0, 0.8), meanwhile=kill)
    happened = [type(event) for event in events]
    assert end == EndJob()
    assert happened.count(CoordinatorReplaced) == 2
    assert happened.count(Deployed) == 1
    assert [event.task for event in events if isinstance(event, StandbyPromoted)] == [TaskId("count", 1)] * 2
    assert RolledBack not in happened
    assert read_digest(str(tmp_path / "rows")) == expected_digest(6_000)
    assert read_digest(str(tmp_path / "near")) == read_digest(str(tmp_path / "far"))
