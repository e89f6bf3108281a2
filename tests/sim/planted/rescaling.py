"""Bugs of a run that goes on at another parallelism: state, results and positions of former instances are lost, or kept
twice."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from clonos_py.job.completed import CompletedCheckpoint
from clonos_py.job.events import Instructions
from clonos_py.job.fleet import TaskProcess
from clonos_py.job.rounds import Rounds
from clonos_py.model.ids import TaskId
from clonos_py.model.messages import Restore
from tests.sim.planted.bug import Bugs

BUGS = Bugs()
_ALL = ("kill", "crash", "stop")


@BUGS.planted(*_ALL, rescaled=True)
def an_instance_gets_only_the_state_of_the_former_one_of_its_number(patch: pytest.MonkeyPatch) -> None:
    restart = CompletedCheckpoint.restart

    def narrow(self: CompletedCheckpoint, task: TaskId) -> Restore:
        found = restart(self, task)
        if found.progress is not None:
            return found
        return replace(found, operators={n: parts[task.index : task.index + 1] for n, parts in found.operators.items()})

    patch.setattr(CompletedCheckpoint, "restart", narrow)


@BUGS.planted(*_ALL, rescaled=True)
def results_that_former_instances_have_prepared_are_not_committed(patch: pytest.MonkeyPatch) -> None:
    restart = CompletedCheckpoint.restart

    def forgetful(self: CompletedCheckpoint, task: TaskId) -> Restore:
        found = restart(self, task)
        return found if found.progress is not None else replace(found, committables={})

    patch.setattr(CompletedCheckpoint, "restart", forgetful)


@BUGS.planted(*_ALL, rescaled=True)
def a_task_that_fails_before_the_next_checkpoint_gets_its_former_instance_alone(patch: pytest.MonkeyPatch) -> None:
    fail = Rounds.fail

    def failed(self: Rounds, process: TaskProcess, reason: str, planned: bool = False) -> Instructions:
        if not self.deploying:
            an_instance_gets_only_the_state_of_the_former_one_of_its_number(patch)
        return fail(self, process, reason, planned)

    patch.setattr(Rounds, "fail", failed)


@BUGS.planted(*_ALL, rescaled=True)
def a_source_begins_anew_at_another_parallelism(patch: pytest.MonkeyPatch) -> None:
    restart = CompletedCheckpoint.restart

    def without_positions(self: CompletedCheckpoint, task: TaskId) -> Restore:
        found = restart(self, task)
        if found.progress is not None:
            return found
        return replace(found, operators={n: p for n, p in found.operators.items() if not n.startswith("source")})

    patch.setattr(CompletedCheckpoint, "restart", without_positions)
