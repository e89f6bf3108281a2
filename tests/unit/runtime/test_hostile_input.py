"""After any input at a process's sockets, its link thread continues and reports to the coordinator."""

from __future__ import annotations

import queue
import random
import socket
import ssl
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar

import pytest

from clonos_py.checkpoint.storage import CheckpointStore
from clonos_py.model.messages import Failed, Ping, Pong, Started, Stop, ToCoordinator
from clonos_py.process.contract import ChannelLimits
from clonos_py.runtime.ray.process import Deployment, ProcessRuntime
from clonos_py.runtime.transport.address import Address
from clonos_py.runtime.transport.endpoint import Endpoint
from clonos_py.runtime.transport.events import Closed
from clonos_py.runtime.transport.tls import TlsFiles
from tests.machines import sides_of
from tests.unit.runtime.certificates import Authority
from tests.unit.runtime.network import LOCALHOST, SECRET, garbage
from tests.unit.task.plans import MIDDLE, three
from tests.waiting import WAIT_S_MAX

M = TypeVar("M")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> TlsFiles:
    return Authority(tmp_path_factory.mktemp("tls") / "ours").files()


class Victim:
    """A process that is attacked, and its messages to the coordinator."""

    def __init__(self, folder: Path, files: TlsFiles | None) -> None:
        def open_store() -> CheckpointStore:
            return CheckpointStore(str(folder / "checkpoints"), "small")

        self._told: queue.Queue[ToCoordinator] = queue.Queue()
        deployment = Deployment(
            three(), *sides_of(three()), open_store, SECRET, ChannelLimits(), 10_000, True, folder, files
        )
        self._process = ProcessRuntime(deployment, 1, MIDDLE, "victim", LOCALHOST, self._told.put)
        self._process.start()
        self.address = Address.parse(self._until(Started).address)
        self._pings = 0

    def answers(self) -> bool:
        self._pings += 1
        self._process.deliver(Ping(self._pings))
        return self._until(Pong).number == self._pings

    def end(self) -> None:
        self._process.deliver(Stop("the test is over"))
        self._process.wait()

    def _until(self, kind: type[M]) -> M:
        while True:
            message = self._told.get(timeout=WAIT_S_MAX)
            assert not isinstance(message, Failed), message
            if isinstance(message, kind):
                return message


@contextmanager
def a_victim(files: TlsFiles | None) -> Iterator[Victim]:
    with TemporaryDirectory(prefix="clonos-") as folder:
        victim = Victim(Path(folder), files)
        yield victim
        assert victim.answers()
        victim.end()


def attack(sock: socket.socket, chance: random.Random) -> None:
    """Sends random bytes, and then closes the socket in one of several ways."""
    with suppress(OSError), sock:
        for _ in range(chance.randrange(1, 4)):
            sock.sendall(garbage(chance))
        if chance.random() < 0.3:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        elif chance.random() < 0.3:
            sock.shutdown(socket.SHUT_WR)


@pytest.mark.parametrize("secured", [False, True])
def test_random_bytes_at_the_sockets_do_not_disturb_a_process(files: TlsFiles, secured: bool) -> None:
    with a_victim(files if secured else None) as victim:
        for seed in range(300):
            where = victim.address.target("elsewhere" if seed % 3 else "victim")
            sock = socket.socket(where[0])
            sock.connect(where[1])
            attack(sock, random.Random(seed))
            assert seed % 20 or victim.answers()


def test_random_bytes_within_tls_do_not_disturb_a_process(files: TlsFiles) -> None:
    tls = files.load()
    with a_victim(files) as victim:
        for seed in range(100):
            sock = socket.create_connection((victim.address.host, victim.address.port), timeout=10)
            attack(tls.connector.wrap_socket(sock), random.Random(seed))
            assert seed % 20 or victim.answers()


def test_a_damaged_tls_handshake_does_not_disturb_a_process(files: TlsFiles) -> None:
    """Flipped bits, cuts and repetitions of the first bytes of an honest client."""
    said = ssl.MemoryBIO()
    with suppress(ssl.SSLWantReadError):
        files.load().connector.wrap_bio(ssl.MemoryBIO(), said).do_handshake()
    opening = said.read()
    with a_victim(files) as victim:
        for seed in range(300):
            chance = random.Random(seed)
            damaged = bytearray(opening * chance.choice([1, 1, 2]))
            for _ in range(chance.randrange(4)):
                damaged[chance.randrange(len(damaged))] ^= 1 << chance.randrange(8)
            with socket.create_connection((victim.address.host, victim.address.port)) as stranger, suppress(OSError):
                stranger.sendall(damaged[: chance.choice([len(damaged), chance.randrange(len(damaged))])])
            assert seed % 20 or victim.answers()


@pytest.mark.parametrize("secured", [False, True])
def test_an_authenticated_peer_that_sends_nonsense_loses_its_connection(files: TlsFiles, secured: bool) -> None:
    tls = files.load() if secured else None
    with a_victim(files if secured else None) as victim, TemporaryDirectory(prefix="clonos-") as folder:
        mad = Endpoint(SECRET, "elsewhere", LOCALHOST, Path(folder), tls=tls)
        for seed in range(60):
            chance = random.Random(seed)
            number = mad.connect(str(victim.address), chance.randbytes(chance.randrange(100)))
            for _ in range(chance.randrange(5)):
                mad.send(number, chance.randbytes(chance.randrange(100)), [chance.randbytes(chance.randrange(9000))])
            assert has_closed(mad, number)
            assert seed % 20 or victim.answers()
        mad.close()


def has_closed(endpoint: Endpoint, connection: int) -> bool:
    """Whether the other side has closed the connection in time."""
    polls = (event for _ in range(100) for event in endpoint.poll(0.1))
    return any(isinstance(event, Closed) and event.connection == connection for event in polls)
