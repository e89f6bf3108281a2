"""Runs a plan in virtual time on a simulated cluster, where work has a price (E12).

The state machines and operators are the ones of the product, and every row is really computed. Checkpoints are in
memory. Only operators draw random numbers, from the seed: two runs are the same.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from clonos_py.bench.cluster.costs import Amount, CostedTime, Costs, duty_of
from clonos_py.bench.cluster.machines import CostedDispatcher, Machines
from clonos_py.checkpoint.memory import MemoryStore
from clonos_py.model.ids import TaskId
from clonos_py.model.plan import PhysicalPlan
from clonos_py.observe.events import Listener
from clonos_py.runtime.crash_notes import watched
from clonos_py.runtime.event_publisher import EventPublisher
from clonos_py.runtime.interrupts import interrupts
from clonos_py.runtime.monitor import Monitor
from clonos_py.runtime.run_settings import RunResult, kills, limits, policy, raise_for
from clonos_py.runtime.sim.run import SimulatedEnvironment
from clonos_py.runtime.world.actions import Actions
from clonos_py.runtime.world.dispatcher import Dispatcher
from clonos_py.runtime.world.layers import Layers
from clonos_py.runtime.world.processes import LocalProcess
from clonos_py.runtime.world.world import World, WorldSettings
from clonos_py.settings.definitions import Settings

_PUBLISH_US = 100_000


@dataclass(frozen=True)
class CostedCluster:
    """A cluster of equal machines. ``costs``: the prices of work there."""

    machines: int
    processors: int = 1
    costs: Costs = field(default_factory=Costs)


def run(plan: PhysicalPlan, settings: Settings, listener: Listener, cluster: CostedCluster) -> RunResult:
    """Runs to the end of the sources. Raises the ClonosError that ended the job."""
    machines = Machines(cluster.processors, _background(plan, cluster), cluster.costs.wake_us)
    return run_on(plan, settings, listener, cluster, machines)


def _background(plan: PhysicalPlan, cluster: CostedCluster) -> list[float]:
    """By machine: the processors that its tasks use while they are idle."""
    tasks = Counter(task.index % cluster.machines for task in plan.tasks)
    return [tasks[machine] * cluster.costs.background for machine in range(cluster.machines)]


def run_on(
    plan: PhysicalPlan, settings: Settings, listener: Listener, cluster: CostedCluster, machines: Machines
) -> RunResult:
    """Like ``run``, on given machines. Afterwards ``machines.done`` has the work that was done."""
    time, random_, store = CostedTime(cluster.costs), random.Random(settings.seed), MemoryStore(plan.job)
    orders = kills(plan, settings)
    publisher = EventPublisher(plan, time.now_us(), listener, orders)
    duties = {vertex.name: duty_of(vertex) for vertex in plan.vertices}

    def costed(inner: Dispatcher, processes: Mapping[int, LocalProcess]) -> Dispatcher:
        return CostedDispatcher(inner, processes, machines, cluster.costs, duties, actions)

    def actions() -> Actions:
        return world.actions

    def starting(process: LocalProcess, alone: bool, started: Callable[[], None]) -> None:
        machines.start(process, Amount("start" if alone else "host"), cluster.costs, actions(), started)

    def environment(task: TaskId) -> SimulatedEnvironment:
        return SimulatedEnvironment(time.now_us, random_, store, task)

    with watched(), interrupts() as interrupted:
        monitor = Monitor(publisher, orders, time.now_us, interrupted, _PUBLISH_US)
        world = World(
            plan,
            store,
            time,
            environment,
            WorldSettings(
                policy(settings, f"seed-{settings.seed}"),
                limits(settings),
                settings.linger_us,
                standbys_per_process=settings.standbys_per_process,
            ),
            monitor.report,
            monitor.observe,
            monitor,
            Layers(dispatcher=costed, starting=starting, ending=machines.ended),
        )
        end = world.run()
        monitor.publish(world)
    raise_for(end)
    return RunResult(plan, publisher.latency)
