"""The cost of peers that connect and do not prove the secret: little memory, a bounded number, no time."""

from __future__ import annotations

import gc
import logging
import os
import resource
import selectors
import socket
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from clonos_py.runtime.transport.address import Address
from clonos_py.runtime.transport.endpoint import Endpoint
from clonos_py.runtime.transport.events import Accepted, Closed, PeerConnected, Received
from clonos_py.runtime.transport.strangers import HANDSHAKE_S, STRANGERS_MAX
from clonos_py.runtime.transport.tls import TlsFiles
from clonos_py.runtime.transport.wire import Preamble, WireKind, announce
from tests.unit.runtime.certificates import Authority
from tests.unit.runtime.network import LOCALHOST, SECRET, Network, a_network

IDLE_BYTES_MAX = 4 << 10
DESCRIPTORS = 30


@pytest.fixture
def network() -> Iterator[Network]:
    with a_network() as network:
        yield network


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> TlsFiles:
    return Authority(tmp_path_factory.mktemp("tls") / "ours").files()


class Crowd:
    """Connections of strangers to one endpoint."""

    def __init__(self, network: Network, endpoint: Endpoint) -> None:
        self._network, self._endpoint = network, endpoint
        self.sockets: list[socket.socket] = []

    def grow(self, count: int) -> None:
        """Opens so many more connections, all of which are accepted."""
        for _ in range(count):
            self.sockets.append(socket.create_connection((LOCALHOST, Address.parse(self._endpoint.address).port)))
            self._endpoint.poll(0)
        for _ in range(3):
            self._endpoint.poll(0.01)

    def closed(self) -> int:
        """The number of them that the endpoint has closed."""
        return sum(_is_closed(sock) for sock in self.sockets)

    def leave(self) -> None:
        for sock in self.sockets:
            sock.close()


@pytest.fixture
def crowd(network: Network) -> Iterator[Crowd]:
    crowd = Crowd(network, network.add())
    yield crowd
    crowd.leave()


def _is_closed(sock: socket.socket) -> bool:
    sock.setblocking(False)
    try:
        while sock.recv(4096):
            pass
    except BlockingIOError:
        return False
    except OSError:
        pass
    return True


@pytest.mark.parametrize("secured", [False, True])
def test_an_idle_connection_costs_less_than_4_kib(network: Network, files: TlsFiles, secured: bool) -> None:
    crowd = Crowd(network, network.add(tls=files.load() if secured else None))
    crowd.grow(20)
    gc.collect()
    tracemalloc.start()
    resident = _resident_bytes()
    count = STRANGERS_MAX - 20
    crowd.grow(count)
    gc.collect()
    ours = sum(sys.getsizeof(sock) for sock in crowd.sockets[20:])
    assert (tracemalloc.get_traced_memory()[0] - ours) / count < IDLE_BYTES_MAX
    tracemalloc.stop()
    assert (_resident_bytes() - resident) / count < 8 * IDLE_BYTES_MAX  # OpenSSL and the allocators take some, too
    assert crowd.closed() == 0
    crowd.leave()


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def test_of_500_idle_connections_the_oldest_ones_are_closed_and_reported(
    network: Network, crowd: Crowd, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        crowd.grow(500)
        network.now += HANDSHAKE_S - 0.1
        crowd.grow(1)
    assert crowd.closed() == 501 - STRANGERS_MAX
    assert [_is_closed(sock) for sock in crowd.sockets].index(False) == 501 - STRANGERS_MAX
    reason = f"more than {STRANGERS_MAX} connections wait to prove the secret, and it has waited longest"
    assert [reason in record.getMessage() for record in caplog.records] == [True]
    with caplog.at_level(logging.WARNING):
        network.now += HANDSHAKE_S
        network.endpoints[0].poll(0)
    assert f"; and {500 - STRANGERS_MAX} more since the last report" in caplog.records[-1].getMessage()
    assert crowd.closed() == 501


def test_a_peer_with_the_secret_connects_among_500_without(network: Network, crowd: Crowd) -> None:
    right = network.endpoints[0]
    crowd.grow(250)
    first, _ = network.connected(left := network.add(node="elsewhere"), right)
    crowd.grow(250)
    second, _ = network.connected(left, right)
    for number in (first, second):
        left.send(number, b"good")
    network.poll_until(lambda: len(network.of(right, Received)) == 2)
    assert network.of(right, Closed) == network.of(left, Closed) == []


def test_a_peer_that_writes_slowly_has_no_more_time_than_a_silent_one(network: Network, crowd: Crowd) -> None:
    crowd.grow(2)
    slow, silent = crowd.sockets
    for byte in announce(Preamble(WireKind.PROOF, 4096, 0, 0))[:20]:
        slow.sendall(bytes([byte]))
        network.now += HANDSHAKE_S / 25
        network.endpoints[0].poll(0)
    assert crowd.closed() == 0
    network.now += HANDSHAKE_S / 4
    network.endpoints[0].poll(0)
    assert _is_closed(slow)
    assert _is_closed(silent)


def test_a_poll_ends_when_a_handshake_is_overdue(
    network: Network, crowd: Crowd, monkeypatch: pytest.MonkeyPatch
) -> None:
    endpoint = network.endpoints[0]
    crowd.grow(1)
    network.now += HANDSHAKE_S - 1
    waits: list[float | None] = []
    select = selectors.DefaultSelector.select

    def noted(selector: selectors.DefaultSelector, timeout: float | None = None) -> object:
        waits.append(timeout)
        return select(selector, 0)

    monkeypatch.setattr(selectors.DefaultSelector, "select", noted)
    endpoint.poll(None)
    crowd.leave()
    endpoint.poll(None)
    endpoint.poll(None)
    assert waits == [1.0, 1.0, None]


def test_without_descriptors_existing_connections_work_no_time_is_spent_and_one_report_is_made(
    network: Network,
) -> None:
    """The endpoint under test is a process of its own with few descriptors; the strangers are here."""
    left = network.add(node="elsewhere")
    code = f"from {__name__} import short_of_descriptors; short_of_descriptors({left.address!r})"
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert child.stdout
    address = child.stdout.readline().strip()
    mine = left.connect(address, b"hello")
    network.poll_until(lambda: PeerConnected(mine) in network.events[left])
    strangers = [socket.create_connection((LOCALHOST, Address.parse(address).port)) for _ in range(3 * DESCRIPTORS)]
    network.poll_until(lambda: network.of(left, Received) or network.of(left, Closed))
    assert network.of(left, Received), child.communicate(timeout=120)[1]
    for number in range(20):
        left.send(mine, b"%d" % number)
    network.poll_until(lambda: len(network.of(left, Received)) == 21)
    polls, cpu_s, wall_s, refused = network.of(left, Received)[0].header.decode().split()
    assert int(polls) < 200
    assert float(cpu_s) < float(wall_s) / 4
    assert refused == "refused"
    for stranger in strangers:
        stranger.close()
    another = left.connect(address, b"again")
    network.poll_until(lambda: PeerConnected(another) in network.events[left])
    left.send(mine, b"end")
    left.poll(0)
    _, errors = child.communicate(timeout=120)
    assert child.returncode == 0, errors
    assert errors.count("no connection can be accepted: Too many open files") == 1


def short_of_descriptors(address: str) -> None:
    """The process of the test above: an endpoint that answers each frame, and sends figures of one second without
    descriptors first."""
    from tempfile import TemporaryDirectory

    logging.basicConfig(level=logging.WARNING)
    with TemporaryDirectory(prefix="clonos-") as folder:
        endpoint = Endpoint(SECRET, "here", LOCALHOST, Path(folder))
        print(endpoint.address, flush=True)  # noqa: T201
        while not (accepted := [event for event in endpoint.poll(1) if isinstance(event, Accepted)]):
            pass
        used = len(os.listdir("/proc/self/fd"))
        resource.setrlimit(resource.RLIMIT_NOFILE, (used + DESCRIPTORS, used + DESCRIPTORS))
        while not _is_short():
            endpoint.poll(0.01)
        endpoint.poll(0)
        began, cpu, polls = time.monotonic(), time.process_time(), 0
        while time.monotonic() - began < 1:
            endpoint.poll(0.5)
            polls += 1
        figures = f"{polls} {time.process_time() - cpu} {time.monotonic() - began}"
        number = endpoint.connect(address, b"")
        refused = any(isinstance(event, Closed) and event.connection == number for event in endpoint.poll(0))
        endpoint.send(accepted[0].connection, f"{figures} {'refused' if refused else 'connected'}".encode())
        ended = False
        while not ended:
            for event in endpoint.poll(0.01):
                if isinstance(event, Received):
                    endpoint.send(event.connection, event.header)
                    ended = event.header == b"end"
        endpoint.close()


def _is_short() -> bool:
    with suppress(OSError):
        os.close(os.dup(1))
        return False
    return True
