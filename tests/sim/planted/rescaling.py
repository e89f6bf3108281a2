"""Bugs of a run that goes on at another parallelism: state, results and positions of former instances are lost, or kept
twice."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from clonos_py.job.completed import CompletedCheckpoint
from clonos_py.job.events import Instructions
from clonos_py.job.fleet import TaskProcess
from clonos_py.job.rounds import Rounds
from clonos_py.link.instructions import Instruction
from clonos_py.link.restoring import Restoring
from clonos_py.model.ids import Attempt, TaskId
from clonos_py.model.messages import Restore
from tests.sim.planted.bug import Bugs

BUGS = Bugs()
_ALL = ("kill", "crash", "stop")


def _changed_at_another_parallelism(patch: pytest.MonkeyPatch, change: Callable[[Restore, TaskId], Restore]) -> None:
    """Changes what tasks get of a checkpoint that is of other tasks."""
    restart = CompletedCheckpoint.restart

    def changed(self: CompletedCheckpoint, task: TaskId) -> Restore:
        found = restart(self, task)
        return found if found.progress is not None else change(found, task)

    patch.setattr(CompletedCheckpoint, "restart", changed)


def _of_its_number(found: Restore, task: TaskId) -> Restore:
    return replace(found, operators={n: parts[task.index : task.index + 1] for n, parts in found.operators.items()})


@BUGS.planted(*_ALL, rescaled=True)
def an_instance_gets_only_the_state_of_the_former_one_of_its_number(patch: pytest.MonkeyPatch) -> None:
    _changed_at_another_parallelism(patch, _of_its_number)


@BUGS.planted(*_ALL, rescaled=True)
def results_that_former_instances_have_prepared_are_not_committed(patch: pytest.MonkeyPatch) -> None:
    _changed_at_another_parallelism(patch, lambda found, task: replace(found, committables={}))


@BUGS.planted(*_ALL, rescaled=True)
def a_task_that_fails_before_the_next_checkpoint_gets_its_former_instance_alone(patch: pytest.MonkeyPatch) -> None:
    fail, failures = Rounds.fail, set[TaskId]()

    def failed(self: Rounds, process: TaskProcess, reason: str, planned: bool = False) -> Instructions:
        if not self.deploying:
            failures.add(process.task)
        return fail(self, process, reason, planned)

    patch.setattr(Rounds, "fail", failed)
    _changed_at_another_parallelism(
        patch, lambda found, task: _of_its_number(found, task) if task in failures else found
    )


@BUGS.planted(*_ALL, rescaled=True)
def a_source_begins_anew_at_another_parallelism(patch: pytest.MonkeyPatch) -> None:
    def without_positions(found: Restore, task: TaskId) -> Restore:
        return replace(found, operators={n: p for n, p in found.operators.items() if not n.startswith("source")})

    _changed_at_another_parallelism(patch, without_positions)


@BUGS.planted(*_ALL, rescaled=True)
def what_was_loaded_ahead_counts_as_the_last_state(patch: pytest.MonkeyPatch) -> None:
    promote = Restoring.promote

    def promoted(self: Restoring, attempt: Attempt, restore: Restore) -> list[Instruction]:
        ahead = self.requested
        if ahead is None or ahead.progress is not None or restore.progress is not None:
            return promote(self, attempt, restore)
        return promote(self, attempt, replace(restore, operators=ahead.operators))

    patch.setattr(Restoring, "promote", promoted)
