"""A process that is connected to a cluster and answers what tests ask of detached runs, a line of JSON for each line.

The process of the tests has another Ray, and a command for each question would take seconds.
"""

from __future__ import annotations

import json
import sys
import time
from contextlib import suppress
from typing import Any

from clonos_py.model.errors import ClonosError
from clonos_py.model.ids import DEFAULT_NAMESPACE as NAMESPACE
from clonos_py.runtime.ray.actor_registry import end_processes
from clonos_py.runtime.ray.asking import answer
from clonos_py.runtime.ray.cluster import JobName, connected, import_ray
from clonos_py.runtime.ray.detached import driver_of, orphans, the_driver_of


def status(job: str) -> dict[str, Any]:
    """How the run is; only that, while Ray starts its driver again."""
    with suppress(ClonosError):
        found: dict[str, Any] = answer(the_driver_of(JobName(job, NAMESPACE)).job)
        return found
    return {"state": "no answer"}


def remove_driver(job: str) -> None:
    """Ends the driver for good, as `ray kill` would."""
    driver = driver_of(JobName(job, NAMESPACE))
    if driver is not None:
        import_ray().kill(driver, no_restart=True)
    while driver_of(JobName(job, NAMESPACE)) is not None:
        time.sleep(0.05)


def remove(job: str) -> None:
    """Ends all that is left of a run."""
    remove_driver(job)
    end_processes(orphans(NAMESPACE), NAMESPACE)


def lines(job: str) -> list[str]:
    """The lines of the run since its driver has started."""
    return [line for _, line in answer(the_driver_of(JobName(job, NAMESPACE)).lines, 0)]


ANSWERS = {
    "status": status,
    "lines": lines,
    "orphans": lambda job: orphans(NAMESPACE),
    "remove driver": remove_driver,
    "remove": remove,
}

if __name__ == "__main__":
    with connected(sys.argv[1]):
        for line in sys.stdin:
            question, job = json.loads(line)
            print(json.dumps(ANSWERS[question](job)), flush=True)  # noqa: T201 - its answer
