"""Parts of the coordinator's side of checkpoint protocols: numbers of epochs, and snapshots that no manifest names."""

from __future__ import annotations

from clonos_py.job.completed import CompletedCheckpoint
from clonos_py.model.ids import TaskId
from clonos_py.model.snapshots import TaskHandle
from clonos_py.protocols.parts.epoch_numbers import EpochNumbers
from clonos_py.protocols.parts.gathered import GatheredSnapshots
from tests.unit.job.stage import MIDDLE, SOURCE, chain


def numbers(unseen_max: int = 2) -> EpochNumbers:
    return EpochNumbers(CompletedCheckpoint(chain(), None, "", "run"), unseen_max)


def test_no_number_is_used_twice() -> None:
    given = numbers()
    first = [given.next(), given.next()]
    given.skip_to(5)
    given.skip_to(3)
    assert [*first, given.next()] == [1, 2, 6]


def test_a_new_coordinator_does_not_use_numbers_that_no_process_has_received() -> None:
    given = numbers(unseen_max=3)
    given.resume(newest=7)
    assert given.next() == 11


def snapshot(task: TaskId, checkpoint: int) -> TaskHandle:
    return TaskHandle(task, checkpoint, {}, b"", {})


def test_a_later_snapshot_replaces_an_earlier_one_of_its_task_unless_several_are_kept() -> None:
    first, other, second = snapshot(SOURCE, 1), snapshot(MIDDLE, 2), snapshot(SOURCE, 3)
    for several, kept in ((False, [other, second]), (True, [first, other, second])):
        gathered = GatheredSnapshots(several)
        for process, handle in enumerate((first, other, second)):
            gathered.add(process, handle)
        assert gathered.handles == kept


def test_snapshots_of_failed_processes_are_dropped() -> None:
    gathered = GatheredSnapshots(several=True)
    gathered.add(1, snapshot(SOURCE, 1))
    gathered.add(2, snapshot(MIDDLE, 2))
    gathered.drop_all_but_those_of({2, 3})
    assert gathered.handles == [snapshot(MIDDLE, 2)]
    gathered.clear()
    assert gathered.handles == []
