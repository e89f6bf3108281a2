"""Processes that start and load state before the run that they follow has ended."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import msgspec
import pytest

from clonos_py.job.completed import CompletedCheckpoint
from clonos_py.job.events import Instructions, JobPolicy, ProcessDied, StartProcess
from clonos_py.job.machine import JobMachine
from clonos_py.job.preparation import DEATHS_MAX, Preparation, state_ahead
from clonos_py.job.states import JobState
from clonos_py.model.coordinator_events import Deployed
from clonos_py.model.errors import SettingError
from clonos_py.model.ids import TaskId
from clonos_py.model.messages import Failed, NotPrepared, Prepare, Prepared, Promote, Replay, Started
from clonos_py.model.resources import Resources
from clonos_py.model.snapshots import Manifest, StoredFrames, TaskHandle
from clonos_py.protocols.known import protocol_of
from tests.unit.job.stage import MIDDLE, SINK, SOURCE, chain, happened, of, receivers, sent

PLAN = chain()
TASKS = (SOURCE, MIDDLE, SINK)


def manifest(checkpoint: int, tasks: Sequence[TaskId] = TASKS, **frames: list[StoredFrames]) -> Manifest:
    parallelism = {task.vertex: task.index + 1 for task in tasks}
    handles = [
        TaskHandle(task, checkpoint, {}, b"", {}, frames={0: frames.get(task.vertex, [])} if frames else {})
        for task in tasks
    ]
    return Manifest("stage", checkpoint, 1, 128, parallelism, handles)


def ahead(checkpoint: int) -> CompletedCheckpoint:
    found = state_ahead(manifest(checkpoint), PLAN, JobPolicy())
    assert found is not None
    return found


def begun(state: CompletedCheckpoint | None = None) -> tuple[Preparation, dict[TaskId, int]]:
    """A preparation and the numbers of its processes, which have started; ``state``: what they load."""
    preparation = Preparation(PLAN)
    numbers = {i.task: i.process for i in of(preparation.start(), StartProcess)}
    if state is not None:
        assert preparation.load(state) == []
    for number in numbers.values():
        preparation.handle(Started(number, f"host:{number}", number))
    return preparation, numbers


def settled(preparation: Preparation, numbers: dict[TaskId, int], checkpoint: int) -> None:
    for number in numbers.values():
        assert not preparation.settled
        preparation.handle(Prepared(number, checkpoint))
    assert preparation.settled


def test_processes_load_the_newest_checkpoint_as_soon_as_they_have_started() -> None:
    preparation = Preparation(PLAN)
    requests = of(preparation.start(), StartProcess)
    assert [request.task for request in requests] == list(TASKS)
    preparation.load(ahead(3))
    for request in requests:
        assert not preparation.started
        out = preparation.handle(Started(request.process, "host", request.process))
        ((number, prepare),) = sent(out, Prepare)
        assert (number, prepare.restore.checkpoint) == (request.process, 3)
    assert preparation.started
    settled(preparation, {request.task: request.process for request in requests}, 3)


def test_without_a_checkpoint_it_is_enough_that_they_start() -> None:
    preparation, _ = begun()
    assert preparation.settled


def test_a_newer_checkpoint_is_loaded_once_more_and_what_is_said_of_the_older_one_does_not_count() -> None:
    preparation, numbers = begun(ahead(3))
    settled(preparation, numbers, 3)
    assert receivers(preparation.load(ahead(4)), Prepare) == set(numbers.values())
    preparation.handle(Prepared(numbers[SOURCE], 3))
    preparation.handle(NotPrepared(numbers[MIDDLE], 3, "it was deleted"))
    settled(preparation, numbers, 4)


def test_a_process_that_cannot_load_it_does_not_hold_up_the_others() -> None:
    preparation, numbers = begun(ahead(3))
    preparation.handle(Prepared(numbers[SOURCE], 3))
    preparation.handle(Prepared(numbers[SINK], 3))
    preparation.handle(NotPrepared(numbers[MIDDLE], 3, "it was deleted"))
    assert preparation.settled
    assert preparation.problem is None


def test_a_process_that_dies_is_replaced_until_too_many_have_died() -> None:
    preparation, numbers = begun(ahead(3))
    number = numbers[MIDDLE]
    for _ in range(DEATHS_MAX):
        (again,) = of(preparation.handle(ProcessDied(number, "killed")), StartProcess)
        assert again.task == MIDDLE
        assert again.process not in (number, *numbers.values())
        assert preparation.handle(Prepared(number, 3)) == [], "of one that is gone"
        assert not preparation.settled
        number = again.process
        assert receivers(preparation.handle(Started(number, "host", number)), Prepare) == {number}
    assert preparation.problem is None
    assert preparation.handle(ProcessDied(number, "killed")) == []
    assert preparation.problem == "3 processes for it have died, the last one, of middle[0]: killed"


def test_a_process_that_cannot_run_its_task_ends_the_preparation() -> None:
    preparation, numbers = begun()
    preparation.handle(Failed(numbers[SINK], "SinkError", "the folder is gone"))
    assert preparation.problem == "sink[0] cannot run: the folder is gone"


def test_tasks_with_a_demand_wait_for_what_the_run_before_has() -> None:
    vertices = tuple(replace(v, resources=Resources(cpus=1.0)) if v.name == "middle" else v for v in PLAN.vertices)
    requests = of(Preparation(replace(PLAN, vertices=vertices)).start(), StartProcess)
    assert [request.task for request in requests] == [SOURCE, SINK]


def test_rows_in_flight_are_not_loaded_ahead() -> None:
    """At another parallelism they could not be, and the last checkpoint has none."""
    in_flight = manifest(3, source=[StoredFrames("state/x#0+1:0", 0, 1, 5)])
    found = state_ahead(in_flight, PLAN, JobPolicy())
    assert found is not None
    assert not found.restart(SOURCE).frames
    assert state_ahead(None, PLAN, JobPolicy()) is None
    wider = msgspec.structs.replace(manifest(3), key_groups=64)
    with pytest.raises(SettingError, match="key_groups is 128"):
        state_ahead(wider, PLAN, JobPolicy())


def deployed(preparation: Preparation, newest: Manifest | None) -> tuple[JobMachine, Instructions]:
    machine = JobMachine(PLAN, JobPolicy(), protocol_of(PLAN).job, newest, 2)
    return machine, machine.start(0, preparation.up)


def test_a_coordinator_promotes_prepared_processes_at_once_from_the_last_checkpoint() -> None:
    preparation, numbers = begun(ahead(3))
    machine, out = deployed(preparation, manifest(5))
    promoted = sent(out, Promote)
    assert {number: promote.restore.checkpoint for number, promote in promoted} == dict.fromkeys(numbers.values(), 5)
    assert receivers(out, Replay) == set(numbers.values())
    assert Deployed in happened(out)
    assert machine.state is JobState.RUNNING
    assert {request.process for request in of(out, StartProcess)}.isdisjoint(numbers.values()), "standbys only"


def test_a_task_whose_prepared_process_is_gone_gets_another_one() -> None:
    preparation, numbers = begun(ahead(3))
    preparation.handle(ProcessDied(numbers[MIDDLE], "killed"))
    machine, out = deployed(preparation, manifest(5))
    assert not receivers(out, Promote)
    for request in of(out, StartProcess):
        if request.task == MIDDLE:
            out = machine.handle(Started(request.process, "host", request.process), 1)
            break
    assert receivers(out, Promote) == {numbers[SOURCE], numbers[SINK], request.process}
    assert machine.state is JobState.RUNNING
