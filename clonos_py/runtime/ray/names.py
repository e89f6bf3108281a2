"""A job's name is its identity on a cluster: one coordinator at a time has it, and another run may take it over (P8).

The run that is taken over stops first, with its last checkpoint intact. The new coordinator opens a new generation, so
that nothing counts that its predecessor may still write (D11).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from clonos_py.model.errors import ClusterError
from clonos_py.runtime.ray.cluster import import_ray

NAMESPACE = "clonos"
DRIVERS, PROCESSES = "clonos-drivers", "clonos-processes"
"""The namespaces of what outlives the command that has started it: drivers, by the name of their job, and processes."""
_PATIENCE_S = 15.0
"""The time that a coordinator gets to stop in order, and Ray to release the name of one that was killed."""
_POLL_S = 0.05


def free_name(job: str, take_over: bool) -> None:
    """Makes sure that the name is free. ``take_over``: stops a run that has it. Raises ClusterError if it stays in
    use."""
    running = holder(job)
    if running is None:
        return
    if not take_over:
        raise taken(job)
    running.give_way.remote()
    if not is_free(job):
        import_ray().kill(running)
        if not is_free(job):
            raise ClusterError(f"the running job {job!r} does not end: see `ray list actors`, then try again")


def taken(job: str) -> ClusterError:
    """The error that says that the name is in use."""
    return ClusterError(
        f"a job named {job!r} is running on this cluster: stop it, name this one differently, or go on in its place "
        "with --take-over"
    )


def taken_over(job: str) -> str:
    """The message with which a run ends that is taken over."""
    return f"another run has taken the job {job!r} over"


def holder(job: str) -> Any | None:
    """The coordinator that has the name, None if the name is free."""
    try:
        return import_ray().get_actor(job, namespace=NAMESPACE)
    except ValueError:
        return None


def running_jobs() -> list[str]:
    """The names of all jobs that run on the cluster, sorted."""
    return named_actors(NAMESPACE)


def named_actors(namespace: str) -> list[str]:
    """The names of all actors in a namespace, sorted."""
    actors = import_ray().util.list_named_actors(all_namespaces=True)
    return sorted(actor["name"] for actor in actors if actor["namespace"] == namespace)


def is_free(job: str) -> bool:
    """Waits until the name is free; False if it is not in time. A run that is taken over ends its coordinator itself
    after it has fetched the reason, and Ray releases the name of one that was killed."""
    return comes_true(lambda: holder(job) is None, _PATIENCE_S)


def comes_true(condition: Callable[[], bool], within_s: float) -> bool:
    """Waits until the condition is true; False if it is not in time. Ray tells nobody when a name is released."""
    until_s = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > until_s:
            return False
        time.sleep(_POLL_S)
    return True
