"""The faults of a generated run: plain values that are drawn in advance, and their execution."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, ClassVar

from clonos_py.checkpoint.memory import MemoryStore
from clonos_py.link.states import BEFORE_BEGIN
from clonos_py.model.ids import TaskId
from clonos_py.process.contract import TaskState
from clonos_py.runtime.sim.harsh_environment import HarshEnvironment
from clonos_py.runtime.sim.harsh_world import HarshWorld
from clonos_py.runtime.sim.schedule import TYPICAL_US, VirtualTime
from clonos_py.runtime.sim.spill import Disk
from clonos_py.runtime.world.processes import LocalProcess

_RECOVERING = (TaskState.CONNECTING, TaskState.FETCHING_DETERMINANTS, TaskState.REPLAYING)
_STEPS_US = (20_000, 3_600_000_000)
_WAIT_ACTIONS_MAX = 400
"""The number of actions for which a fault waits for a process that it can hit."""
SLOWER_MAX = 20.0
"""The greatest factor by which a fault lengthens delays."""


class FaultKind(Enum):
    KILL = "kill"
    """Kills a task that has sent or received frames since its restart point."""
    KILL_AGAIN = "kill again"
    """Kills the task that was killed last, in any state of its replacement."""
    KILL_RECOVERING = "kill recovering"
    KILL_MEANWHILE = "kill meanwhile"
    """Kills a running task while others recover."""
    KILL_NEIGHBOURS = "kill neighbours"
    """Kills two or three consecutive tasks at once."""
    KILL_DESCENDANTS = "kill descendants"
    """Kills a task and all tasks downstream of it at once, whatever they have at stake."""
    KILL_FINISHED = "kill finished"
    """Kills a task that has finished together with its receivers."""
    KILL_ALL_BUT_ONE = "kill all but one"
    """Kills all tasks but one."""
    KILL_STANDBY = "kill standby"
    SLOW = "slow"
    """All actions of one kind are slow for a while."""
    HOLD_BACK = "hold back"
    """One connection delivers nothing for a while."""
    CUT = "cut"
    """Two connected processes cannot reach each other for a while, or for good. Messages in transit are lost."""
    FREEZE = "freeze"
    """A process hangs, mostly until it is replaced, and then continues."""
    CLOCK = "clock"
    """The time of day of one process is set backwards or forwards."""
    DISK = "disk"
    """The next write of a snapshot, manifest, large answer or retained frame fails, or the next read of a snapshot. Or
    the next manifest is never written, without an error. Or storage does not answer for a while."""
    STAND_STILL = "stand still"
    """The coordinator does nothing for a while, and then continues."""
    COORDINATOR = "coordinator"
    """The coordinator is lost, and another replaces it after a while."""
    CRASH = "crash"
    """All processes crash at once, including the coordinator. The job is restarted from its last checkpoint."""
    STOP = "stop"
    """The user stops the job, and runs it again once it has ended."""


@dataclass(frozen=True)
class Fault:
    """One fault. It happens ``after`` this many actions from the moment when the share ``at`` of all input has been
    read. ``salt``: the seed that chooses its victims."""

    kind: FaultKind
    at: float
    after: int
    salt: int


class Chaos:
    """Executes faults one by one, in their order. ``progress`` returns the share of the input that has been read."""

    def __init__(
        self,
        faults: tuple[Fault, ...],
        progress: Callable[[], float],
        time: VirtualTime,
        store: MemoryStore,
        disk: Disk | None,
        note: Callable[[str], None],
    ) -> None:
        self._left = list(faults)
        self._progress, self._time, self._store, self._disk, self._note = progress, time, store, disk, note
        self._usual = dict(time.slowness)
        self._due: int | None = None
        self._random = random.Random(0)
        self._last_killed: TaskId | None = None
        self.done: Counter[FaultKind] = Counter()

    def __call__(self, world: HarshWorld) -> None:
        if not self._left:
            return
        fault = self._left[0]
        if self._due is None:
            if self._progress() < min(fault.at, 1.0):
                return
            self._due, self._random = world.actions_done + fault.after, random.Random(fault.salt)
        if world.actions_done < self._due:
            return
        injected = self._INJECTIONS[fault.kind](self, world, self._random)
        self.done[fault.kind] += injected
        if injected or world.actions_done > self._due + _WAIT_ACTIONS_MAX:
            self._left.pop(0)
            self._due = None

    def restarted(self) -> None:
        """The job has restarted: its actions are counted from 0 again."""
        self._due = None
        self._time.slowness = dict(self._usual)
        self._store.be_silent(0)

    # ---- kills

    def _kill(self, world: HarshWorld, victim: LocalProcess) -> None:
        self._last_killed = victim.task
        self._note(f"killed process {victim.number}, {victim.task}, {victim.link.state.value}")
        world.kill(victim.number)

    def _kill_one(self, world: HarshWorld, random_: random.Random, victims: list[LocalProcess]) -> bool:
        if victims:
            self._kill(world, random_.choice(victims))
        return bool(victims)

    def _inject_kill(self, world: HarshWorld, random_: random.Random) -> bool:
        return self._kill_one(world, random_, [p for p in _active(world) if p.link.frames_at_stake])

    def _inject_again(self, world: HarshWorld, random_: random.Random) -> bool:
        victims = [p for p in _processes(world) if p.task == self._last_killed and p.link.attempt is not None]
        return self._kill_one(world, random_, victims)

    def _inject_recovering(self, world: HarshWorld, random_: random.Random) -> bool:
        return self._kill_one(world, random_, _recovering(world))

    def _inject_meanwhile(self, world: HarshWorld, random_: random.Random) -> bool:
        recovering = _recovering(world)
        return bool(recovering) and self._kill_one(
            world, random_, [p for p in _active(world) if p not in recovering and p.link.frames_at_stake]
        )

    def _inject_neighbours(self, world: HarshWorld, random_: random.Random) -> bool:
        """Kills a task and tasks downstream of it, hop by hop."""
        active = {p.task: p for p in _active(world)}
        starts = [p for t, p in active.items() if p.link.frames_at_stake and world.plan.outputs[t]]
        if not starts:
            return False
        victims = [random_.choice(starts)]
        for _ in range(random_.choice([1, 1, 2])):
            receivers = [world.plan.receiver(c) for c in world.plan.outputs[victims[-1].task]]
            if near := [active[t] for t in receivers if t in active]:
                victims.append(random_.choice(near))
        for victim in victims:
            self._kill(world, victim)
        return True

    def _inject_descendants(self, world: HarshWorld, random_: random.Random) -> bool:
        active = {p.task: p for p in _active(world)}
        starts = [p for t, p in active.items() if active.keys() >= world.plan.hops[t].keys()]
        if not starts:
            return False
        start = random_.choice(starts)
        for victim in [start, *(p for t, p in active.items() if t in world.plan.hops[start.task] and p is not start)]:
            self._kill(world, victim)
        return True

    def _inject_finished(self, world: HarshWorld, random_: random.Random) -> bool:
        finished = [p for p in _active(world) if p.link.state is TaskState.FINISHED and world.plan.outputs[p.task]]
        if not finished:
            return False
        victim = random_.choice(finished)
        receivers = {world.plan.receiver(channel) for channel in world.plan.outputs[victim.task]}
        for process in [victim, *(p for p in _active(world) if p.task in receivers and p is not victim)]:
            self._kill(world, process)
        return True

    def _inject_all_but_one(self, world: HarshWorld, random_: random.Random) -> bool:
        active = _active(world)
        if len(active) < 2:
            return False
        left = random_.choice(active)
        for victim in active:
            if victim is not left:
                self._kill(world, victim)
        return True

    def _inject_standby(self, world: HarshWorld, random_: random.Random) -> bool:
        standbys = [p for p in _processes(world) if p.link.state is TaskState.STANDBY]
        if standbys:
            victim = random_.choice(standbys)
            self._note(f"killed process {victim.number}, a standby of {victim.task}")
            world.kill(victim.number)
        return bool(standbys)

    # ---- what is slow, silent or cut off

    def _inject_slow(self, world: HarshWorld, random_: random.Random) -> bool:
        kind = random_.choice(sorted(set(TYPICAL_US) - {"start", "retry"}))
        factor, duration_us = random_.choice([5.0, SLOWER_MAX]), random_.choice([5_000, 30_000])
        self._time.slow(kind, factor)
        self._note(f"{kind} takes {factor:g} times as long for {duration_us} us")
        world.at(world.now_us + duration_us, lambda: self._time.slow(kind, 1 / factor))
        return True

    def _inject_hold_back(self, world: HarshWorld, random_: random.Random) -> bool:
        return self._of_a_pair(world, random_, "sends nothing to", world.hold_back, (500, 5_000, 30_000))

    def _inject_cut(self, world: HarshWorld, random_: random.Random) -> bool:
        return self._of_a_pair(world, random_, "is cut off from", world.cut, (500, 5_000, 30_000, None))

    def _of_a_pair(
        self,
        world: HarshWorld,
        random_: random.Random,
        what: str,
        act: Callable[[LocalProcess, LocalProcess, Any], None],
        durations_us: Sequence[int | None],
    ) -> bool:
        pairs = world.pairs()
        if pairs:
            one, other = random_.choice(pairs)
            duration_us = random_.choice(durations_us)
            how_long = "for good" if duration_us is None else f"for {duration_us} us"
            self._note(f"process {one.number}, {one.task}, {what} {other.number}, {other.task}, {how_long}")
            act(one, other, duration_us)
        return bool(pairs)

    def _inject_freeze(self, world: HarshWorld, random_: random.Random) -> bool:
        """Makes a process hang. If it continues after it was replaced, it is a zombie, which is ended a while later."""
        victims = [p for p in _active(world) if p.link.frames_at_stake and not world.is_frozen(p.number)]
        if not victims:
            return False
        victim = random_.choice(victims)
        duration_us = random_.choice([10_000, 250_000, 400_000, 600_000])
        self._note(f"process {victim.number}, {victim.task}, {victim.link.state.value}, hangs for {duration_us} us")
        self._last_killed = victim.task
        world.freeze(victim.number, duration_us)
        return True

    # ---- what fails, and what ends everything

    def _inject_disk(self, world: HarshWorld, random_: random.Random) -> bool:
        method = random_.choice(
            ["write", "write", "write_manifest", "hang", "read", "keep_answer"]
            + ["outage", "lost answer"] * 2
            + ["spill"] * 4 * bool(self._disk)
        )
        if method in ("outage", "lost answer"):
            calls, after_manifest = random_.choice([1, 5, 30]), method == "lost answer"
            since = "writes the next manifest, and does not answer this and" if after_manifest else "does not answer"
            self._note(f"storage {since} the next {calls} calls")
            (self._store.be_silent_after_manifest if after_manifest else self._store.be_silent)(calls)
            return True
        if method == "hang":
            self._note("the next manifest is never written")
            world.manifests_that_hang += 1
            return True
        self._note(f"the next {method} of the disk fails")
        if method == "spill" and self._disk is not None:
            self._disk.fail_next()
        else:
            raised = random_.choice([None, OSError("an error of the disk's own")])
            self._store.fail_next(method, raised if method.startswith("write") else None)
        return True

    def _inject_clock(self, world: HarshWorld, random_: random.Random) -> bool:
        victims = random_.choice([_active, _processes])(world)
        if not victims:
            return False
        victim, step_us = random_.choice(victims), random_.choice([-1, 1]) * random_.choice(_STEPS_US)
        assert isinstance(victim.environment, HarshEnvironment)
        self._note(f"the clock of process {victim.number}, {victim.task}, is set by {step_us} us")
        victim.environment.ahead_us += step_us
        return True

    def _inject_stand_still(self, world: HarshWorld, random_: random.Random) -> bool:
        duration_us = random_.choice([50_000, 400_000, 5_000_000])
        self._note(f"the coordinator stands still for {duration_us} us")
        world.stand_still(duration_us)
        return True

    def _inject_coordinator(self, world: HarshWorld, random_: random.Random) -> bool:
        self._note("the coordinator is lost")
        world.lose_coordinator()
        return True

    def _inject_crash(self, world: HarshWorld, random_: random.Random) -> bool:
        self._note("everything crashes, the coordinator included")
        world.crash()
        return True

    def _inject_stop(self, world: HarshWorld, random_: random.Random) -> bool:
        self._note("the user stops the job")
        world.request_stop()
        return True

    _INJECTIONS: ClassVar[Mapping[FaultKind, Callable[..., bool]]] = {
        FaultKind.KILL: _inject_kill,
        FaultKind.KILL_AGAIN: _inject_again,
        FaultKind.KILL_RECOVERING: _inject_recovering,
        FaultKind.KILL_MEANWHILE: _inject_meanwhile,
        FaultKind.KILL_NEIGHBOURS: _inject_neighbours,
        FaultKind.KILL_DESCENDANTS: _inject_descendants,
        FaultKind.KILL_FINISHED: _inject_finished,
        FaultKind.KILL_ALL_BUT_ONE: _inject_all_but_one,
        FaultKind.KILL_STANDBY: _inject_standby,
        FaultKind.SLOW: _inject_slow,
        FaultKind.HOLD_BACK: _inject_hold_back,
        FaultKind.CUT: _inject_cut,
        FaultKind.FREEZE: _inject_freeze,
        FaultKind.CLOCK: _inject_clock,
        FaultKind.DISK: _inject_disk,
        FaultKind.STAND_STILL: _inject_stand_still,
        FaultKind.COORDINATOR: _inject_coordinator,
        FaultKind.CRASH: _inject_crash,
        FaultKind.STOP: _inject_stop,
    }


def _processes(world: HarshWorld) -> list[LocalProcess]:
    return [world.processes[number] for number in sorted(world.processes)]


def _active(world: HarshWorld) -> list[LocalProcess]:
    return [p for p in _processes(world) if p.link.state not in BEFORE_BEGIN]


def _recovering(world: HarshWorld) -> list[LocalProcess]:
    """The processes that recover. There are none in the first deployment."""
    return [p for p in _processes(world) if p.link.state in _RECOVERING and _replaces(world, p)]


def _replaces(world: HarshWorld, process: LocalProcess) -> bool:
    """Whether the task of a process has failed or rolled back before. A rollback begins a new generation."""
    attempt = process.link.attempt
    return attempt is not None and (attempt.counter > 1 or (world.plan.rollback and attempt.generation > 1))
