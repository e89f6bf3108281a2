"""Failures at chosen points of a simulated run: a hook looks at every process before every action."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from clonos_py.checkpoint.memory import MemoryStore
from clonos_py.job.events import JobPolicy
from clonos_py.model.coordinator_events import CoordinatorEvent, RolledBack
from clonos_py.process.contract import ChannelLimits, TaskState
from clonos_py.protocols.aligned.task import AlignedBarriers
from clonos_py.runtime.sim.run import SimulatedEnvironment, SimulatedRun
from clonos_py.runtime.sim.schedule import VirtualTime
from clonos_py.runtime.sim.story import words
from clonos_py.runtime.world.processes import LocalProcess
from clonos_py.runtime.world.world import World, WorldSettings
from tests.witness import WitnessJob, WitnessLedger, disagreements

Point = Callable[[World, LocalProcess], bool]
"""Whether a process is where it is to be hit."""
Harm = Callable[[World, LocalProcess], None]


def aligning(world: World, process: LocalProcess) -> bool:
    """Some barriers of a checkpoint have come, others not."""
    protocol = process.machine._checkpointing
    assert isinstance(protocol, AlignedBarriers)
    return protocol._aligning != 0


def snapshotting(world: World, process: LocalProcess) -> bool:
    """It has taken a snapshot of a checkpoint that is not complete."""
    return bool(process.link._epochs._progress)


def loading(world: World, process: LocalProcess) -> bool:
    """A standby to which the state of a checkpoint is on its way."""
    restoring = process.link._restoring
    return standing_by(world, process) and restoring.requested is not None and not restoring.ready


def with_loading_standby(world: World, process: LocalProcess) -> bool:
    """The task itself, at that moment."""
    return not standing_by(world, process) and any(
        loading(world, other) for other in world.processes.values() if other.task == process.task
    )


def connecting(world: World, process: LocalProcess) -> bool:
    return process.link.state in (TaskState.CONNECTING, TaskState.FETCHING_DETERMINANTS)


def replaying(world: World, process: LocalProcess) -> bool:
    attempt = process.link.attempt
    return process.link.state is TaskState.REPLAYING and attempt is not None and attempt.counter > 1


def beside_recovering(world: World, process: LocalProcess) -> bool:
    """A task that runs while another recovers."""
    return process.link.state is TaskState.RUNNING and any(
        replaying(world, other) or connecting(world, other) for other in world.processes.values()
    )


def running(world: World, process: LocalProcess) -> bool:
    return process.link.state is TaskState.RUNNING


def deployed(world: World, process: LocalProcess) -> bool:
    """All tasks run."""
    return sum(running(world, other) for other in world.processes.values()) == len(world.plan.tasks)


def finished(world: World, process: LocalProcess) -> bool:
    return process.link.state is TaskState.FINISHED


def standing_by(world: World, process: LocalProcess) -> bool:
    return process.link.attempt is None


def kill(world: World, process: LocalProcess) -> None:
    world.kill(process.number)


def forsake(world: World, process: LocalProcess) -> None:
    """It is declared dead, and continues to run."""
    world.coordination.notice_death(process.number, "silent for the heartbeat timeout")


def cut_off(world: World, process: LocalProcess) -> None:
    """All connections of the process break, and frames in flight are lost; both ends are notified."""
    for number in sorted(process.connections):
        connection = world.network.connections[number]
        world.network.cut(number, (connection.receiver, connection.sender))


def lose_coordinator(world: World, process: LocalProcess) -> None:
    world.coordination.lose()


def kill_and_lose_coordinator(world: World, process: LocalProcess) -> None:
    world.kill(process.number)
    world.coordination.lose()


@dataclass
class Run:
    """The result of a run."""

    harmed: int = 0
    problems: list[str] = field(default_factory=list)
    happened: list[type[CoordinatorEvent]] = field(default_factory=list)
    story: list[str] = field(default_factory=list)


def described(seed: int, found: Run | SimulatedRun) -> str:
    """The problems of a run and what happened in it."""
    return f"seed {seed}: {'; '.join(found.problems)}\n  " + "\n  ".join(found.story)


class Harmer:
    """Does harm at a point, a given number of times, in some of the moments in which a process is there."""

    def __init__(self, random_: random.Random, point: Point, harm: Harm, times: int, run: Run) -> None:
        self._random, self._point, self._harm, self._times, self._run = random_, point, harm, times, run
        self._pause = 0

    def __call__(self, world: World) -> None:
        self._pause -= 1
        if self._run.harmed >= self._times or self._pause > 0 or world.ended is not None:
            return
        victims = [p for _, p in sorted(world.processes.items()) if self._point(world, p)]
        if victims and self._random.random() < 0.2:
            victim = self._random.choice(victims)
            self._run.harmed += 1
            self._run.story.append(f"{world.now_us}: harmed {victim.number}, {victim.task}, {victim.link.state.value}")
            self._harm(world, victim)
            self._pause = self._random.choice([1, 20, 300])


def run(
    seed: int,
    point: Point,
    harm: Harm,
    times: int = 3,
    job: WitnessJob = WitnessJob(),  # noqa: B008 - frozen
    standbys_per_process: int = 1,
) -> Run:
    """The two-witness job under one seed, with harm at a point. See ``run_with``."""
    random_, found = random.Random(seed), Run()
    run_with(random_, Harmer(random_, point, harm, times, found), found, job, standbys_per_process)
    return found


def run_with(
    random_: random.Random,
    hook: Callable[[World], None],
    found: Run,
    job: WitnessJob,
    standbys_per_process: int = 1,
) -> None:
    """Runs the two-witness job to its end and adds to ``found``. ``hook`` is called before every action. Rollbacks are
    problems, unless the job recovers so: none is ever needed."""
    ledger = WitnessLedger()
    time = VirtualTime(random_)

    def listen(time_us: int, event: CoordinatorEvent) -> None:
        found.story.append(f"{time_us}: {words(event)}")
        found.happened.append(type(event))

    store = MemoryStore("witness")
    environment = lambda task: SimulatedEnvironment(time.now_us, random_, store, task)  # noqa: E731
    policy = JobPolicy(checkpoint_interval_us=random_.choice([10_000, 25_000]), checkpoint_timeout_us=2_000_000)
    settings = WorldSettings(
        policy,
        ChannelLimits(window=random_.choice([2, 16])),
        linger_us=2_000,
        events_max=250 * job.total,
        standbys_per_process=standbys_per_process,
    )
    world = World(job.plan(ledger), store, time, environment, settings, listen, hook=hook)
    found.problems.extend(_problems(world))
    found.problems.extend(disagreements(ledger, job.total))
    if RolledBack in found.happened and not job.rollback:
        found.problems.append("rolled back")


def _problems(world: World) -> Iterator[str]:
    try:
        end = world.run()
    except AssertionError as problem:
        yield str(problem)
    else:
        if end.error is not None:
            yield f"ended with {end.error}: {end.message}"
