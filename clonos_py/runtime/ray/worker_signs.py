"""Signs of a node's workers that are starting, from this machine's process table, without a call of Ray.

Only on Linux; elsewhere there are no signs.
"""

from __future__ import annotations

import os
from contextlib import suppress

from clonos_py.runtime.ray.process_table import entries
from clonos_py.runtime.ray.start_patience import Signs, StartingWorker

_BECOMING_WORKERS = (b"default_worker.py", b"setup_worker.py", b"ray::CoordinatorActor")
"""Parts of the command line of a starting worker. A worker without work is named ``ray::IDLE``, one with an actor after
the actor's class."""


def signs_of(node: str) -> Signs:
    """Signs of the node with this identity, if its raylet runs on this machine."""
    running = list(entries())
    raylets = {process.pid for process, command in running if f"--node_id={node}".encode() in command}
    starting = [
        StartingWorker(process.pid, process.cpu_us)
        for process, command in running
        if process.parent in raylets and any(mark in command for mark in _BECOMING_WORKERS)
    ]
    return Signs(starting, _load())


def _load() -> str:
    with suppress(OSError, AttributeError):
        return f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors"
    return ""
