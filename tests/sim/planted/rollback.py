"""Bugs of rollback recovery (E2, E9): which tasks go back, which state stays, what still runs beside it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import pytest
from msgspec.structs import replace

from clonos_py.channel.retained import RetainedFrame, RetainedFrames
from clonos_py.job import restarts_without_log
from clonos_py.job.events import Instructions, JobInstruction, Send, StartProcess
from clonos_py.job.fleet import Role
from clonos_py.job.machine import JobMachine
from clonos_py.job.rounds import Rounds
from clonos_py.job.states import JobState
from clonos_py.link.epochs import Epochs
from clonos_py.link.instructions import Instruction, Loaded
from clonos_py.link.machine import LinkMachine
from clonos_py.link.restoring import Restoring
from clonos_py.model.ids import TaskId
from clonos_py.model.messages import Promote, Replay
from clonos_py.model.state import OperatorState
from clonos_py.process.contract import RestoreState, ToTask
from clonos_py.protocols.aligned.task import AlignedBarriers
from clonos_py.protocols.parts.coordinated import CoordinatedCheckpoints
from clonos_py.runtime.world.coordination import Coordination
from clonos_py.runtime.world.processes import LocalProcess
from clonos_py.task.chain import Chain
from clonos_py.task.inputs import Inputs
from clonos_py.task.machine import TaskMachine
from clonos_py.task.timers import Timers
from tests.sim.planted.bug import Bugs
from tests.sim.planted.seams import made_with, parts_of

BUGS = Bugs()
ALL = 1 << 30
"""More frames than ever wait."""
Start = Callable[[StartProcess], None]


def started_with(
    patch: pytest.MonkeyPatch, start: Callable[[Start, dict[int, LocalProcess], StartProcess], None]
) -> None:
    """The world starts processes with ``start``, which is passed what did so before, and all processes."""
    make, parameters = Coordination.__init__, inspect.signature(Coordination.__init__)

    def changed(*given: Any) -> None:
        bound = parameters.bind(*given)
        before, processes = bound.arguments["start_process"], bound.arguments["processes"]
        bound.arguments["start_process"] = partial(start, before, processes)
        make(*bound.args, **bound.kwargs)

    patch.setattr(Coordination, "__init__", changed)


def kept(patch: pytest.MonkeyPatch, keep: Callable[[LocalProcess, LocalProcess], None]) -> None:
    """``keep`` is called with a process and the one that takes its place."""

    def begin(start: Start, processes: dict[int, LocalProcess], request: StartProcess) -> None:
        before = processes.get(request.reuse) if request.reuse is not None else None
        start(request)
        if before is not None and request.process in processes:
            keep(before, processes[request.process])

    started_with(patch, begin)


def kept_with_state(patch: pytest.MonkeyPatch, keep: Callable[[LocalProcess, LocalProcess], None]) -> None:
    """Also when the task loads the state of its restart point."""

    def keep_at_once_and_then(before: LocalProcess, after: LocalProcess) -> None:
        offer = after.machine.offer

        def taken(item: ToTask) -> None:
            offer(item)
            if isinstance(item, RestoreState):
                keep(before, after)

        keep(before, after)
        patch.setattr(after.machine, "offer", taken)

    kept(patch, keep_at_once_and_then)


# ---- which tasks go back


@BUGS.planted(depth=0)
def survivors_go_on(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(CoordinatedCheckpoints, "all_go_back", False)
    patch.setattr(restarts_without_log, "orphans", lambda *_: {})


@BUGS.planted(depth=0)
def one_survivor_goes_on(patch: pytest.MonkeyPatch) -> None:
    """As if it had begun, it is neither promoted nor sent a log to replay."""
    owners, handle = vars(JobMachine)["owners"].fget, JobMachine.handle
    spared: set[int] = set()

    def all_but_one(self: JobMachine) -> dict[TaskId, int]:
        found: dict[TaskId, int] = owners(self)
        survivor = next((p for p in self.processes.values() if p.role is Role.ACTIVE), None)
        if self.state is JobState.ROLLING_BACK and survivor is not None:
            spared.add(found.pop(survivor.task))
        return found

    def begins_one(i: JobInstruction) -> bool:
        return isinstance(i, Send) and i.process in spared and isinstance(i.message, Promote | Replay)

    def to_others(self: JobMachine, event: Any, now_us: int) -> Instructions:
        return [i for i in handle(self, event, now_us) if not begins_one(i)]

    patch.setattr(JobMachine, "owners", property(all_but_one))
    patch.setattr(JobMachine, "handle", to_others)


@BUGS.planted(depth=0)
def tasks_that_go_back_start_from_the_beginning(patch: pytest.MonkeyPatch) -> None:
    made, deploy = made_with(patch, Rounds), Rounds.deploy

    def forgetful(self: Rounds, reuse: Any = None) -> Instructions:
        if reuse is not None:
            completed = made[self]["context"].completed
            completed.adopt(completed.next(0, 0, []))
        return deploy(self, reuse)

    patch.setattr(Rounds, "deploy", forgetful)


# ---- which state stays


@BUGS.planted(depth=0)
def timers_of_before_are_kept(patch: pytest.MonkeyPatch) -> None:
    timers = parts_of(patch, TaskMachine, Timers)

    def keep(before: LocalProcess, after: LocalProcess) -> None:
        for at_us, operator in timers[before.machine].all:
            timers[after.machine].set(operator, at_us)

    kept_with_state(patch, keep)


@BUGS.planted(depth=0)
def frames_that_wait_are_kept(patch: pytest.MonkeyPatch) -> None:
    inputs = parts_of(patch, TaskMachine, Inputs)

    def keep(before: LocalProcess, after: LocalProcess) -> None:
        for index in range(len(after.link.inputs)):
            for frame in inputs[before.machine].waiting(index, ALL):
                inputs[after.machine].offer(index, frame)

    kept_with_state(patch, keep)


@BUGS.planted(depth=0)
def barriers_of_before_count_for_the_next_checkpoint(patch: pytest.MonkeyPatch) -> None:
    """Inputs that wait for barriers stay blocked, whatever the number of the next checkpoint."""
    inputs, aligned = parts_of(patch, TaskMachine, Inputs), parts_of(patch, TaskMachine, AlignedBarriers)

    def keep(before: LocalProcess, after: LocalProcess) -> None:
        blocked = [index for index in range(len(after.link.inputs)) if not inputs[before.machine].ready(index, 0)]
        for index in blocked:
            inputs[after.machine].block(index)
        barrier = partial(AlignedBarriers.barrier, aligned[after.machine])

        def without_number(channel: int, checkpoint: int, epoch: int) -> bool:
            found = [barrier(index, checkpoint, epoch) for index in (*blocked, channel)]
            if aligned[after.machine].aligning:
                blocked.clear()
            return any(found)

        patch.setattr(aligned[after.machine], "barrier", without_number)

    kept_with_state(patch, keep)


@BUGS.planted(depth=0)
def frames_cut_behind_the_restart_point_are_kept(patch: pytest.MonkeyPatch) -> None:
    """Receivers get them again; new frames under their numbers count as repetitions."""
    append, restoring = RetainedFrames.append, parts_of(patch, LinkMachine, Restoring)

    def unless_there(self: RetainedFrames, entry: RetainedFrame) -> None:
        if entry.frame.seq >= self.next_seq:
            append(self, entry)

    def keep(before: LocalProcess, after: LocalProcess) -> None:
        for old, new in zip(before.link.outputs, after.link.outputs, strict=True):
            for entry in old.frames.between(old.frames.kept, old.frames.next_seq):
                if entry.frame.seq == new.frames.next_seq and entry.in_memory:
                    append(new.frames, entry)

    def keep_at_once_and_then(before: LocalProcess, after: LocalProcess) -> None:
        loaded = Restoring.loaded

        def restored(event: Loaded) -> list[Instruction]:
            instructions = loaded(restoring[after.link], event)
            keep(before, after)
            return instructions

        keep(before, after)
        patch.setattr(restoring[after.link], "loaded", restored)

    patch.setattr(RetainedFrames, "append", unless_there)
    kept(patch, keep_at_once_and_then)


@BUGS.planted(depth=0)
def operators_keep_their_state(patch: pytest.MonkeyPatch) -> None:
    chains, restore = parts_of(patch, TaskMachine, Chain), Chain.restore
    states: dict[Chain, dict[str, Sequence[OperatorState]]] = {}

    def restored(self: Chain, parts: Mapping[str, Sequence[OperatorState]], *given: Any) -> None:
        restore(self, {**parts, **states.get(self, {})}, *given)

    def keep(before: LocalProcess, after: LocalProcess) -> None:
        found = chains[before.machine].snapshot()
        states[chains[after.machine]] = {name: [state] for name, state in found.items()}
        chains[after.machine].restore({}, None)

    patch.setattr(Chain, "restore", restored)
    kept(patch, keep)


@BUGS.planted(depth=0)
def what_sinks_had_prepared_is_committed_all_the_same(patch: pytest.MonkeyPatch) -> None:
    epochs = parts_of(patch, LinkMachine, Epochs)

    def keep(before: LocalProcess, after: LocalProcess) -> None:
        for checkpoint, committables in epochs[before.link].all_prepared.items():
            epochs[after.link].prepared(checkpoint, committables)

    kept(patch, keep)


# ---- what still runs beside it


@BUGS.planted(depth=0)
def machines_in_whose_place_others_have_begun_work_on(patch: pytest.MonkeyPatch) -> None:
    started_with(patch, lambda start, processes, request: start(replace(request, reuse=None)))
