"""Bugs of checkpoints: when one is complete, what is dropped and committed when, how barriers align."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

import msgspec
import pytest

from clonos_py.job.events import Instructions
from clonos_py.job.rounds import Rounds
from clonos_py.link import instructions as io
from clonos_py.link.epochs import Epochs
from clonos_py.link.machine import LinkMachine
from clonos_py.model.ids import TaskId
from clonos_py.process.contract import SnapshotTaken
from clonos_py.protocols.parts.coordinated import CoordinatedCheckpoints
from clonos_py.runtime.executors.storage import StorageWork
from clonos_py.runtime.world.processes import LocalProcess
from clonos_py.runtime.world.world import World
from clonos_py.task.inputs import Inputs
from tests.sim.planted.bug import Bugs
from tests.sim.planted.recovery import rehandled

BUGS = Bugs()


@BUGS.planted()
def a_checkpoint_completes_without_its_last_task(patch: pytest.MonkeyPatch) -> None:
    collect = CoordinatedCheckpoints.collect

    def hasty(self: CoordinatedCheckpoints, message: Any) -> Instructions:
        instructions = collect(self, message)
        pending, newest = self._pending, self.completed.manifest
        if pending is None or pending.manifest is not None or newest is None:
            return instructions
        if len(pending.handles) == len(self.context.plan.tasks) - 1:
            for old in newest.tasks:
                pending.handles.setdefault(old.task, old)
            instructions += self._all_collected(pending)
        return instructions

    patch.setattr(CoordinatedCheckpoints, "collect", hasty)


@BUGS.planted()
def the_acknowledgement_of_a_dead_task_counts(patch: pytest.MonkeyPatch) -> None:
    """A task's failure does not abort the checkpoint that it had acknowledged."""
    abort, advance = CoordinatedCheckpoints.abort, Rounds.advance

    def kept(self: CoordinatedCheckpoints, reason: str) -> Instructions:
        return abort(self, reason) if reason != "a task failed" else []

    def regardless(self: Rounds) -> Instructions:
        protocol = self._protocol
        assert isinstance(protocol, CoordinatedCheckpoints)
        pending, protocol._pending = protocol._pending, None
        try:
            return advance(self)
        finally:
            protocol._pending = pending

    patch.setattr(CoordinatedCheckpoints, "abort", kept)
    patch.setattr(Rounds, "advance", regardless)


@BUGS.planted("kill", "delay")
def the_acknowledgement_of_an_earlier_checkpoint_counts(patch: pytest.MonkeyPatch) -> None:
    collect = CoordinatedCheckpoints.collect

    def confused(self: CoordinatedCheckpoints, message: Any) -> Instructions:
        number = self._pending.checkpoint if self._pending else message.handle.checkpoint
        handle = msgspec.structs.replace(message.handle, checkpoint=number)
        return collect(self, msgspec.structs.replace(message, handle=handle))

    patch.setattr(CoordinatedCheckpoints, "collect", confused)


@BUGS.planted()
def numbers_of_aborted_checkpoints_are_used_again(patch: pytest.MonkeyPatch) -> None:
    abort = CoordinatedCheckpoints.abort

    def reused(self: CoordinatedCheckpoints, reason: str) -> Instructions:
        self._last -= self.pending
        return abort(self, reason)

    patch.setattr(CoordinatedCheckpoints, "abort", reused)


@BUGS.planted()
def frames_count_as_covered_when_the_snapshot_is_taken(patch: pytest.MonkeyPatch) -> None:
    def hasty(self: LinkMachine, event: SnapshotTaken) -> list[io.Instruction]:
        instructions = LinkMachine._on_snapshot_taken(self, event)
        for channel in self.inputs:
            channel.covered = event.progress.inputs[channel.index].next_seq
        return instructions

    rehandled(patch, SnapshotTaken, hasty)


@BUGS.planted()
def state_is_captured_when_it_is_stored(patch: pytest.MonkeyPatch) -> None:
    """The snapshot also contains what the task has done since."""
    assembled = World._assembled

    def late(self: World, number: int, task: TaskId) -> LocalProcess:
        process = assembled(self, number, task)
        carry_out = process.storage.carry_out

        def captured(work: StorageWork) -> Iterable[io.LinkEvent]:
            if isinstance(work, io.Persist):
                now = {**work.snapshot.operators, **process.machine._chain.snapshot()}
                snapshot = dataclasses.replace(work.snapshot, operators=now)
                work = msgspec.structs.replace(work, snapshot=snapshot)
            return carry_out(work)

        patch.setattr(process.storage, "carry_out", captured)
        return process

    patch.setattr(World, "_assembled", late)


@BUGS.planted("crash")
def frames_behind_a_barrier_overtake_it(patch: pytest.MonkeyPatch) -> None:
    def ready(self: Inputs, index: int, count: int = 1) -> bool:
        return len(self._channels[index].queue) >= count

    patch.setattr(Inputs, "ready", ready)


@BUGS.planted()
def sinks_commit_before_the_checkpoint_is_complete(patch: pytest.MonkeyPatch) -> None:
    def hasty(self: LinkMachine, event: io.Persisted) -> list[io.Instruction]:
        instructions = LinkMachine._on_persisted(self, event)
        return [*instructions, io.Commit(event.handle.checkpoint, event.handle.committables)]

    rehandled(patch, io.Persisted, hasty)


@BUGS.planted()
def what_an_aborted_checkpoint_prepared_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    def only_own(self: Epochs, checkpoint: int) -> dict[str, list[bytes]]:
        return {n: list(c) for n, c in self._prepared.get(checkpoint, {}).items()}

    patch.setattr(Epochs, "uncommitted", only_own)


@BUGS.planted()
def a_replacement_does_not_commit_what_its_checkpoint_names(patch: pytest.MonkeyPatch) -> None:
    start = LinkMachine._start

    def silent(self: LinkMachine) -> list[io.Instruction]:
        return [io.Commit(i.checkpoint, {}) if isinstance(i, io.Commit) else i for i in start(self)]

    patch.setattr(LinkMachine, "_start", silent)
