"""Frames between endpoints over real sockets."""

from __future__ import annotations

import logging
import random
import socket
import threading
import time
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest

from clonos_py.model.errors import ClusterError
from clonos_py.runtime.transport.address import Address
from clonos_py.runtime.transport.batches import decode_batch, encode_batch
from clonos_py.runtime.transport.connection import SILENCE_S
from clonos_py.runtime.transport.endpoint import Endpoint
from clonos_py.runtime.transport.events import Accepted, Closed, PeerConnected, QueueEmptied, Received
from clonos_py.runtime.transport.strangers import HANDSHAKE_S
from clonos_py.runtime.transport.wire import MAGIC, Limits, WireKind, preamble
from tests.unit.runtime.network import LOCALHOST, SECRET, Network, a_network, garbage
from tests.waiting import SOON_S


@pytest.fixture
def network() -> Iterator[Network]:
    with a_network() as network:
        yield network


def sample(rows: int) -> pa.RecordBatch:
    return pa.record_batch({"id": np.arange(rows), "name": [f"n{i}" for i in range(rows)]})


@pytest.mark.parametrize("other_node", ["here", "elsewhere"])
def test_a_frame_arrives_unchanged(network: Network, other_node: str) -> None:
    left, right = network.add(), network.add(node=other_node)
    mine, theirs = network.connected(left, right, b"from left")
    batch = sample(1000)
    left.send(mine, b"header", [encode_batch(batch)])
    network.poll_until(lambda: network.of(right, Received))
    received = network.of(right, Received)[0]
    assert Accepted(theirs, b"from left") in network.events[right]
    assert received.header == b"header"
    assert received.body is not None
    assert decode_batch(received.body, batch.schema).equals(batch)


def test_both_directions_carry_frames_in_their_order(network: Network) -> None:
    left, right = network.add(), network.add()
    mine, theirs = network.connected(left, right)
    for number in range(500):
        left.send(mine, b"%d" % number, [b"x" * (number * 7 % 3000)])
        right.send(theirs, b"ack %d" % number)
    network.poll_until(lambda: len(network.of(left, Received)) == len(network.of(right, Received)) == 500)
    assert [event.header for event in network.of(right, Received)] == [b"%d" % n for n in range(500)]
    assert [event.body.size if event.body else 0 for event in network.of(right, Received)] == [
        n * 7 % 3000 for n in range(500)
    ]
    assert [event.header for event in network.of(left, Received)] == [b"ack %d" % n for n in range(500)]


def test_frames_larger_than_every_buffer_arrive_and_the_sender_is_notified_when_they_are_sent(network: Network) -> None:
    left, right = network.add(), network.add()
    mine, _ = network.connected(left, right)
    bodies = [random.Random(seed).randbytes(3_000_000) for seed in range(3)]
    for body in bodies:
        left.send(mine, body[:300_000], [body[:1_000_000], body[1_000_000:]])
    assert left.unsent_bytes(mine) > 9_000_000
    network.poll_until(lambda: len(network.of(right, Received)) == 3)
    assert [bytes(event.body or b"") for event in network.of(right, Received)] == bodies
    assert [event.header for event in network.of(right, Received)] == [body[:300_000] for body in bodies]
    assert QueueEmptied(mine) in network.events[left]
    assert left.unsent_bytes(mine) == 0


def test_frames_queued_before_the_handshake_arrive_after_it(network: Network) -> None:
    left, right = network.add(), network.add()
    number = left.connect(right.address, b"hello")
    left.send(number, b"early", [b"body" * 10_000])
    network.poll_until(lambda: network.of(right, Received))
    assert [type(event) for event in network.events[right]] == [Accepted, Received]


def test_an_accepting_side_may_send_large_frames_at_once(network: Network) -> None:
    left, right = network.add(), network.add()
    number = left.connect(right.address, b"hello")
    network.poll_until(lambda: network.of(right, Accepted))
    right.send(network.of(right, Accepted)[0].connection, b"h" * 10_000, [b"x" * 1_000_000])
    network.poll_until(lambda: network.of(left, Received))
    assert [type(event) for event in network.events[left]] == [PeerConnected, Received]
    assert network.events[left][0] == PeerConnected(number)


def test_a_decoded_batch_outlives_its_connection(network: Network) -> None:
    left, right = network.add(), network.add()
    mine, _ = network.connected(left, right)
    batch = sample(50_000)
    for _ in range(5):
        left.send(mine, b"", [encode_batch(batch)])
    network.poll_until(lambda: len(network.of(right, Received)) == 5)
    batches = [decode_batch(event.body, batch.schema) for event in network.of(right, Received) if event.body]
    network.events[right].clear()
    right.close()
    network.endpoints.remove(right)
    assert [found.equals(batch) for found in batches] == [True] * 5


def test_frames_sent_before_the_death_of_the_sender_are_received(network: Network) -> None:
    left, right = network.add(), network.add()
    mine, theirs = network.connected(left, right)
    for number in range(100):
        left.send(mine, b"%d" % number, [b"x" * 5000])
    left.poll(0)
    left.close()
    network.endpoints.remove(left)
    network.poll_until(lambda: network.of(right, Closed))
    assert len(network.of(right, Received)) == 100
    assert network.of(right, Closed)[0].connection == theirs


def test_a_peer_without_the_secret_is_refused_on_both_sides(network: Network, caplog: pytest.LogCaptureFixture) -> None:
    left, right = network.add(b"another secret"), network.add()
    number = left.connect(right.address, b"let me in")
    left.send(number, b"poison")
    with caplog.at_level(logging.WARNING):
        network.poll_until(lambda: network.of(left, Closed))
    assert network.events[right] == []
    assert "does not have the job's secret" in caplog.text


def test_an_acceptor_without_the_secret_gets_no_frame(network: Network) -> None:
    """It can relay a challenge but not answer one."""
    listener = socket.create_server((LOCALHOST, 0))
    left = network.add()
    address = Address("elsewhere", "", LOCALHOST, listener.getsockname()[1])
    number = left.connect(str(address), b"hello")
    left.send(number, b"confidential")
    left.poll(0.05)
    peer, _ = listener.accept()
    peer.sendall(
        preamble(WireKind.CHALLENGE, bytes(32), 0) + bytes(32) + preamble(WireKind.WELCOME, bytes(32), 0) + bytes(32)
    )
    network.poll_until(lambda: network.of(left, Closed))
    peer.settimeout(5)
    heard = b"".join(iter(lambda: peer.recv(65536), b""))
    assert b"confidential" not in heard
    assert "does not have the job's secret" in network.of(left, Closed)[0].reason
    peer.close()
    listener.close()


def test_a_client_that_does_not_prove_the_secret_in_time_is_closed(network: Network) -> None:
    right = network.add()
    stranger = socket.create_connection((LOCALHOST, Address.parse(right.address).port))
    right.poll(0.5)
    network.now += HANDSHAKE_S + 1
    right.poll(0)
    stranger.settimeout(5)
    assert b"".join(iter(lambda: stranger.recv(4096), b""))[:4] == MAGIC
    assert network.events[right] == []
    stranger.close()


def test_a_frame_beyond_the_limits_closes_only_its_connection(network: Network) -> None:
    right = network.add(limits=Limits(header_bytes_max=1000, body_bytes_max=1000))
    greedy, modest = network.add(), network.add()
    first, _ = network.connected(greedy, right)
    second, _ = network.connected(modest, right)
    greedy.send(first, b"", [b"x" * 1001])
    modest.send(second, b"fine", [b"x" * 1000])
    network.poll_until(lambda: network.of(right, Closed) and network.of(right, Received))
    assert "exceeds the limit of 1000 + 1000" in network.of(right, Closed)[0].reason
    assert [event.header for event in network.of(right, Received)] == [b"fine"]
    network.poll_until(lambda: network.of(greedy, Closed))


@pytest.mark.parametrize("seed", range(60))
def test_random_bytes_disturb_no_other_connection(network: Network, seed: int) -> None:
    chance = random.Random(seed)
    left, right = network.add(), network.add()
    mine, _ = network.connected(left, right)
    strangers = [socket.create_connection((LOCALHOST, Address.parse(right.address).port)) for _ in range(3)]
    for stranger in strangers:
        stranger.sendall(garbage(chance))
        left.send(mine, b"good")
        network.events[right] += right.poll(0)
    network.poll_until(lambda: len(network.of(right, Received)) == 3)
    assert all(event.header == b"good" for event in network.of(right, Received))
    assert network.of(right, Closed) == []
    for stranger in strangers:
        stranger.close()


@pytest.mark.parametrize("seed", range(60))
def test_random_bytes_of_an_authenticated_peer_close_its_connection_or_wait_for_more(
    network: Network, seed: int
) -> None:
    """A peer that has proven the secret sends random bytes, as a process might after memory corruption."""
    chance = random.Random(seed)
    left, mad, right = network.add(), network.add(), network.add(limits=Limits(1 << 20, 1 << 20))
    mine, _ = network.connected(left, right)
    theirs, _ = network.connected(mad, right)
    mad._connections[theirs].sock.sendall(garbage(chance))
    left.send(mine, b"good")
    network.poll_until(lambda: any(event.header == b"good" for event in network.of(right, Received)))
    left.send(mine, b"better")
    network.poll_until(lambda: any(event.header == b"better" for event in network.of(right, Received)))


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="elsewhere the system's own patience holds")
def test_a_host_that_no_longer_acknowledges_is_detected(network: Network) -> None:
    """At both ends, whether there is something to send or not."""
    source, target = network.add(node="here"), network.add(node="there")
    ends = zip((source, target), network.connected(source, target), strict=True)
    for sock in [endpoint._connections[number].sock for endpoint, number in ends]:
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == SILENCE_S * 1_000
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) < SILENCE_S


def test_a_connection_without_a_listener_is_reported_as_closed(network: Network) -> None:
    left, gone = network.add(), network.add()
    gone.close()
    network.endpoints.remove(gone)
    number = left.connect(gone.address, b"")
    remote = left.connect(str(Address.parse(gone.address)._replace(node="elsewhere")), b"")
    network.poll_until(lambda: len(network.of(left, Closed)) == 2)
    assert {event.connection for event in network.of(left, Closed)} == {number, remote}
    assert all("cannot be reached" in event.reason for event in network.of(left, Closed))


def test_a_closed_connection_reports_no_more_events(network: Network) -> None:
    left, right = network.add(), network.add()
    mine, theirs = network.connected(left, right)
    left.send(mine, b"unread")
    left.poll(0)
    right.close_connection(theirs)
    right.send(theirs, b"dropped")
    assert right.poll(0.01) == []
    network.poll_until(lambda: network.of(left, Closed))


def test_another_thread_wakes_a_waiting_poll(network: Network) -> None:
    endpoint = network.add()
    threading.Timer(0.05, endpoint.wake).start()
    started = time.monotonic()
    assert endpoint.poll(2 * SOON_S) == []
    assert time.monotonic() - started < SOON_S
    endpoint.wake()
    endpoint.wake()
    assert endpoint.poll(10) == []


def test_a_wake_during_another_one_does_not_suppress_later_ones(
    network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    endpoint = network.add()
    receive = socket.socket.recv

    def receive_late(sock: socket.socket, size: int) -> bytes:
        endpoint.wake()
        return receive(sock, size)

    endpoint.wake()
    with monkeypatch.context() as patched:
        patched.setattr(socket.socket, "recv", receive_late)
        endpoint.poll(10)
    endpoint.wake()
    started = time.monotonic()
    endpoint.poll(2 * SOON_S)
    assert time.monotonic() - started < SOON_S


def test_an_address_of_another_node_is_refused_in_one_line(network: Network) -> None:
    with pytest.raises(ClusterError, match=r"cannot listen at 192\.0\.2\.1.*address of this node"):
        Endpoint(SECRET, "here", "192.0.2.1", network.folder)
