"""Runs a plan on Ray: one actor per task, one per standby or per several standbys, and one for the coordinator (see
``driver``)."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from functools import partial
from pathlib import Path

from clonos_py.checkpoint.storage import CheckpointStore
from clonos_py.model.errors import CheckpointError, Interrupted, one_line
from clonos_py.model.plan import PhysicalPlan
from clonos_py.observe.events import Listener
from clonos_py.plan.pickling import pack
from clonos_py.protocols.known import protocol_of
from clonos_py.runtime.clock import SteadyClock
from clonos_py.runtime.event_publisher import EventPublisher
from clonos_py.runtime.leftovers import clear
from clonos_py.runtime.ray.actor_registry import ActorRegistry
from clonos_py.runtime.ray.actors import JobSpec
from clonos_py.runtime.ray.cluster import connected, machines
from clonos_py.runtime.ray.driver import Driver
from clonos_py.runtime.ray.folders import folders
from clonos_py.runtime.ray.names import free_name
from clonos_py.runtime.ray.outage import watched
from clonos_py.runtime.ray.process import Deployment, of_vertex
from clonos_py.runtime.run_settings import RunResult, drawn_lineage, kills, limits, policy, raise_for
from clonos_py.runtime.stop_switch import StopSwitch
from clonos_py.runtime.transport.tls import TlsFiles
from clonos_py.runtime.user_code import code_digest
from clonos_py.settings.definitions import Guarantee, Settings

_SECRET_BYTES = 32


def run(plan: PhysicalPlan, settings: Settings, listener: Listener, stop: StopSwitch | None = None) -> RunResult:
    """Runs until the sources end, or until ``stop`` is requested and a last checkpoint committed. An interrupt (Ctrl-C)
    ends the job in order, with its last checkpoint intact, and is raised again. Raises the ClonosError that ended the
    job."""
    ordered_kills = kills(plan, settings)
    tls = _tls_files(settings)
    clock = SteadyClock.start()
    publisher = EventPublisher(plan, clock.now_us(), listener, ordered_kills)
    publisher.name_leftovers(clear(plan.job), settings.checkpoints)
    where = "starting Ray" if settings.address is None else f"connecting to Ray at {settings.address}"
    publisher.prepare(clock.now_us(), where)
    with (
        connected(settings.address) as cluster,
        folders(plan.job, settings.checkpoints, machines()) as (scratch, checkpoints),
        watched(partial(_resume, plan.job, checkpoints)) as outage,
    ):
        publisher.prepare(clock.now_us(), "starting the coordinator")
        free_name(plan.job, settings.take_over)
        open_store = partial(CheckpointStore, checkpoints, plan.job)
        if settings.fresh:
            open_store().archive()
        deployment = _deployment(plan, settings, open_store, scratch, tls, clock)
        packed = {vertex.name: pack(of_vertex(deployment, vertex.name)) for vertex in plan.vertices}
        spec = JobSpec(
            of_vertex(deployment, ""),
            protocol_of(plan).job,
            policy(settings, drawn_lineage()),
            cluster,
            settings.checkpoints_kept,
            code_digest(),
            settings.standbys_per_process,
        )
        actors = ActorRegistry(packed, cluster, settings.standbys_per_process)
        driver = Driver(plan.job, spec, actors, publisher, outage, stop or StopSwitch())
        end = driver.run()
        if end is None:
            publisher.stop(clock.now_us())
            raise driver.interrupt or Interrupted
    raise_for(end, settings.checkpoints)
    return RunResult(plan, publisher.latency, end.stopped)


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
    clock: SteadyClock,
) -> Deployment:
    protocol = protocol_of(plan)
    return Deployment(
        plan=plan,
        task_side=protocol.task,
        link_side=protocol.link,
        open_store=open_store,
        secret=secrets.token_bytes(_SECRET_BYTES),
        limits=limits(settings),
        linger_us=settings.linger_us,
        retain=settings.guarantee is not Guarantee.AT_MOST_ONCE,
        scratch=scratch,
        tls=tls,
        clock=clock,
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
