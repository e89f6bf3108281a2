"""Notices soon that Ray itself is gone: its head (the GCS), or the raylet of the driver's node.

Ray's own core waits for a minute, prints a line of its log, and ends the process. Here a thread connects to the ports
of both again and again. A connection that is refused several times in a row means that the process is gone; one that
is slow, or not answered at all, means nothing: a machine may be crowded. The driver looks at ``check`` where it waits.
Should it be stuck in a call of Ray's that does not return without a head, this thread ends the process itself.
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
"""So many times in a row."""
_PAUSE_S = 0.5
_ANSWER_S = 2.0
_GRACE_S = 6.0
"""So long may the driver take to notice."""


class Lifeline(NamedTuple):
    """A process of Ray that a run cannot do without, and where it listens."""

    name: str
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.name} at {self.host}:{self.port}"


@dataclass
class Refusals:
    """Counts for one lifeline. No I/O."""

    in_a_row: int = 0

    def look(self, refused: bool) -> bool:
        """Another attempt to connect. Whether the process counts as gone."""
        self.in_a_row = self.in_a_row + 1 if refused else 0
        return self.in_a_row >= _REFUSED_MAX


def lifelines() -> list[Lifeline]:
    """Of the connection that this process has."""
    ray = import_ray()
    context = ray.get_runtime_context()
    host, _, port = context.gcs_address.rpartition(":")
    found = [Lifeline("Ray's head (GCS)", host.strip("[]"), int(port))]
    for node in ray.nodes():
        if node["NodeID"] == context.get_node_id():
            found.append(Lifeline("the raylet", node["NodeManagerAddress"], node["NodeManagerPort"]))
    return found


def refuses(lifeline: Lifeline) -> bool:
    """Whether the port is closed."""
    try:
        with socket.create_connection((lifeline.host, lifeline.port), _ANSWER_S):
            return False
    except ConnectionRefusedError:
        return True
    except OSError:
        return False


class Outage:
    """What the thread has found. ``resume``: what to tell the user of going on."""

    def __init__(
        self,
        watched: Sequence[Lifeline],
        resume: Callable[[], str],
        refuses: Callable[[Lifeline], bool] = refuses,
        end_process: Callable[[ClusterLostError], None] | None = None,
    ) -> None:
        self._refusals = [(lifeline, Refusals()) for lifeline in watched]
        self._resume, self._refuses = resume, refuses
        self._end_process = end_process or _end_process
        self._lost: ClusterLostError | None = None
        self._over, self._looked = threading.Event(), threading.Condition()
        self._looks = 0

    def check(self) -> None:
        """Raises ClusterLostError if Ray is gone."""
        if self._lost is not None:
            raise self._lost

    def settle(self) -> None:
        """The same for a driver whose actors have died: if a connection is refused, waits until the thread is sure."""
        if any(self._refuses(lifeline) for lifeline, _ in self._refusals):
            with self._looked:
                looks = self._looks
                self._looked.wait_for(lambda: self._lost is not None or self._looks >= looks + _REFUSED_MAX)
        self.check()

    def run(self) -> None:
        """The thread, until ``stop``."""
        while not self._over.wait(_PAUSE_S):
            gone = [str(line) for line, refusals in self._refusals if refusals.look(self._refuses(line))]
            with self._looked:
                self._looks += 1
                if gone:
                    self._lost = ClusterLostError(
                        f"{' and '.join(gone)} is gone, and the job with it: {self._resume()}"
                    )
                self._looked.notify_all()
            if self._lost is not None:
                if not self._over.wait(_GRACE_S):
                    self._end_process(self._lost)
                return

    def stop(self) -> None:
        self._over.set()


@contextmanager
def watched(resume: Callable[[], str]) -> Iterator[Outage]:
    """Looks as long as the block lasts."""
    outage = Outage(lifelines(), resume)
    threading.Thread(target=outage.run, name="outage", daemon=True).start()
    try:
        yield outage
    finally:
        outage.stop()


def _end_process(lost: ClusterLostError) -> None:
    """What Ray's core would do a minute later: no call of Ray's returns any more, and none at exit would."""
    sys.stderr.write(f"{error_line(lost)}\n")
    sys.stderr.flush()
    os._exit(1)
