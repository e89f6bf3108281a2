"""Detects within seconds that Ray itself is gone: its head (the GCS), or the raylet of the driver's node.

Ray's own core waits for a minute, prints a line of its log, and ends the process. Here a thread connects to the ports
of both again and again. If a connection is refused several times in a row, the process is gone. If it is slow, or not
answered at all, that proves nothing: the machine may be overloaded. The driver calls ``check`` wherever it waits. If
the driver is stuck in a call of Ray that does not return without a head, this thread ends the process itself.
"""

from __future__ import annotations

import os
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

from clonos_py.model.errors import ClusterLostError, error_line
from clonos_py.runtime.ray.cluster import import_ray

_REFUSED_MAX = 3
"""After this many refusals in a row a process counts as gone."""
_PAUSE_S = 0.5
_ANSWER_S = 2.0
_GRACE_S = 6.0
"""The time that the driver gets to react. Then the thread ends the process."""


class RayService(NamedTuple):
    """A process of Ray that a run depends on, and the address at which it listens."""

    name: str
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.name} at {self.host}:{self.port}"


@dataclass
class Refusals:
    """Counts refused connections to one process. No I/O."""

    in_a_row: int = 0

    def count(self, refused: bool) -> bool:
        """Counts one attempt to connect. Returns whether the process counts as gone."""
        self.in_a_row = self.in_a_row + 1 if refused else 0
        return self.in_a_row >= _REFUSED_MAX


def ray_services() -> list[RayService]:
    """The processes of Ray that this process's connection depends on."""
    ray = import_ray()
    context = ray.get_runtime_context()
    host, _, port = context.gcs_address.rpartition(":")
    found = [RayService("Ray's head (GCS)", host.strip("[]"), int(port))]
    for node in ray.nodes():
        if node["NodeID"] == context.get_node_id():
            found.append(RayService("the raylet", node["NodeManagerAddress"], node["NodeManagerPort"]))
    return found


def refuses(service: RayService) -> bool:
    """Whether the port refuses a connection."""
    try:
        with socket.create_connection((service.host, service.port), _ANSWER_S):
            return False
    except ConnectionRefusedError:
        return True
    except OSError:
        return False


class Outage:
    """The watch and its finding. ``resume``: the text that says how the user can resume the job."""

    def __init__(
        self,
        watched: Sequence[RayService],
        resume: Callable[[], str],
        refuses: Callable[[RayService], bool] = refuses,
        end_process: Callable[[ClusterLostError], None] | None = None,
    ) -> None:
        self._refusals = [(service, Refusals()) for service in watched]
        self._resume, self._refuses = resume, refuses
        self._end_process = end_process or _end_process
        self._lost: ClusterLostError | None = None
        self._stopped, self._checked = threading.Event(), threading.Condition()
        self._checks = 0

    def check(self) -> None:
        """Raises ClusterLostError if Ray is gone."""
        if self._lost is not None:
            raise self._lost

    def settle(self) -> None:
        """Like ``check``, for a driver whose actors have died: if a connection is refused, waits until the thread has
        looked often enough to be sure."""
        if any(self._refuses(service) for service, _ in self._refusals):
            with self._checked:
                checks = self._checks
                self._checked.wait_for(lambda: self._lost is not None or self._checks >= checks + _REFUSED_MAX)
        self.check()

    def run(self) -> None:
        """The body of the thread. Watches until ``stop``."""
        while not self._stopped.wait(_PAUSE_S):
            gone = [str(line) for line, refusals in self._refusals if refusals.count(self._refuses(line))]
            with self._checked:
                self._checks += 1
                if gone:
                    self._lost = ClusterLostError(
                        f"{' and '.join(gone)} is gone, and the job with it: {self._resume()}"
                    )
                self._checked.notify_all()
            if self._lost is not None:
                if not self._stopped.wait(_GRACE_S):
                    self._end_process(self._lost)
                return

    def stop(self) -> None:
        self._stopped.set()


@contextmanager
def watched(resume: Callable[[], str], survived: bool = False) -> Iterator[Outage]:
    """Watches for an outage inside the block. ``survived``: the run outlives one, so nothing is watched."""
    outage = Outage([] if survived else ray_services(), resume)
    threading.Thread(target=outage.run, name="outage", daemon=True).start()
    try:
        yield outage
    finally:
        outage.stop()


def _end_process(lost: ClusterLostError) -> None:
    """Ends this process, as Ray's core would a minute later. No call of Ray returns any more, not even at exit."""
    sys.stderr.write(f"{error_line(lost)}\n")
    sys.stderr.flush()
    os._exit(1)
