"""Where the processes of a running job are."""

from __future__ import annotations

from clonos_py.model.ids import DEFAULT_NAMESPACE
from clonos_py.runtime.ray.actors import ProcessPlace
from clonos_py.runtime.ray.cluster import import_ray
from tests.waiting import wait_until


def places(job: str, standbys: int = 0) -> list[ProcessPlace]:
    """The places of all processes, as soon as at least so many standbys are up: a job is deployed when its tasks
    are."""

    def found() -> list[ProcessPlace]:
        return ray.get(ray.get_actor(job, namespace=DEFAULT_NAMESPACE).processes.remote())  # type: ignore[no-any-return]

    ray = import_ray()
    wait_until(lambda: sum(not place.active for place in found()) >= standbys, found)
    return found()
