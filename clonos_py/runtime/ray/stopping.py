"""Stops a run from another process, by the name of its job on the cluster."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from clonos_py.job.events import EndJob
from clonos_py.model.errors import ClusterError, SettingError
from clonos_py.runtime.ray.cluster import JobName, import_ray
from clonos_py.runtime.ray.names import comes_true, holder, running_jobs
from clonos_py.runtime.run_control import not_ended

_REPLACED_WITHIN_S = 30.0
"""The time that the driver gets to replace a coordinator that has died. After it, the driver is assumed to be dead too:
it keeps the coordinator of a run that has ended until those who stopped it have read how."""
_LEAVE_S = 1.0
"""The time that a call gets to reach the coordinator."""


def coordinator_of(name: JobName) -> Any:
    """The coordinator of the run that has the name. Raises SettingError if there is none."""
    found = holder(name)
    if found is None:
        running = ", ".join(map(repr, running_jobs(name.namespace))) or "none"
        raise SettingError(f"no job named {name.job!r} is running on this cluster; running: {running}")
    return found


def stop_run(name: JobName, coordinator: Any, timeout_s: float) -> EndJob | None:
    """Has the run take a last checkpoint, commit it and end, and waits for its end. If the coordinator dies meanwhile,
    its replacement is asked.

    Returns how the run ended, None if it is gone without an answer. Raises ClusterError if it has not ended within
    ``timeout_s`` seconds. It goes on to stop then, unless the coordinator has not even taken the request: Ray drops the
    calls of a process that ends.
    """
    until_s, unended = time.monotonic() + timeout_s, not_ended(name.job, timeout_s)
    unanswered = f"the coordinator of {name.job!r} has not answered within {timeout_s:g} s: try again"
    while coordinator is not None:
        try:
            with _watching(coordinator) as watcher:
                _answer(coordinator.stop, until_s, unanswered, watcher)
                while True:
                    end: EndJob | None = _answer(coordinator.end, until_s, unended)
                    if end is not None:
                        return end
        except import_ray().exceptions.RayActorError:
            coordinator = _replacement(name, until_s)
    return None


@contextmanager
def _watching(coordinator: Any) -> Iterator[str]:
    """The name under which this process waits for the end of the job. At the end of the block it waits no longer."""
    watcher = secrets.token_hex(8)
    try:
        yield watcher
    finally:
        import_ray().wait([coordinator.unwatch.remote(watcher)], timeout=_LEAVE_S)


def _answer(method: Any, until_s: float, otherwise: str, *arguments: str) -> Any:
    """Calls a method of an actor. Raises ClusterError with the text if no answer comes in time."""
    ray, coming = import_ray(), method.remote(*arguments)
    if not ray.wait([coming], timeout=max(0.0, until_s - time.monotonic()))[0]:
        raise ClusterError(otherwise)
    return ray.get(coming)


def _replacement(name: JobName, until_s: float) -> Any | None:
    comes_true(lambda: holder(name) is not None, min(until_s - time.monotonic(), _REPLACED_WITHIN_S))
    return holder(name)
