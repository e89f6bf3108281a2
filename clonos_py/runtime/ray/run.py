"""Runs a plan on Ray: one actor per task, one per standby or per several standbys, and one for the coordinator (see
``driver``)."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

from clonos_py.checkpoint.storage import CheckpointStore
from clonos_py.model.errors import CheckpointError, ClusterError, Interrupted, one_line
from clonos_py.model.plan import PhysicalPlan
from clonos_py.observe.events import Listener
from clonos_py.plan.pickling import pack
from clonos_py.protocols.known import protocol_of
from clonos_py.runtime.clock import SteadyClock
from clonos_py.runtime.event_publisher import EventPublisher
from clonos_py.runtime.leftovers import clear
from clonos_py.runtime.ray.actor_registry import ActorRegistry
from clonos_py.runtime.ray.actors import JobSpec
from clonos_py.runtime.ray.cluster import Cluster, JobName, connected, import_ray, machines
from clonos_py.runtime.ray.driver import Driver, StartedAhead
from clonos_py.runtime.ray.folders import folders, scratch_path
from clonos_py.runtime.ray.names import coordinators_of, free_name, is_free
from clonos_py.runtime.ray.opened_actors import OpenedActors
from clonos_py.runtime.ray.outage import watched
from clonos_py.runtime.ray.process import Deployment, of_vertex
from clonos_py.runtime.ray.room import await_room
from clonos_py.runtime.run_settings import RunResult, drawn_lineage, kills, limits, policy, raise_for
from clonos_py.runtime.stop_switch import StopSwitch
from clonos_py.runtime.transport.tls import TlsFiles
from clonos_py.runtime.user_code import code_digest
from clonos_py.settings.definitions import Guarantee, Settings

_SECRET_BYTES = 32


class RunIdentity(NamedTuple):
    """What all drivers of one run have in common. ``scratch``: the path of its folder on every node. ``namespace``: of
    its tenant. ``detached``: what the names of its processes begin with if they outlive a driver; None if they do
    not."""

    secret: bytes
    scratch: str
    clock: SteadyClock
    lineage: str
    code_digest: str
    namespace: str
    detached: str | None = None
    changes: int = 0
    """How often the parallelism of the run was changed."""

    @classmethod
    def drawn(cls, namespace: str, detached: str | None = None) -> RunIdentity:
        """The identity of a new run of the code in this process."""
        secret = secrets.token_bytes(_SECRET_BYTES)
        return cls(secret, scratch_path(), SteadyClock.start(), drawn_lineage(), code_digest(), namespace, detached)

    def rescaled(self, times: int) -> RunIdentity:
        """The identity of a detached run after so many changes of its parallelism: each has processes of its own."""
        return self._replace(
            scratch=f"{self.scratch}-{times}",
            lineage=f"{self.lineage}.{times}",
            detached=f"{self.detached}{times}-",
            changes=times,
        )

    @property
    def home(self) -> str:
        """The namespace, in Ray, of its coordinators."""
        return coordinators_of(self.namespace)[self.changes % 2]


def run(plan: PhysicalPlan, settings: Settings, listener: Listener, stop: StopSwitch | None = None) -> RunResult:
    """Runs until the sources end, or until ``stop`` is requested and a last checkpoint committed. An interrupt (Ctrl-C)
    ends the job in order, with its last checkpoint intact, and is raised again. Raises the ClonosError that ended the
    job."""
    return drive(plan, settings, listener, stop or StopSwitch(), RunIdentity.drawn(settings.namespace)).result


PREPARING_TERM = 0
"""Of the driver, in whose name processes start ahead of a run (``preparing.py``)."""


class PreparedRun(NamedTuple):
    """A run whose coordinator and processes have started ahead."""

    spec: JobSpec
    actors: ActorRegistry
    ahead: StartedAhead

    def close(self) -> None:
        """Ends all of it."""
        import_ray().kill(self.ahead.coordinator)
        self.actors.close()


class Driven(NamedTuple):
    """A run that has ended. ``watched``: whether anybody besides its driver has asked for the end."""

    result: RunResult
    watched: bool


def drive(
    plan: PhysicalPlan,
    settings: Settings,
    listener: Listener,
    stop: StopSwitch,
    identity: RunIdentity,
    prepared: PreparedRun | None = None,
    has_run: bool = False,
) -> Driven:
    """What ``run`` does, for the run of this identity: a detached one goes on with the processes of a former driver.
    ``prepared``: what has started ahead for it; then there are no such processes. ``has_run``: tasks wait for room, as
    those do whose node was lost, also if the run has no process left."""
    ordered_kills, name = kills(plan, settings), JobName(plan.job, identity.namespace)
    _tls_files(settings)  # files that cannot be used end the run before anything starts
    clock = identity.clock.here()
    publisher = EventPublisher(plan, clock.now_us(), listener, ordered_kills)
    publisher.name_leftovers(clear(plan.job), settings.checkpoints)
    where = "starting Ray" if settings.address is None else f"connecting to Ray at {settings.address}"
    publisher.prepare(clock.now_us(), where)
    with (
        connected(settings.address, identity.namespace) as cluster,
        folders(plan.job, settings.checkpoints, machines(), identity.scratch) as (scratch, checkpoints),
        watched(partial(_resume, plan.job, checkpoints), survived=identity.detached is not None) as outage,
    ):
        publisher.prepare(clock.now_us(), "starting the coordinator")
        if identity.detached is None:
            free_name(name, settings.take_over)
        open_store = partial(CheckpointStore, checkpoints, plan.job)
        if settings.fresh:
            open_store().archive()
        if prepared is not None:
            spec, actors, ahead = prepared
            first_term = PREPARING_TERM + 1
        else:
            spec, actors = assembled(plan, settings, open_store, scratch, cluster, identity)
            ahead, first_term = None, actors.adopt() + 1 if identity.detached is not None else 0
            if identity.detached is not None and not is_free(name):  # the coordinator of a driver that has died
                raise ClusterError(
                    f"the coordinator of {plan.job!r} does not end: see `ray list actors`, then try again"
                )
        if not has_run and (not first_term or prepared is not None):
            await_room(plan)
        driver = Driver(plan.job, spec, actors, publisher, outage, stop, identity.home, first_term, ahead)
        end = driver.run()
        if end is None:
            publisher.stop(clock.now_us())
            raise driver.interrupt or Interrupted
    raise_for(end, settings.checkpoints)
    return Driven(RunResult(plan, publisher.latency, end.stopped), driver.watched)


def _resume(job: str, checkpoints: str) -> str:
    """The text that says how the user can resume the job after the cluster was lost."""
    try:
        manifest = CheckpointStore(checkpoints, job).latest()
    except CheckpointError as problem:
        return f"whether a checkpoint was complete cannot be determined ({one_line(problem)})"
    if manifest is None:
        return "no checkpoint was complete, so run it again from the beginning"
    return (
        f"checkpoint {manifest.checkpoint} is complete; to go on from it, run the job with --checkpoints {checkpoints}"
    )


def assembled(
    plan: PhysicalPlan,
    settings: Settings,
    open_store: Callable[[], CheckpointStore],
    scratch: Path,
    cluster: Cluster,
    identity: RunIdentity,
) -> tuple[JobSpec, ActorRegistry]:
    """What the coordinator of a run gets, and a registry for its processes. Raises SettingError."""
    protocol = protocol_of(plan)
    deployment = Deployment(
        plan=plan,
        task_side=protocol.task,
        link_side=protocol.link,
        open_store=open_store,
        secret=identity.secret,
        limits=limits(settings, cuts_early=True),
        linger_us=settings.linger_us,
        retain=settings.guarantee is not Guarantee.AT_MOST_ONCE,
        scratch=scratch,
        tls=_tls_files(settings),
        clock=identity.clock,
        function_timeout_us=settings.function_timeout_us,
    )
    packed = {vertex.name: pack(of_vertex(deployment, vertex.name)) for vertex in plan.vertices}
    spec = JobSpec(
        of_vertex(deployment, ""),
        protocol.job,
        policy(settings, identity.lineage),
        cluster,
        settings.checkpoints_kept,
        identity.code_digest,
        settings.standbys_per_process,
    )
    opened = OpenedActors(cluster, settings.standbys_per_process, identity.detached)
    return spec, ActorRegistry(packed, opened, settings.standbys_per_process)


def _tls_files(settings: Settings) -> TlsFiles | None:
    """The TLS files, None without TLS. They are checked here before anything starts; every process loads those of its
    own node. Raises SettingError."""
    paths = [path for path in (settings.tls_certificate, settings.tls_key, settings.tls_ca) if path is not None]
    if not paths:
        return None
    files = TlsFiles(*(Path(path).absolute() for path in paths))
    files.load()
    return files
