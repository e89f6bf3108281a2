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
from clonos_py.runtime.ray.cluster import JobName, connected, machines
from clonos_py.runtime.ray.driver import Driver
from clonos_py.runtime.ray.folders import folders, scratch_path
from clonos_py.runtime.ray.names import free_name, is_free
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
        )


def run(plan: PhysicalPlan, settings: Settings, listener: Listener, stop: StopSwitch | None = None) -> RunResult:
    """Runs until the sources end, or until ``stop`` is requested and a last checkpoint committed. An interrupt (Ctrl-C)
    ends the job in order, with its last checkpoint intact, and is raised again. Raises the ClonosError that ended the
    job."""
    return drive(plan, settings, listener, stop or StopSwitch(), RunIdentity.drawn(settings.namespace)).result


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
    opened: OpenedActors | None = None,
) -> Driven:
    """What ``run`` does, for the run of this identity: a detached one goes on with the processes of a former driver.
    ``opened``: actors that were opened ahead for it; then there are no such processes."""
    ordered_kills, name = kills(plan, settings), JobName(plan.job, identity.namespace)
    tls = _tls_files(settings)
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
        deployment = _deployment(plan, settings, open_store, scratch, tls, identity)
        packed = {vertex.name: pack(of_vertex(deployment, vertex.name)) for vertex in plan.vertices}
        spec = JobSpec(
            of_vertex(deployment, ""),
            protocol_of(plan).job,
            policy(settings, identity.lineage),
            cluster,
            settings.checkpoints_kept,
            identity.code_digest,
            settings.standbys_per_process,
        )
        adopts = identity.detached is not None and opened is None
        opened = opened or OpenedActors(cluster, settings.standbys_per_process, identity.detached)
        actors = ActorRegistry(packed, opened, settings.standbys_per_process)
        first_term = actors.adopt() + 1 if adopts else 0
        if identity.detached is not None and not is_free(name):  # the coordinator of a driver that has died
            raise ClusterError(f"the coordinator of {plan.job!r} does not end: see `ray list actors`, then try again")
        if not first_term:
            await_room(plan)
        driver = Driver(plan.job, spec, actors, publisher, outage, stop, first_term)
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


def _deployment(
    plan: PhysicalPlan,
    settings: Settings,
    open_store: Callable[[], CheckpointStore],
    scratch: Path,
    tls: TlsFiles | None,
    identity: RunIdentity,
) -> Deployment:
    protocol = protocol_of(plan)
    return Deployment(
        plan=plan,
        task_side=protocol.task,
        link_side=protocol.link,
        open_store=open_store,
        secret=identity.secret,
        limits=limits(settings),
        linger_us=settings.linger_us,
        retain=settings.guarantee is not Guarantee.AT_MOST_ONCE,
        scratch=scratch,
        tls=tls,
        clock=identity.clock,
        function_timeout_us=settings.function_timeout_us,
    )


def _tls_files(settings: Settings) -> TlsFiles | None:
    """The TLS files, None without TLS. They are checked here before anything starts; every process loads those of its
    own node. Raises SettingError."""
    paths = [path for path in (settings.tls_certificate, settings.tls_key, settings.tls_ca) if path is not None]
    if not paths:
        return None
    files = TlsFiles(*(Path(path).absolute() for path in paths))
    files.load()
    return files
