"""What a snapshot and a step cost a task is measured around the steps of its machine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import pytest

from clonos_py.checkpoint.memory import MemoryStore
from clonos_py.link.instructions import Persist, Persisted
from clonos_py.model.ids import Attempt, TaskId
from clonos_py.model.snapshots import TaskSnapshot
from clonos_py.process.contract import AbortRequest, FromTask, SnapshotTaken, SnapshotTimes, TaskProgress, ToTask
from clonos_py.runtime.executors.low_priority import AtOnce
from clonos_py.runtime.executors.storage import StorageExecutor
from clonos_py.runtime.executors.task import TaskEnvironment, TaskExecutor
from clonos_py.task.machine import TaskMachine
from clonos_py.task.outcome import Outcome

TASK = TaskId("middle", 0)
SNAPSHOT = TaskSnapshot(TASK, 1, {}, b"", {})
TAKEN = SnapshotTaken(SNAPSHOT, TaskProgress([], [], [], [], False, 0, [], [], [], {}), persist=True)
FOREVER = 2**60


class ScriptedMachine:
    """A machine whose steps take the given times. Each step is (milliseconds, events, whether it was the last for now,
    whether frames wait behind a barrier)."""

    def __init__(self, steps: Sequence[tuple[int, Sequence[FromTask], bool, bool]]) -> None:
        self._steps = iter(steps)
        self.now_us = 0
        self.blocked = False
        self.times_us: list[int] = []

    def offer(self, item: ToTask) -> None:
        """Takes an item, which changes no step."""

    def worked(self, us: int) -> None:
        """The last step has taken so long."""
        self.times_us.append(us)

    def step(self, now_us: int) -> Outcome:
        duration_ms, events, idle, self.blocked = next(self._steps)
        self.now_us += duration_ms * 1_000
        return Outcome(list(events), FOREVER if idle else None, ())


def times_of(
    steps: Sequence[tuple[int, Sequence[FromTask], bool, bool]],
    pause_ms: int,
    shares_thread: bool = False,
    aborted_before: int = -1,
) -> list[SnapshotTimes]:
    """The times of all snapshots, if the task waits ``pause_ms`` whenever it has nothing to do."""
    return done(ScriptedMachine(steps), len(steps), pause_ms, shares_thread, aborted_before)


def done(
    machine: ScriptedMachine, steps: int, pause_ms: int, shares_thread: bool, aborted_before: int = -1
) -> list[SnapshotTimes]:
    """Does so many steps. Returns the times of all snapshots."""
    produced = list[FromTask]()
    environment = TaskEnvironment(
        produced.extend, lambda call: None, AtOnce(), lambda: 0, lambda: machine.now_us, shares_thread
    )
    executor = TaskExecutor(cast(TaskMachine, cast(Any, machine)), environment)
    for number in range(steps):
        if number == aborted_before:
            executor.offer(AbortRequest(1))
        if executor.step() is not None:
            machine.now_us += pause_ms * 1_000
    return [event.times for event in produced if isinstance(event, SnapshotTaken)]


def test_the_step_of_the_snapshot_is_lost_and_work_before_it_is_not() -> None:
    steps = [(5, [], False, False), (2, [], True, False), (7, [TAKEN], False, False)]
    assert times_of(steps, pause_ms=100) == [SnapshotTimes(7, 0, 7)]


def test_time_without_anything_to_take_is_lost_if_frames_wait_behind_a_barrier() -> None:
    steps = [(5, [], True, True), (1, [], True, True), (1, [], True, False), (7, [TAKEN], False, False)]
    assert times_of(steps, pause_ms=100) == [SnapshotTimes(7, 200, 7)]


def test_time_behind_a_barrier_whose_checkpoint_is_aborted_is_no_cost_of_the_next_one() -> None:
    steps = [(5, [], True, True), (1, [], True, True), (7, [TAKEN], False, False)]
    assert times_of(steps, pause_ms=100, aborted_before=1) == [SnapshotTimes(7, 100, 6)]
    assert times_of(steps, pause_ms=100, aborted_before=2) == [SnapshotTimes(7, 0, 6)]


def test_time_that_other_tasks_of_the_thread_use_is_not_lost() -> None:
    steps = [(5, [], True, True), (7, [TAKEN], False, False)]
    assert times_of(steps, pause_ms=100, shares_thread=True) == [SnapshotTimes(7, 0, 5)]


@pytest.mark.parametrize(("shares_thread", "times_us"), [(True, [5_000, 2_000, 7_000]), (False, [])])
def test_a_task_that_shares_its_thread_is_told_what_its_own_steps_take(
    shares_thread: bool, times_us: list[int]
) -> None:
    machine = ScriptedMachine([(5, [], True, False), (2, [], True, False), (7, [], False, False)])
    done(machine, 3, 100, shares_thread)
    assert machine.times_us == times_us


def test_blocked_channels_cost_nothing_while_other_channels_have_rows() -> None:
    assert times_of([(5, [], False, True), (7, [TAKEN], False, False)], pause_ms=100) == [SnapshotTimes(7, 0, 5)]


def test_each_snapshot_counts_from_the_last_one() -> None:
    steps = [(5, [], True, True), (7, [TAKEN], False, False), (3, [], False, False), (2, [TAKEN], False, False)]
    assert times_of(steps, pause_ms=10) == [SnapshotTimes(7, 10, 5), SnapshotTimes(2, 0, 3)]


def test_processor_time_of_persisting_is_that_between_begin_and_end() -> None:
    lost_us = iter([1_000, 3_500])
    storage = StorageExecutor(MemoryStore("job"), {}, lambda: 0, AtOnce(), lambda: next(lost_us))
    (done,) = storage.carry_out(Persist(SNAPSHOT, Attempt(1, 1)))
    assert isinstance(done, Persisted)
    assert done.persist_cpu_ms == 2.5
