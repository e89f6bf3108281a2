"""The driver of a run on Ray: owns the actors of the coordinator and of all processes, and publishes events.

If the coordinator dies, the driver creates another under the same name, which takes over the running processes. The
processes go on meanwhile.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

from clonos_py.connectors.terminal import terminal
from clonos_py.job.events import EndJob
from clonos_py.job.fleet import TaskProcess
from clonos_py.model.coordinator_events import CoordinatorReplaced, Deployed
from clonos_py.model.errors import ClusterError, ClusterLostError
from clonos_py.plan.pickling import pack
from clonos_py.runtime.event_publisher import EventPublisher
from clonos_py.runtime.ray.actor_registry import ActorRegistry
from clonos_py.runtime.ray.actors import (
    COORDINATOR_THREADS,
    CoordinatorActor,
    CoordinatorStart,
    CoordinatorUpdate,
    JobSpec,
)
from clonos_py.runtime.ray.cluster import Cluster, JobName, import_ray, node_ids
from clonos_py.runtime.ray.names import is_free_in, taken, taken_over
from clonos_py.runtime.ray.opened_actors import on_node
from clonos_py.runtime.ray.outage import Outage
from clonos_py.runtime.ray.start_patience import StartPatience
from clonos_py.runtime.ray.worker_signs import signs_of
from clonos_py.runtime.stop_switch import StopSwitch

_FAILED_STARTS_MAX = 3
"""How many coordinators in a row may die before they have deployed the job or taken it over. After more, the driver
assumes another cause and gives up."""

_CHECK_INTERVAL_S = 1.0
"""The interval of checks whether Ray is still there, and whether the node is starting the coordinator."""
_END_S = 1.0
"""The time that calls get to reach their processes."""
_WATCHED_S_MAX = 30.0
"""The time that those who have stopped the job from another process get to read how it ended. They give up earlier
unless they were killed or their machine stalls."""


class StartedAhead(NamedTuple):
    """What has started before the run that it follows has ended. ``processes``: as a coordinator sees them."""

    coordinator: Any
    processes: Sequence[TaskProcess]


def start_coordinator(name: JobName, home: str, packed_spec: bytes, cluster: Cluster) -> Any:
    """Creates a coordinator on the driver's node: the run ends with that node in any case. ``home``: the namespace, in
    Ray, that it is named in. Raises ClusterError if the name is in use there."""
    ray = import_ray()
    actor = ray.remote(CoordinatorActor).options(
        name=name.job,
        namespace=home,
        max_concurrency=COORDINATOR_THREADS,
        scheduling_strategy=on_node(ray.get_runtime_context().get_node_id()),
        **cluster.actor_options(),
    )
    try:
        return actor.remote(packed_spec)
    except ValueError as error:
        raise taken(name) from error


class Driver:
    """Drives one run to its end."""

    def __init__(
        self,
        job: str,
        spec: JobSpec,
        actors: ActorRegistry,
        publisher: EventPublisher,
        outage: Outage,
        stop: StopSwitch,
        home: str,
        first_term: int = 0,
        ahead: StartedAhead | None = None,
    ) -> None:
        """``home``: the namespace, in Ray, of its coordinators. ``first_term``: of the first one. 0: there are no
        processes yet; else ``actors`` has those of a former driver, or those that were started ``ahead``."""
        self._job, self._spec, self._actors, self._publisher, self._outage = job, spec, actors, publisher, outage
        self._name, self._home = JobName(job, spec.cluster.namespace), home
        self._stop = stop
        self._ray = import_ray()
        self._packed_spec = pack(spec)
        self._term = self._first_term = first_term
        self._ahead = ahead
        self._deployed_us: int | None = None
        self._failed_starts = 0
        self.interrupt: KeyboardInterrupt | None = None
        """What has interrupted the run."""
        self._gives_way = False
        self.watched = False
        """Whether anybody besides this driver has asked for the end."""

    def run(self) -> EndJob | None:
        """Runs the job, and returns how it ended; None if it was interrupted. Raises ClusterError."""
        first_term = self._first_term
        try:
            for self._term in itertools.count(first_term):
                ahead, self._ahead = self._ahead, None
                coordinator = ahead.coordinator if ahead else self._start_coordinator()
                if self._term == 0:
                    self._open_ahead()
                try:
                    self._await_start(coordinator)
                    with self._stop.connected(coordinator.stop.remote):
                        return self._listen(coordinator, ahead.processes if ahead else ())
                except self._ray.exceptions.RayActorError as error:
                    problem = error
                except ClusterLostError:
                    self._end_without_ray(coordinator)
                    raise
                finally:
                    self._ray.kill(coordinator)
                self._outage.settle()
                self._check_restart(problem)
        except self._ray.exceptions.RayError:
            self._outage.settle()
            raise
        finally:
            self._actors.close()
        raise AssertionError("the count has no end")

    def _start_coordinator(self) -> Any:
        return start_coordinator(self._name, self._home, self._packed_spec, self._spec.cluster)

    def _open_ahead(self) -> None:
        """Opens the actors of the job's tasks while the coordinator starts, which takes as long."""
        if not self._actors.opened.ahead:
            self._actors.opened.open_ahead(self._spec.deployment.plan.undemanding, node_ids())

    def _check_restart(self, problem: Exception) -> None:
        """Called when the coordinator was lost. Raises ClusterError if another would not help."""
        if self._gives_way:
            raise ClusterError(taken_over(self._job)) from problem
        self._failed_starts += 1
        if self._failed_starts > _FAILED_STARTS_MAX or not is_free_in(self._home, self._job):
            raise ClusterError(
                f"the coordinator of {self._job!r} died {self._failed_starts} times in a row: run the job again"
            ) from problem

    def _await_start(self, coordinator: Any) -> None:
        ready, node = coordinator.__ray_ready__.remote(), self._ray.get_runtime_context().get_node_id()
        patience = StartPatience(self._spec.policy.start_timeout_us, self._now_us())
        while not self._ray.wait([ready], timeout=_CHECK_INTERVAL_S)[0]:
            self._outage.check()
            patience.update(signs_of(node), self._now_us())
            if patience.has_expired:
                raise ClusterError(patience.error_message(self._job))
            if patience.reports():
                self._publisher.coordinator_awaited(self._now_us(), patience.waited_us, patience.seen)

    def _listen(self, coordinator: Any, prepared: Sequence[TaskProcess]) -> EndJob | None:
        """Creates requested processes and publishes events until the job has ended. ``prepared``: see
        ``CoordinatorStart``."""
        kills, deployed_us = self._publisher.kills_left, self._deployed_us
        done = coordinator.run.remote(
            CoordinatorStart(self._term, self._actors.processes(), prepared, kills, deployed_us)
        )
        if self.interrupt is not None:
            coordinator.interrupt.remote()
        while True:
            try:
                finished, _ = self._ray.wait([done], timeout=0)
                self._take(self._fetch_update(coordinator), coordinator)
                if finished:
                    end: EndJob | None = self._ray.get(done)
                    watchers = coordinator.await_watchers.remote(_WATCHED_S_MAX)
                    self.watched = not self._ray.wait([watchers], timeout=_WATCHED_S_MAX)[0] or self._ray.get(watchers)
                    return end
            except KeyboardInterrupt as interrupt:
                self.interrupt = interrupt
                coordinator.interrupt.remote()

    def _fetch_update(self, coordinator: Any) -> CoordinatorUpdate:
        """Fetches the coordinator's update. Raises ClusterLostError."""
        self._outage.check()
        coming = coordinator.next_update.remote()
        while not self._ray.wait([coming], timeout=_CHECK_INTERVAL_S)[0]:
            self._outage.check()
        update: CoordinatorUpdate = self._ray.get(coming)
        return update

    def _end_without_ray(self, coordinator: Any) -> None:
        """Ends all actors. Nothing else would: without a head, Ray does not notice that the driver is gone."""
        coming = [coordinator.die.remote(), *self._actors.end_without_ray()]
        self._ray.wait(coming, num_returns=len(coming), timeout=_END_S)

    def _take(self, update: CoordinatorUpdate, coordinator: Any) -> None:
        self._gives_way = update.gives_way
        for request in update.requests:
            coordinator.join.remote(request.number, self._actors.create(request, coordinator, self._term))
        self._actors.dismiss(update.dismissed)  # last: a new process may replace a dismissed one
        for lines in update.news.printed:
            terminal().write(lines)
        for at_us, event in update.news.events:
            if isinstance(event, Deployed):
                self._deployed_us = at_us
                self._actors.opened.close_ahead()
            if isinstance(event, Deployed | CoordinatorReplaced):
                self._failed_starts = 0
        self._publisher.publish(update.news, self._now_us())

    def _now_us(self) -> int:
        return self._spec.deployment.clock.now_us()
