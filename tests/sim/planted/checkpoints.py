"""Bugs of checkpoints: when one is complete, what is dropped and committed when, how barriers align."""

from __future__ import annotations

import dataclasses
from typing import Any

import msgspec
import pytest

from clonos_py.job.events import Instructions
from clonos_py.job.rounds import Rounds
from clonos_py.link import instructions as io
from clonos_py.link.epochs import Epochs
from clonos_py.link.machine import LinkMachine
from clonos_py.model.ids import TaskId
from clonos_py.model.messages import Promote, Snapshotted
from clonos_py.model.state import OperatorState
from clonos_py.process.contract import SnapshotTaken
from clonos_py.protocols.parts.coordinated import CoordinatedCheckpoints
from clonos_py.runtime.disk import Snapshots
from clonos_py.task.chain import Chain
from clonos_py.task.inputs import Inputs
from tests.sim.planted.bug import Bugs
from tests.sim.planted.seams import Handle, rehandled

BUGS = Bugs()


@BUGS.planted()
def a_checkpoint_completes_without_its_last_task(patch: pytest.MonkeyPatch) -> None:
    """Its snapshot of the last checkpoint is taken instead."""
    collect = CoordinatedCheckpoints.collect
    acknowledged: dict[int, set[TaskId]] = {}

    def hasty(self: CoordinatedCheckpoints, message: Snapshotted) -> Instructions:
        instructions, checkpoint = collect(self, message), message.handle.checkpoint
        acknowledged.setdefault(checkpoint, set()).add(message.handle.task)
        lacking = set(self.context.plan.tasks) - acknowledged[checkpoint]
        if not self.pending or len(lacking) != 1 or (old := self.completed.handle(lacking.pop())) is None:
            return instructions
        number = self.context.fleet.owner_of(old.task).number
        handle = msgspec.structs.replace(old, checkpoint=checkpoint)
        return [*instructions, *collect(self, msgspec.structs.replace(message, process=number, handle=handle))]

    patch.setattr(CoordinatedCheckpoints, "collect", hasty)


@BUGS.planted()
def the_acknowledgement_of_a_dead_task_counts(patch: pytest.MonkeyPatch) -> None:
    """A task's failure does not abort the checkpoint that it had acknowledged."""
    abort, advance = CoordinatedCheckpoints.abort, Rounds.advance

    def kept(self: CoordinatedCheckpoints, reason: str) -> Instructions:
        return abort(self, reason) if reason != "a task failed" else []

    def regardless(self: Rounds) -> Instructions:
        with pytest.MonkeyPatch.context() as meanwhile:
            meanwhile.setattr(CoordinatedCheckpoints, "pending", False)
            return advance(self)

    patch.setattr(CoordinatedCheckpoints, "abort", kept)
    patch.setattr(Rounds, "advance", regardless)


@BUGS.planted("kill", "delay")
def the_acknowledgement_of_an_earlier_checkpoint_counts(patch: pytest.MonkeyPatch) -> None:
    collect = CoordinatedCheckpoints.collect

    def confused(self: CoordinatedCheckpoints, message: Snapshotted) -> Instructions:
        handle = msgspec.structs.replace(message.handle, checkpoint=self.numbers.last)
        return collect(self, msgspec.structs.replace(message, handle=handle))

    patch.setattr(CoordinatedCheckpoints, "collect", confused)


@BUGS.planted(endless=True)
def numbers_of_aborted_checkpoints_are_used_again(patch: pytest.MonkeyPatch) -> None:
    abort = CoordinatedCheckpoints.abort

    def reused(self: CoordinatedCheckpoints, reason: str) -> Instructions:
        self.numbers.last -= self.pending
        return abort(self, reason)

    patch.setattr(CoordinatedCheckpoints, "abort", reused)


@BUGS.planted()
def frames_count_as_covered_when_the_snapshot_is_taken(patch: pytest.MonkeyPatch) -> None:
    def hasty(handle: Handle, link: LinkMachine, event: SnapshotTaken) -> list[io.Instruction]:
        instructions = handle(link, event)
        for channel in link.inputs:
            channel.covered = event.progress.inputs[channel.index].next_seq
        return instructions

    rehandled(patch, SnapshotTaken, hasty)


@BUGS.planted()
def state_is_captured_when_it_is_stored(patch: pytest.MonkeyPatch) -> None:
    """The snapshot also contains what the task has done since."""
    take, persist = Chain.snapshot, Snapshots.persist
    taken: list[tuple[dict[str, OperatorState], Chain]] = []

    def noted(self: Chain, *given: Any) -> dict[str, OperatorState]:
        taken.append((take(self, *given), self))
        return taken[-1][0]

    def late(self: Snapshots, request: io.Persist) -> io.Persisted | io.PersistFailed:
        chain = next(chain for states, chain in taken if states is request.snapshot.operators)
        now = dataclasses.replace(request.snapshot, operators={**request.snapshot.operators, **take(chain)})
        return persist(self, msgspec.structs.replace(request, snapshot=now))

    patch.setattr(Chain, "snapshot", noted)
    patch.setattr(Snapshots, "persist", late)


@BUGS.planted("crash")
def frames_behind_a_barrier_overtake_it(patch: pytest.MonkeyPatch) -> None:
    def ready(self: Inputs, index: int, count: int = 1) -> bool:
        return len(self.waiting(index, count)) == count

    patch.setattr(Inputs, "ready", ready)


@BUGS.planted()
def sinks_commit_before_the_checkpoint_is_complete(patch: pytest.MonkeyPatch) -> None:
    def hasty(handle: Handle, link: LinkMachine, event: io.Persisted) -> list[io.Instruction]:
        return [*handle(link, event), io.Commit(event.handle.checkpoint, event.handle.committables)]

    rehandled(patch, io.Persisted, hasty)


@BUGS.planted()
def what_an_aborted_checkpoint_prepared_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    def only_own(self: Epochs, checkpoint: int) -> dict[str, list[bytes]]:
        return {n: list(c) for n, c in self.all_prepared.get(checkpoint, {}).items()}

    patch.setattr(Epochs, "uncommitted", only_own)


@BUGS.planted()
def a_replacement_does_not_commit_what_its_checkpoint_names(patch: pytest.MonkeyPatch) -> None:
    def silent(handle: Handle, link: LinkMachine, event: Promote | io.Loaded) -> list[io.Instruction]:
        return [io.Commit(i.checkpoint, {}) if isinstance(i, io.Commit) else i for i in handle(link, event)]

    rehandled(patch, Promote, silent)
    rehandled(patch, io.Loaded, silent)
