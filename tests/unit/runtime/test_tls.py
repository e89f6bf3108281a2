"""TLS between nodes over real sockets: which frames pass, which clients are refused, which files are."""

from __future__ import annotations

import datetime
import logging
import random
import socket
import ssl
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from clonos_py.model.errors import SettingError
from clonos_py.observe.events import no_listener
from clonos_py.runtime.ray.run import run
from clonos_py.runtime.transport import tls_connection
from clonos_py.runtime.transport.address import Address
from clonos_py.runtime.transport.events import Closed, QueueEmptied, Received
from clonos_py.runtime.transport.tls import Tls, TlsFiles
from clonos_py.settings.resolution import resolve
from tests.unit.runtime.certificates import Authority
from tests.unit.runtime.network import LOCALHOST, Network, a_network, garbage
from tests.unit.task.plans import three


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> TlsFiles:
    return Authority(tmp_path_factory.mktemp("tls") / "ours").files()


@pytest.fixture(scope="module")
def foreign(tmp_path_factory: pytest.TempPathFactory) -> TlsFiles:
    return Authority(tmp_path_factory.mktemp("tls") / "foreign").files()


@pytest.fixture
def tls(files: TlsFiles) -> Tls:
    return files.load()


@pytest.fixture
def network() -> Iterator[Network]:
    with a_network() as network:
        yield network


def port(network: Network, endpoint: int) -> tuple[str, int]:
    return LOCALHOST, Address.parse(network.endpoints[endpoint].address).port


def until_closed(peer: socket.socket) -> Callable[[], bool]:
    """Whether the connection of a stranger has been closed; bytes before the end are read."""

    def closed() -> bool:
        peer.setblocking(False)
        try:
            return not peer.recv(4096)
        except (BlockingIOError, ssl.SSLWantReadError):
            return False
        except OSError:
            return True

    return closed


def test_frames_of_several_megabytes_pass_both_ways_at_once(network: Network, tls: Tls) -> None:
    left, right = network.add(tls=tls), network.add(node="elsewhere", tls=tls)
    mine, theirs = network.connected(left, right)
    bodies = [random.Random(seed).randbytes(5_000_000 + seed) for seed in range(3)]
    for body in bodies:
        left.send(mine, body[:300_000], [body[:1_000_000], body[1_000_000:]])
        right.send(theirs, b"back", [body[::-1]])
    network.poll_until(lambda: len(network.of(right, Received)) == len(network.of(left, Received)) == 3)
    assert [bytes(event.body or b"") for event in network.of(right, Received)] == bodies
    assert [bytes(event.body or b"")[::-1] for event in network.of(left, Received)] == bodies
    assert QueueEmptied(mine) in network.events[left]
    assert left.unsent_bytes(mine) == right.unsent_bytes(theirs) == 0


@pytest.mark.parametrize("seed", range(10))
def test_frames_of_all_sizes_arrive_in_their_order(network: Network, tls: Tls, seed: int) -> None:
    chance = random.Random(seed)
    left, right = network.add(tls=tls), network.add(node="elsewhere", tls=tls)
    mine, _ = network.connected(left, right)
    sizes = [chance.choice([0, 1, 100, 16_384, 16_385, 140_000, 700_000]) for _ in range(100)]
    for number, size in enumerate(sizes):
        left.send(mine, b"%d" % number, [bytes([number]) * size])
        if chance.random() < 0.2:
            left.poll(0)
    network.poll_until(lambda: len(network.of(right, Received)) == 100)
    assert [event.header for event in network.of(right, Received)] == [b"%d" % number for number in range(100)]
    bodies = [bytes(event.body or b"") for event in network.of(right, Received)]
    assert bodies == [bytes([number]) * size for number, size in enumerate(sizes)]


def test_the_rest_of_a_tls_record_is_read_although_no_bytes_follow(
    network: Network, tls: Tls, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second frame comes in the record that ends the first, and the limit of one read falls between them."""
    monkeypatch.setattr(tls_connection, "READ_BYTES_MAX", 16 << 10)
    left, right = network.add(tls=tls), network.add(node="elsewhere", tls=tls)
    mine, _ = network.connected(left, right)
    left.send(mine, b"first", [b"x" * 10_000, b"x" * 10_000])
    left.send(mine, b"second", [b"y" * 1_000])
    network.poll_until(lambda: len(network.of(right, Received)) == 2)


def test_frames_queued_while_the_socket_is_full_follow_in_their_order(network: Network, tls: Tls) -> None:
    left, right = network.add(tls=tls), network.add(node="elsewhere", tls=tls)
    mine, _ = network.connected(left, right)
    for number in range(12_000):
        left.send(mine, b"%d" % number, [b"%d" % number * 300])
        if number % 100 == 0:
            left.poll(0)
    assert left.unsent_bytes(mine)
    network.poll_until(lambda: len(network.of(right, Received)) == 12_000)
    arrived = [(event.header, bytes(event.body or b"")) for event in network.of(right, Received)]
    assert arrived == [(b"%d" % number, b"%d" % number * 300) for number in range(12_000)]


def test_connections_between_nodes_are_encrypted_and_those_within_a_node_are_plain(network: Network, tls: Tls) -> None:
    left, same, other = network.add(tls=tls), network.add(tls=tls), network.add(node="elsewhere", tls=tls)
    near, _ = network.connected(left, same)
    far, _ = network.connected(left, other)
    assert not isinstance(left._connections[near].sock, ssl.SSLSocket)
    secured = left._connections[far].sock
    assert isinstance(secured, ssl.SSLSocket)
    assert secured.version() == "TLSv1.3"


def test_a_peer_without_the_secret_is_refused_within_tls(
    network: Network, tls: Tls, caplog: pytest.LogCaptureFixture
) -> None:
    left, right = network.add(b"another secret", tls=tls), network.add(node="elsewhere", tls=tls)
    left.connect(right.address, b"let me in")
    with caplog.at_level(logging.WARNING):
        network.poll_until(lambda: network.of(left, Closed))
    assert network.events[right] == []
    assert "does not have the job's secret" in caplog.text


def test_a_plain_client_is_refused_with_a_reason_and_disturbs_no_other_connection(
    network: Network, tls: Tls, caplog: pytest.LogCaptureFixture
) -> None:
    left, right, plain = network.add(tls=tls), network.add(node="elsewhere", tls=tls), network.add()
    mine, _ = network.connected(left, right)
    plain.connect(right.address, b"hello")
    stranger = socket.create_connection(port(network, 1))
    stranger.sendall(b"GET / HTTP/1.1\r\n\r\n")
    with caplog.at_level(logging.WARNING):
        network.poll_until(until_closed(stranger))
    assert "no TLS: " in caplog.text
    left.send(mine, b"good")
    network.poll_until(lambda: network.of(right, Received))
    assert network.of(right, Closed) == []
    network.now += 10
    network.poll_until(lambda: network.of(plain, Closed))
    stranger.close()


def test_a_client_with_a_certificate_of_another_authority_is_refused(
    network: Network, tls: Tls, foreign: TlsFiles, files: TlsFiles, caplog: pytest.LogCaptureFixture
) -> None:
    """It accepts the acceptor's certificate, so that only its own is at fault."""
    connector = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    connector.check_hostname = False
    connector.load_cert_chain(foreign.certificate, foreign.key)
    connector.load_verify_locations(files.ca)
    left, right = network.add(tls=tls._replace(connector=connector)), network.add(node="elsewhere", tls=tls)
    left.connect(right.address, b"hello")
    with caplog.at_level(logging.WARNING):
        network.poll_until(lambda: network.of(left, Closed))
    assert network.events[right] == []
    assert "no TLS: unable to get local issuer certificate" in caplog.text


def test_a_client_without_a_certificate_is_refused(
    network: Network, tls: Tls, files: TlsFiles, caplog: pytest.LogCaptureFixture
) -> None:
    connector = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    connector.check_hostname = False
    connector.load_verify_locations(files.ca)
    left, right = network.add(tls=tls._replace(connector=connector)), network.add(node="elsewhere", tls=tls)
    left.connect(right.address, b"hello")
    with caplog.at_level(logging.WARNING):
        network.poll_until(lambda: network.of(left, Closed))
    assert network.events[right] == []
    assert "peer did not return a certificate" in caplog.text


def test_an_acceptor_of_another_authority_gets_no_frame(network: Network, tls: Tls, foreign: TlsFiles) -> None:
    left, right = network.add(tls=tls), network.add(node="elsewhere", tls=foreign.load())
    number = left.connect(right.address, b"hello")
    left.send(number, b"confidential")
    network.poll_until(lambda: network.of(left, Closed))
    assert "no TLS: self-signed certificate in certificate chain" in network.of(left, Closed)[0].reason
    assert network.events[right] == []


def test_tls_below_1_3_is_refused(
    network: Network, tls: Tls, files: TlsFiles, caplog: pytest.LogCaptureFixture
) -> None:
    connector = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    connector.check_hostname = False
    connector.maximum_version = ssl.TLSVersion.TLSv1_2
    connector.load_cert_chain(files.certificate, files.key)
    connector.load_verify_locations(files.ca)
    left, right = network.add(tls=tls._replace(connector=connector)), network.add(node="elsewhere", tls=tls)
    left.connect(right.address, b"hello")
    with caplog.at_level(logging.WARNING):
        network.poll_until(lambda: network.of(left, Closed))
    assert "unsupported protocol" in caplog.text
    assert network.events[right] == []


def test_a_connection_closed_within_a_frame_is_reported_and_others_continue(network: Network, tls: Tls) -> None:
    left, dying, right = network.add(tls=tls), network.add(tls=tls), network.add(node="elsewhere", tls=tls)
    mine, _ = network.connected(left, right)
    theirs, doomed = network.connected(dying, right)
    dying.send(theirs, b"whole", [b"x" * 1_000_000])
    network.poll_until(lambda: network.of(right, Received))
    dying.send(theirs, b"never whole", [b"x" * 50_000_000])
    dying.poll(0)
    assert dying.unsent_bytes(theirs)
    dying.close()
    network.endpoints.remove(dying)
    left.send(mine, b"good", [b"y" * 1_000_000])
    network.poll_until(lambda: network.of(right, Closed) and len(network.of(right, Received)) == 2)
    assert [event.connection for event in network.of(right, Closed)] == [doomed]
    assert [event.header for event in network.of(right, Received)] == [b"whole", b"good"]


def test_a_client_that_leaves_during_the_handshake_disturbs_no_other_connection(network: Network, tls: Tls) -> None:
    left, right = network.add(tls=tls), network.add(node="elsewhere", tls=tls)
    hello = ssl.MemoryBIO()
    client = tls.connector.wrap_bio(ssl.MemoryBIO(), hello)
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    opening = hello.read()
    for length in (0, 1, 5, 100, len(opening)):
        with socket.create_connection(port(network, 1)) as stranger:
            stranger.sendall(opening[:length])
            right.poll(0.01)
            right.poll(0.01)
    mine, _ = network.connected(left, right)
    left.send(mine, b"good")
    network.poll_until(lambda: network.of(right, Received))
    assert len(right._connections) == 1


def test_a_client_that_does_not_finish_the_handshake_in_time_is_closed(network: Network, tls: Tls) -> None:
    network.add(tls=tls)
    stranger = socket.create_connection(port(network, 0))
    stranger.sendall(b"\x16\x03\x01")
    network.endpoints[0].poll(0.5)
    network.now += 10
    network.poll_until(until_closed(stranger))
    stranger.close()


@pytest.mark.parametrize("seed", range(40))
def test_random_bytes_before_or_within_tls_disturb_no_other_connection(network: Network, tls: Tls, seed: int) -> None:
    chance = random.Random(seed)
    left, right = network.add(tls=tls), network.add(node="elsewhere", tls=tls)
    mine, _ = network.connected(left, right)
    strangers = [socket.create_connection(port(network, 1)) for _ in range(3)]
    strangers[0].sendall(garbage(chance))
    strangers[1].sendall(b"\x16\x03\x01" + garbage(chance))
    network.poll_until(lambda: True)
    strangers.append(within_tls(network, tls, strangers.pop()))
    strangers[-1].sendall(garbage(chance))
    left.send(mine, b"good")
    network.poll_until(lambda: network.of(right, Received))
    network.now += 10
    for stranger in strangers:
        network.poll_until(until_closed(stranger))
        stranger.close()
    left.send(mine, b"better")
    network.poll_until(lambda: len(network.of(right, Received)) == 2)
    assert network.of(right, Closed) == []


def within_tls(network: Network, tls: Tls, sock: socket.socket) -> ssl.SSLSocket:
    """A stranger with a valid certificate."""
    sock.setblocking(False)
    secured = tls.connector.wrap_socket(sock, do_handshake_on_connect=False)

    def established() -> bool:
        try:
            secured.do_handshake()
        except ssl.SSLWantReadError:
            return False
        return True

    network.poll_until(established)
    return secured


@pytest.mark.parametrize("seed", range(20))
def test_altered_bytes_close_the_connection(network: Network, tls: Tls, seed: int) -> None:
    chance = random.Random(seed)
    left, bad, right = network.add(tls=tls), network.add(tls=tls), network.add(node="elsewhere", tls=tls)
    mine, _ = network.connected(left, right)
    theirs, doomed = network.connected(bad, right)
    record = b"\x17\x03\x03\x00\x40" + chance.randbytes(64)
    socket.socket.send(bad._connections[theirs].sock, chance.choice([record, garbage(chance) + bytes(64)]))
    network.poll_until(lambda: network.of(right, Closed))
    assert [event.connection for event in network.of(right, Closed)] == [doomed]
    assert "no TLS: " in network.of(right, Closed)[0].reason
    left.send(mine, b"good")
    network.poll_until(lambda: network.of(right, Received))


def test_unusable_files_are_refused_by_name(files: TlsFiles, foreign: TlsFiles, tmp_path: Path) -> None:
    empty, absent = tmp_path / "empty.pem", tmp_path / "absent.pem"
    empty.touch()
    ours = Authority(tmp_path / "ours")
    expired = ours.files("old", datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=1))
    refused = {
        "tls_certificate: .*absent.pem cannot be read: No such file.*on every node": replace(files, certificate=absent),
        "tls_key: .*absent.pem cannot be read": replace(files, key=absent),
        "tls_ca: .* cannot be read: Is a directory": replace(files, ca=tmp_path),
        "tls_certificate .*empty.pem and tls_key .* are not a certificate": replace(files, certificate=empty),
        "tls_certificate .* and tls_key .*: key values mismatch": replace(files, key=foreign.key),
        "tls_ca: .*empty.pem holds no certificate": replace(files, ca=empty),
        "peers would refuse tls_certificate .*: unable to get local issuer": replace(files, ca=foreign.ca),
        "peers would refuse tls_certificate .*: certificate has expired": expired,
    }
    for message, wrong in refused.items():
        with pytest.raises(SettingError, match=message):
            wrong.load()


def test_a_key_with_a_password_is_refused_without_a_prompt(files: TlsFiles, tmp_path: Path) -> None:
    from cryptography.hazmat.primitives import serialization

    key = serialization.load_pem_private_key(files.key.read_bytes(), None)
    locked = tmp_path / "locked.key"
    with_password = serialization.BestAvailableEncryption(b"secret")
    locked.write_bytes(key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, with_password))
    with pytest.raises(SettingError, match="its own key without a password"):
        replace(files, key=locked).load()


def test_a_run_with_unusable_files_ends_before_anything_starts(files: TlsFiles, tmp_path: Path) -> None:
    paths = {"tls_certificate": files.certificate, "tls_key": files.key, "tls_ca": tmp_path / "absent.pem"}
    settings = resolve({key: str(path) for key, path in paths.items()})
    with pytest.raises(SettingError, match=r"tls_ca: .*absent\.pem cannot be read"):
        run(three(), settings, no_listener)
    assert "ray" not in sys.modules or not sys.modules["ray"].is_initialized()
