"""A job's name, within the namespace of a tenant, is its identity on a cluster: one coordinator at a time has it, and
another run may take it over (P8).

The run that is taken over stops first, with its last checkpoint intact. The new coordinator opens a new generation, so
that nothing counts that its predecessor may still write (D11).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from clonos_py.model.errors import ClusterError
from clonos_py.runtime.ray.cluster import JobName, import_ray

_RUNS_S = 2.0
"""The time that a coordinator gets to say whether it runs its job."""
_PATIENCE_S = 15.0
"""The time that a coordinator gets to stop in order, and Ray to release the name of one that was killed."""
_POLL_S = 0.05


def coordinators_of(namespace: str) -> tuple[str, str]:
    """The namespaces, in Ray, of a tenant's coordinators, which have the names of their jobs. With each change of its
    parallelism a run goes on in the other one: its next coordinator starts before the last one has ended."""
    return namespace, f"{namespace}/rescaled"


def drivers_of(namespace: str) -> str:
    """The namespace, in Ray, of a tenant's detached drivers, which have the names of their jobs."""
    return f"{namespace}/drivers"


def processes_of(namespace: str) -> str:
    """The namespace, in Ray, of the processes of a tenant's detached runs."""
    return f"{namespace}/processes"


def free_name(name: JobName, take_over: bool) -> None:
    """Makes sure that the name is free. ``take_over``: stops a run that has it. Raises ClusterError if it stays in
    use."""
    running = holder(name)
    if running is None:
        return
    if not take_over:
        raise taken(name)
    running.give_way.remote()
    if not is_free(name):
        import_ray().kill(running)
        if not is_free(name):
            raise ClusterError(f"the running job {name.job!r} does not end: see `ray list actors`, then try again")


def taken(name: JobName) -> ClusterError:
    """The error that says that the name is in use."""
    return ClusterError(
        f"a job named {name.job!r} is running on this cluster: stop it, name this one differently, or go on in its "
        "place with --take-over"
    )


def taken_over(job: str) -> str:
    """The message with which a run ends that is taken over."""
    return f"another run has taken the job {job!r} over"


def holder(name: JobName) -> Any | None:
    """The coordinator that has the name, None if the name is free. If the job is being rescaled it is the one that runs
    it."""
    found = [coordinator for home in coordinators_of(name.namespace) if (coordinator := _named(name.job, home))]
    if len(found) > 1:
        return next(filter(_runs, found), found[0])
    return found[0] if found else None


def _named(job: str, home: str) -> Any | None:
    try:
        return import_ray().get_actor(job, namespace=home)
    except ValueError:
        return None


def _runs(coordinator: Any) -> bool:
    ray, coming = import_ray(), coordinator.runs.remote()
    try:
        return bool(ray.wait([coming], timeout=_RUNS_S)[0]) and bool(ray.get(coming))
    except ray.exceptions.RayActorError:
        return False


def running_jobs(namespace: str) -> list[str]:
    """The names of all jobs of a tenant that run on the cluster, sorted."""
    return sorted({job for home in coordinators_of(namespace) for job in named_actors(home)})


def named_actors(namespace: str) -> list[str]:
    """The names of all actors in a namespace of Ray, sorted."""
    actors = import_ray().util.list_named_actors(all_namespaces=True)
    return sorted(actor["name"] for actor in actors if actor["namespace"] == namespace)


def is_free(name: JobName) -> bool:
    """Waits until the name is free; False if it is not in time. A run that is taken over ends its coordinator itself
    after it has fetched the reason, and Ray releases the name of one that was killed."""
    return all(is_free_in(home, name.job) for home in coordinators_of(name.namespace))


def is_free_in(home: str, job: str) -> bool:
    """Like ``is_free``, in one namespace of coordinators."""
    return comes_true(lambda: _named(job, home) is None, _PATIENCE_S)


def comes_true(condition: Callable[[], bool], within_s: float) -> bool:
    """Waits until the condition is true; False if it is not in time. Ray tells nobody when a name is released."""
    until_s = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > until_s:
            return False
        time.sleep(_POLL_S)
    return True
