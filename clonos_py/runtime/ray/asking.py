"""Questions to actors of a run, which may have died or not answer."""

from __future__ import annotations

from typing import Any

from clonos_py.model.errors import CheckpointError, ClusterError
from clonos_py.runtime.ray.cluster import JobName, import_ray
from clonos_py.runtime.ray.stopping import coordinator_of

_ANSWER_S = 10.0


def answer(method: Any, *arguments: Any) -> Any:
    """What an actor answers. Raises ClusterError if it does not, as while Ray starts it again."""
    ray, coming = import_ray(), method.remote(*arguments)
    try:
        if ray.wait([coming], timeout=_ANSWER_S)[0]:
            return ray.get(coming)
    except ray.exceptions.RayActorError as error:
        raise ClusterError("the driver has died, and Ray is starting it again: ask again soon") from error
    raise ClusterError(f"the driver has not answered within {_ANSWER_S:g} s: ask again")


def keep_savepoint(job: JobName, name: str) -> int:
    """Keeps the last complete checkpoint of a job that runs on the cluster under a name, and returns its number. Raises
    SettingError, ClusterError or CheckpointError."""
    checkpoint: int
    checkpoint, problem = answer(coordinator_of(job).savepoint, name)
    if problem is not None:
        raise CheckpointError(problem)
    return checkpoint
