"""Bugs of rollback recovery (E2, E9): which tasks go back, which state stays, what still runs beside it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from clonos_py.channel.retained import RetainedFrame, RetainedFrames
from clonos_py.job import restarts_without_log
from clonos_py.job.events import Instructions, StartProcess
from clonos_py.job.fleet import Role
from clonos_py.job.machine import JobMachine
from clonos_py.job.rounds import Rounds
from clonos_py.link.instructions import Instruction, Loaded
from clonos_py.model.ids import TaskId
from clonos_py.model.messages import Promote, Replay
from clonos_py.protocols.aligned.task import AlignedBarriers
from clonos_py.protocols.parts.coordinated import CoordinatedCheckpoints
from clonos_py.runtime.world.coordination import Coordination
from clonos_py.runtime.world.processes import LocalProcess
from clonos_py.runtime.world.world import World
from tests.sim.planted.bug import Bugs

BUGS = Bugs()


def kept(patch: pytest.MonkeyPatch, keep: Callable[[LocalProcess, LocalProcess], None]) -> None:
    """``keep`` is called with a process and the one whose place it takes."""
    start = World._start

    def begin(self: World, wish: StartProcess) -> None:
        before = self.processes.get(wish.reuse) if wish.reuse is not None else None
        start(self, wish)
        if before is not None and wish.process in self.processes:
            keep(before, self.processes[wish.process])

    patch.setattr(World, "_start", begin)


def kept_with_state(patch: pytest.MonkeyPatch, keep: Callable[[LocalProcess, LocalProcess], None]) -> None:
    """Also when the task loads the state of its restart point."""

    def keep_at_once_and_then(before: LocalProcess, after: LocalProcess) -> None:
        take = after.machine._restore_state

        def taken(item: Any) -> None:
            take(item)
            keep(before, after)

        keep(before, after)
        patch.setattr(after.machine, "_restore_state", taken)

    kept(patch, keep_at_once_and_then)


# ---- which tasks go back


@BUGS.planted(depth=0)
def survivors_go_on(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(CoordinatedCheckpoints, "all_go_back", False)
    patch.setattr(restarts_without_log, "orphans", lambda *_: {})


@BUGS.planted(depth=0)
def one_survivor_goes_on(patch: pytest.MonkeyPatch) -> None:
    """As if it had begun, it is neither promoted nor sent a log to replay."""
    removed = JobMachine._owners_removed
    spared: set[int] = set()

    def all_but_one(self: JobMachine) -> dict[TaskId, int]:
        survivor = next((p for p in self._fleet.processes.values() if p.role is Role.ACTIVE), None)
        owners = removed(self)
        if survivor is not None:
            del owners[survivor.task]
            self._fleet.processes[survivor.number] = survivor
            spared.add(survivor.number)
        return owners

    send = Coordination.send

    def to_others(self: Coordination, number: int, message: Any) -> None:
        if number not in spared or not isinstance(message, Promote | Replay):
            send(self, number, message)

    patch.setattr(JobMachine, "_owners_removed", all_but_one)
    patch.setattr(Coordination, "send", to_others)


@BUGS.planted(depth=0)
def tasks_that_go_back_start_from_the_beginning(patch: pytest.MonkeyPatch) -> None:
    deploy = Rounds.deploy

    def forgetful(self: Rounds, reuse: Any = None) -> Instructions:
        if reuse is not None:
            self._protocol.completed.manifest = None
            self._protocol.completed._handles = {}
        return deploy(self, reuse)

    patch.setattr(Rounds, "deploy", forgetful)


# ---- which state stays


@BUGS.planted(depth=0)
def timers_of_before_are_kept(patch: pytest.MonkeyPatch) -> None:
    def keep(before: LocalProcess, after: LocalProcess) -> None:
        for at_us, operator in before.machine.timers:
            after.machine._shared.timers.set(operator, at_us)

    kept_with_state(patch, keep)


@BUGS.planted(depth=0)
def frames_that_wait_are_kept(patch: pytest.MonkeyPatch) -> None:
    def keep(before: LocalProcess, after: LocalProcess) -> None:
        for old, new in zip(before.machine._inputs._channels, after.machine._inputs._channels, strict=True):
            new.queue.extend(old.queue)

    kept_with_state(patch, keep)


@BUGS.planted(depth=0)
def barriers_of_before_count_for_the_next_checkpoint(patch: pytest.MonkeyPatch) -> None:
    """Inputs that wait for barriers stay blocked, whatever the number of the next checkpoint."""

    def keep(before: LocalProcess, after: LocalProcess) -> None:
        for old, new in zip(before.machine._inputs._channels, after.machine._inputs._channels, strict=True):
            new.blocked = old.blocked
        aligned = after.machine._checkpointing
        assert isinstance(aligned, AlignedBarriers)
        barrier = AlignedBarriers.barrier

        def without_number(channel: int, checkpoint: int, epoch: int) -> bool:
            aligned._aligning = aligned._aligning or checkpoint
            return barrier(aligned, channel, checkpoint, epoch)

        patch.setattr(aligned, "barrier", without_number)

    kept_with_state(patch, keep)


@BUGS.planted(depth=0)
def frames_cut_behind_the_restart_point_are_kept(patch: pytest.MonkeyPatch) -> None:
    """Receivers get them again; new frames under their numbers count as repetitions."""
    append = RetainedFrames.append

    def unless_there(self: RetainedFrames, entry: RetainedFrame) -> None:
        if entry.frame.seq >= self.next_seq:
            append(self, entry)

    def keep(before: LocalProcess, after: LocalProcess) -> None:
        for old, new in zip(before.link.outputs, after.link.outputs, strict=True):
            for entry in old.frames._entries:
                if entry.frame.seq == new.frames.next_seq and entry.in_memory:
                    append(new.frames, entry)

    def keep_at_once_and_then(before: LocalProcess, after: LocalProcess) -> None:
        restoring = after.link._restoring
        restore = restoring.loaded

        def restored(event: Loaded) -> list[Instruction]:
            instructions = restore(event)
            keep(before, after)
            return instructions

        keep(before, after)
        patch.setattr(restoring, "loaded", restored)

    patch.setattr(RetainedFrames, "append", unless_there)
    kept(patch, keep_at_once_and_then)


@BUGS.planted(depth=0)
def operators_keep_their_state(patch: pytest.MonkeyPatch) -> None:
    def keep(before: LocalProcess, after: LocalProcess) -> None:
        states = before.machine._chain.snapshot()
        for stage in after.machine._chain._stages:
            if stage.name in states:
                stage.operator.restore([states[stage.name]])

    kept_with_state(patch, keep)


@BUGS.planted(depth=0)
def what_sinks_had_prepared_is_committed_all_the_same(patch: pytest.MonkeyPatch) -> None:
    def keep(before: LocalProcess, after: LocalProcess) -> None:
        after.link._epochs._prepared = before.link._epochs._prepared

    kept(patch, keep)


# ---- what still runs beside it


@BUGS.planted(depth=0)
def machines_in_whose_place_others_have_begun_work_on(patch: pytest.MonkeyPatch) -> None:
    start = World._start
    patch.setattr(World, "_start", lambda self, wish: start(self, replace(wish, reuse=None)))
