"""Detached runs, from the commands that start, list and read them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from clonos_py.checkpoint.storage import CheckpointStore
from clonos_py.checkpoint.stored_runs import RunParallelism, StoredRuns
from clonos_py.dsl.job import Job
from clonos_py.model.errors import ClusterError, SettingError
from clonos_py.plan.pickling import pack
from clonos_py.runtime.launch import planned
from clonos_py.runtime.ray.asking import answer
from clonos_py.runtime.ray.cluster import Cluster, JobName, import_ray
from clonos_py.runtime.ray.driver_actor import DRIVER_THREADS, DetachedJob, DriverActor, DriverState
from clonos_py.runtime.ray.names import (
    comes_true,
    drivers_of,
    free_name,
    holder,
    named_actors,
    processes_of,
    running_jobs,
)
from clonos_py.runtime.ray.run import RunIdentity
from clonos_py.settings.definitions import Runtime, Settings

_POLL_S = 0.25
_GONE_S = 15.0
_STARTED_S = 60.0
"""The time that a driver gets to start a coordinator, or to end what it has started."""


def check_detachable(settings: Settings) -> None:
    """Raises SettingError if no detached run can follow the settings."""
    if settings.runtime is not Runtime.RAY:
        raise SettingError(f"a detached run is one on Ray, and runtime = {settings.runtime.value}")
    if settings.checkpoints is None:
        raise SettingError("a detached run needs a checkpoint folder that all nodes reach: give --checkpoints")
    if settings.trace is not None:
        raise SettingError("a detached run writes no trace: leave out --trace, and read --web")


def deploy(job: Job, settings: Settings, cluster: Cluster) -> Any:
    """Starts a job whose driver outlives this process, and returns the driver. ``settings`` are detachable. Raises
    GraphError or SettingError for what cannot run, ClusterError if the name is in use."""
    assert settings.checkpoints is not None
    planned(job, settings)
    _free(JobName(job.name, cluster.namespace), settings.take_over)
    store = CheckpointStore(settings.checkpoints, job.name)
    if settings.fresh:
        store.archive()
    last = store.latest()
    content = pack(DetachedJob(job, settings, last.checkpoint if last else 0))
    return _start(job.name, settings.checkpoints, content, cluster)


def redeploy(job: str, checkpoints: str, cluster: Cluster) -> Any:
    """Starts the newest run of a job again, from its last checkpoint, and returns the driver. It runs what it finds in
    the folder."""
    runs = StoredRuns(checkpoints, job)
    last = runs.newest()
    content, parallelism = runs.read(last), runs.parallelism(last)
    _free(JobName(job, cluster.namespace), take_over=False)
    return _start(job, checkpoints, content, cluster, parallelism)


def rescale(
    job: str, driver: Any, default: int | None, operators: Mapping[str, int], shown: Callable[[str], None]
) -> float:
    """Has a run go on at another parallelism, see ``RunParallelism``, and passes the lines of the run meanwhile to
    ``shown``. Returns the seconds for which it has paused. Raises ClusterError if it does not go on at that."""
    ray, last = import_ray(), max((number for number, _ in answer(driver.lines, 0)), default=0)
    coming = driver.rescale.remote(default, dict(operators))
    try:
        for line in followed(driver, lambda _: not ray.wait([coming], timeout=0)[0], last):
            shown(line)
        found: float | str = ray.get(coming)
    except ray.exceptions.RayActorError as error:
        raise ClusterError(
            f"the driver of {job!r} has died meanwhile: `clonos status {job}` shows its parallelism soon"
        ) from error
    if isinstance(found, str):
        raise ClusterError(f"{job!r} is not rescaled: {found}")
    return found


def _start(
    job: str, checkpoints: str, content: bytes, cluster: Cluster, parallelism: RunParallelism | None = None
) -> Any:
    runs = StoredRuns(checkpoints, job)
    name = runs.write(time.time_ns() // 1_000_000, content)
    if parallelism is not None:
        runs.rescale(name, parallelism)
    identity = RunIdentity.drawn(cluster.namespace, detached=f"{job}/{name}/")
    options = cluster.actor_options() | {
        "name": job,
        "namespace": drivers_of(cluster.namespace),
        "lifetime": "detached",
        "max_restarts": -1,
        "max_concurrency": DRIVER_THREADS,
    }
    actor = import_ray().remote(DriverActor).options(**options)
    return actor.remote(job, checkpoints, name, identity)


def _free(name: JobName, take_over: bool) -> None:
    """Makes sure that the name is free. The driver of a run that has ended goes."""
    free_name(name, take_over)
    running = driver_of(name)
    if running is None:
        return
    state = state_of(running)
    if state is not None and state.goes_on:
        raise ClusterError(
            f"a detached run of {name.job!r} is {state.state}: stop it with `clonos stop`, or name this one differently"
        )
    import_ray().kill(running)
    if not comes_true(lambda: driver_of(name) is None, _GONE_S):
        raise ClusterError(f"the driver of an ended run of {name.job!r} does not end: see `ray list actors`")


def driver_of(name: JobName) -> Any | None:
    """The driver of the detached run of this name; None if there is none."""
    try:
        return import_ray().get_actor(name.job, namespace=drivers_of(name.namespace))
    except ValueError:
        return None


def the_driver_of(name: JobName) -> Any:
    """The driver of the detached run of this name. Raises SettingError if there is none."""
    found = driver_of(name)
    if found is None:
        there = ", ".join(map(repr, named_actors(drivers_of(name.namespace)))) or "none"
        raise SettingError(f"there is no detached run of {name.job!r} on this cluster; detached runs: {there}")
    return found


def state_of(driver: Any) -> DriverState | None:
    """How a run is; None while its driver does not answer."""
    try:
        return DriverState(*answer(driver.state))
    except ClusterError:
        return None


def await_coordinator(name: JobName) -> None:
    """Waits while a detached run of this name has no coordinator: its driver is about to start one."""
    comes_true(lambda: holder(name) is not None or not _goes_on(name), _STARTED_S)


def await_end(name: JobName) -> None:
    """Waits until the driver of a detached run that stops has let go of all its processes."""
    comes_true(lambda: holder(name) is None and not _goes_on(name), _STARTED_S)


def _goes_on(name: JobName) -> bool:
    """Whether there is a detached run of this name that has not ended; also while Ray starts its driver again."""
    driver = driver_of(name)
    if driver is None:
        return False
    state = state_of(driver)
    return state is None or state.goes_on


def detached_runs(namespace: str) -> list[tuple[str, DriverState | None]]:
    """All detached runs of a tenant on the cluster, by name."""
    found = ((job, driver_of(JobName(job, namespace))) for job in named_actors(drivers_of(namespace)))
    return [(job, state_of(driver)) for job, driver in found if driver is not None]


def attached_runs(namespace: str) -> list[str]:
    """The names of a tenant's jobs whose driver is the process of a command."""
    return sorted(set(running_jobs(namespace)) - set(named_actors(drivers_of(namespace))))


def orphans(namespace: str) -> list[str]:
    """The names of a tenant's processes whose run has no driver."""
    drivers = set(named_actors(drivers_of(namespace)))
    return [name for name in named_actors(processes_of(namespace)) if name.rsplit("/", 2)[0] not in drivers]


def followed(driver: Any, going_on: Callable[[DriverState], bool], last: int = 0) -> Iterator[str]:
    """The lines of a run behind number ``last`` as they come, as long as ``going_on`` says so of its state."""
    while True:
        state = state_of(driver)
        try:
            lines = answer(driver.lines, last)
        except ClusterError:
            lines, last = [], 0  # another driver begins with other lines
        for number, line in lines:
            last = number
            yield line
        if state is not None and not going_on(state):
            return
        time.sleep(_POLL_S)
