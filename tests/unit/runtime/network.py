"""Endpoints over real sockets, polled in turn by one thread."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar

from clonos_py.runtime.transport.endpoint import Endpoint
from clonos_py.runtime.transport.events import Accepted, PeerConnected, TransportEvent
from clonos_py.runtime.transport.tls import Tls
from clonos_py.runtime.transport.wire import MAGIC, Limits, Preamble, WireKind, announce, preamble
from tests.waiting import attempts

SECRET = b"the job's secret"
LOCALHOST = "127.0.0.1"
T = TypeVar("T", bound=TransportEvent)


class Network:
    """Endpoints that are polled in turn, with all events that they returned."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.now = 0.0
        self.endpoints: list[Endpoint] = []
        self.events: dict[Endpoint, list[TransportEvent]] = {}

    def add(
        self, secret: bytes = SECRET, node: str = "here", limits: Limits | None = None, tls: Tls | None = None
    ) -> Endpoint:
        endpoint = Endpoint(secret, node, LOCALHOST, self.folder, limits, tls, clock=lambda: self.now)
        self.endpoints.append(endpoint)
        self.events[endpoint] = []
        return endpoint

    def poll_until(self, done: Callable[[], object]) -> None:
        for _ in attempts(lambda: self.events, every_s=0):
            if done():
                break
            for endpoint in self.endpoints:
                self.events[endpoint] += endpoint.poll(0.001)

    def of(self, endpoint: Endpoint, kind: type[T]) -> list[T]:
        return [event for event in self.events[endpoint] if isinstance(event, kind)]

    def connected(self, source: Endpoint, target: Endpoint, hello: bytes = b"hello") -> tuple[int, int]:
        """The connection's number at both ends."""
        before = len(self.of(target, Accepted))
        number = source.connect(target.address, hello)
        self.poll_until(
            lambda: PeerConnected(number) in self.events[source] and len(self.of(target, Accepted)) > before
        )
        return number, self.of(target, Accepted)[-1].connection


@contextmanager
def a_network() -> Iterator[Network]:
    """Asserts that no resource of it is left at the end."""
    with TemporaryDirectory(prefix="clonos-") as folder:
        network = Network(Path(folder))
        yield network
        for endpoint in network.endpoints:
            endpoint.close()
        assert list(Path(folder).iterdir()) == []


def garbage(chance: random.Random) -> bytes:
    """Noise alone, a valid start with noise after it, or a header with a false length."""
    noise = chance.randbytes(chance.randrange(1, 500))
    kind = chance.choice(list(WireKind))
    head = Preamble(kind, chance.choice([0, 32, len(noise), 2**32 - 1]), chance.choice([0, 1, 2**40]), 0)
    return chance.choice([noise, announce(head) + noise, MAGIC + noise, preamble(kind, noise, 0) + noise])
