"""Where the processes of a running job are."""

from __future__ import annotations

import time

from clonos_py.runtime.ray.actors import ProcessPlace
from clonos_py.runtime.ray.cluster import import_ray
from clonos_py.runtime.ray.names import NAMESPACE

_START_S_MAX = 30.0


def places(job: str, standbys: int = 0) -> list[ProcessPlace]:
    """The places of all processes, as soon as at least so many standbys are up: a job is deployed when its tasks
    are."""
    ray, until = import_ray(), time.monotonic() + _START_S_MAX
    while True:
        found: list[ProcessPlace] = ray.get(ray.get_actor(job, namespace=NAMESPACE).processes.remote())
        if sum(not place.active for place in found) >= standbys or time.monotonic() > until:
            return found
        time.sleep(0.05)
