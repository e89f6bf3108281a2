"""A job's name is its identity: one coordinator at a time has it on a cluster, and a run may take it over (P8).

The run that is taken over stops first, its last checkpoint intact. The new coordinator opens a generation of its own,
so that nothing its predecessor may still write counts (D11).
"""

from __future__ import annotations

import time
from typing import Any

from clonos_py.model.errors import ClusterError
from clonos_py.runtime.ray.cluster import import_ray

NAMESPACE = "clonos"
_PATIENCE_S = 15.0
"""So long may a coordinator take to stop in order, and Ray to forget one that was killed."""
_POLL_S = 0.05


def claim(job: str, take_over: bool) -> None:
    """On return the name is free. Raises ClusterError if a run has it and is not to be taken over."""
    holder = _holder(job)
    if holder is None:
        return
    if not take_over:
        raise taken(job)
    holder.give_way.remote()
    if not is_free(job):
        import_ray().kill(holder)
        if not is_free(job):
            raise ClusterError(f"the running job {job!r} does not end: see `ray list actors`, then try again")


def taken(job: str) -> ClusterError:
    """The name is in use."""
    return ClusterError(
        f"a job named {job!r} is running on this cluster: stop it, name this one differently, or go on in its place "
        "with --take-over"
    )


def taken_over(job: str) -> str:
    """The message to a run that is taken over."""
    return f"another run has taken the job {job!r} over"


def _holder(job: str) -> Any | None:
    """The coordinator that has the name."""
    try:
        return import_ray().get_actor(job, namespace=NAMESPACE)
    except ValueError:
        return None


def is_free(job: str) -> bool:
    """Waits for the name to be free: a run that is taken over ends its coordinator itself, once it has heard why, and
    Ray forgets one that was killed."""
    deadline = time.monotonic() + _PATIENCE_S
    while _holder(job) is not None:
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL_S)
    return True
