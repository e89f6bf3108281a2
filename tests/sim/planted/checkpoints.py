"""What is wrong with checkpoints: what counts as complete, what is dropped and committed when, how barriers align."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from clonos_py.job.checkpoint_course import CheckpointCourse
from clonos_py.job.checkpoints import Checkpoints
from clonos_py.job.rounds import Rounds
from clonos_py.task import instructions as io
from clonos_py.task.epochs import Epochs
from clonos_py.task.events import Snapped
from clonos_py.task.inputs import Inputs
from clonos_py.task.link import LinkMachine
from tests.sim.planted.bug import Bugs
from tests.sim.planted.recovery import rehandled

BUGS = Bugs()


@BUGS.planted()
def a_checkpoint_completes_without_its_last_task(patch: pytest.MonkeyPatch) -> None:
    acknowledge = Checkpoints.acknowledge

    def hasty(self: Checkpoints, handle: Any, generation: int, now_us: int) -> Any:
        manifest = acknowledge(self, handle, generation, now_us)
        pending = self.pending
        if manifest is None and pending and len(pending.handles) == len(self._plan.tasks) - 1 and self.manifest:
            for old in self.manifest.tasks:
                pending.handles.setdefault(old.task, old)
            pending.writing_us = now_us
            return self._manifest(pending, generation)
        return manifest

    patch.setattr(Checkpoints, "acknowledge", hasty)


@BUGS.planted()
def the_acknowledgement_of_a_dead_task_counts(patch: pytest.MonkeyPatch) -> None:
    """Its failure does not abort the checkpoint that it had acknowledged."""
    abort, advance = CheckpointCourse.abort, Rounds.advance

    def kept(self: CheckpointCourse, reason: str) -> None:
        if reason != "a task failed":
            abort(self, reason)

    def regardless(self: Rounds) -> bool:
        checkpoints = self._context.checkpoints
        pending, checkpoints.pending = checkpoints.pending, None
        try:
            return advance(self)
        finally:
            checkpoints.pending = pending

    patch.setattr(CheckpointCourse, "abort", kept)
    patch.setattr(Rounds, "advance", regardless)


@BUGS.planted("kill", "delay")
def the_acknowledgement_of_an_earlier_checkpoint_counts(patch: pytest.MonkeyPatch) -> None:
    acknowledge = Checkpoints.acknowledge

    def confused(self: Checkpoints, handle: Any, generation: int, now_us: int) -> Any:
        number = self.pending.checkpoint if self.pending else handle.checkpoint
        return acknowledge(self, msgspec.structs.replace(handle, checkpoint=number), generation, now_us)

    patch.setattr(Checkpoints, "acknowledge", confused)


@BUGS.planted()
def numbers_of_aborted_checkpoints_are_used_again(patch: pytest.MonkeyPatch) -> None:
    abort = Checkpoints.abort

    def reused(self: Checkpoints) -> int | None:
        checkpoint = abort(self)
        self._last -= checkpoint is not None
        return checkpoint

    patch.setattr(Checkpoints, "abort", reused)


@BUGS.planted()
def frames_count_as_covered_when_the_snapshot_is_taken(patch: pytest.MonkeyPatch) -> None:
    def hasty(self: LinkMachine, event: Snapped) -> None:
        LinkMachine._on_snapped(self, event)
        for channel in self.inputs:
            channel.covered = event.progress.inputs[channel.index].next_seq

    rehandled(patch, Snapped, hasty)


@BUGS.planted("crash")
def frames_behind_a_barrier_overtake_it(patch: pytest.MonkeyPatch) -> None:
    def ready(self: Inputs, index: int, count: int = 1) -> bool:
        return len(self._channels[index].queue) >= count

    patch.setattr(Inputs, "ready", ready)


@BUGS.planted()
def sinks_commit_before_the_checkpoint_is_complete(patch: pytest.MonkeyPatch) -> None:
    def hasty(self: LinkMachine, event: io.Persisted) -> None:
        LinkMachine._on_persisted(self, event)
        self._out.append(io.Commit(event.handle.checkpoint, event.handle.committables))

    rehandled(patch, io.Persisted, hasty)


@BUGS.planted()
def what_an_aborted_checkpoint_prepared_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    def only_own(self: Epochs, checkpoint: int) -> dict[str, list[bytes]]:
        return {n: list(c) for n, c in self._prepared.get(checkpoint, {}).items()}

    patch.setattr(Epochs, "uncommitted", only_own)


@BUGS.planted()
def a_replacement_does_not_commit_what_its_checkpoint_names(patch: pytest.MonkeyPatch) -> None:
    start = LinkMachine._start

    def silent(self: LinkMachine) -> None:
        start(self)
        self._out[:] = [io.Commit(i.checkpoint, {}) if isinstance(i, io.Commit) else i for i in self._out]

    patch.setattr(LinkMachine, "_start", silent)
