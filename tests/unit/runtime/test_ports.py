"""A port that another program uses: one line that names it and the remedy."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from clonos_py.model.errors import ClusterError
from clonos_py.runtime.ray.cluster import connected

ROOT = Path(__file__).parents[3]


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as other:
        yield other.getsockname()[1]


HTTP2_NOT_FOUND = b"\0\0\0\4\0\0\0\0\0" + b"\0\0\1\1\5\0\0\0\1\x8d"
ANSWERS = {"hangs up": b"", "speaks HTTP/1": b"HTTP/1.1 400 Bad Request\r\n\r\n", "speaks HTTP/2": HTTP2_NOT_FOUND}


@pytest.fixture(params=ANSWERS.values(), ids=list(ANSWERS))
def other_program(request: pytest.FixtureRequest) -> Iterator[int]:
    with answering(lambda asked: request.param) as port:
        yield port


@contextmanager
def answering(answer: Callable[[bytes], bytes]) -> Iterator[int]:
    """Answers what each client sends first, and closes the connection."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with suppress(OSError):
                while True:
                    connection, _ = listener.accept()
                    connection.sendall(answer(connection.recv(10_000)))
                    connection.close()

        server = threading.Thread(target=serve, daemon=True)
        server.start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)
        server.join(5)


def started(port: int) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "deploy" / "start_raylets.py"), "--port", str(port)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=300)


def test_raylets_do_not_start_at_a_port_that_is_taken(taken_port: int) -> None:
    done = started(taken_port)
    assert done.returncode == 1
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"error: port {taken_port} of 127.0.0.1 is taken or cannot be used (")
    assert line.endswith("): give another --port, or none for a free one")


def test_a_number_that_is_no_port_is_reported_in_one_line() -> None:
    done = started(99_999)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: port 99999 of 127.0.0.1 is taken or cannot be used (")


def test_an_address_where_another_program_listens_is_no_cluster(other_program: int) -> None:
    address = f"127.0.0.1:{other_program}"
    with pytest.raises(ClusterError) as refused, connected(address):
        pass
    assert str(refused.value) == (
        f"the port of {address} is taken by a program that is not Ray: give the address that `ray start --head` has "
        "printed, or leave it out"
    )


@pytest.mark.parametrize("token", ["", "cd" * 32, "long" * 100])
def test_a_cluster_that_refuses_the_token_is_named_at_once(token: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray itself would try for twenty seconds. The answers are those of a server of Ray 2.60."""
    header = {"Authorization": f"Bearer {token}"} if token else {}
    monkeypatch.setattr(
        "ray._private.authentication.http_token_authentication.get_auth_headers_if_auth_enabled", lambda given: header
    )
    given = "the one that was sent is another one" if token else "none was sent"
    with answering(lambda asked: refused_by_ray(asked, header)) as port:
        expected = rf"^the Ray cluster at 127.0.0.1:{port} asks for a token, and {given}: set RAY_AUTH_MODE=token"
        with pytest.raises(ClusterError, match=expected), connected(f"127.0.0.1:{port}"):
            pass


def refused_by_ray(asked: bytes, header: Mapping[str, str]) -> bytes:
    """The answer to a call, if that has this header field (RFC 7541, section 6.2.2)."""
    for name, value in header.items():
        length = bytes([len(value)]) if len(value) < 127 else bytes([127, (len(value) - 127) % 128 + 128, 2])
        assert b"\0" + bytes([len(name)]) + name.lower().encode() + length + value.encode() in asked
    fields = b"\x88@\x0ccontent-type\x10application/grpc\0\x0bgrpc-status\x0216\0\x0cgrpc-message\x03bad"
    return b"\0\0\0\4\0\0\0\0\0" + len(fields).to_bytes(3, "big") + b"\1\5\0\0\0\1" + fields


def test_an_address_that_accepts_but_never_answers_is_given_up(
    taken_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("clonos_py.runtime.ray.cluster._ANSWER_S_MAX", 0.2)
    with (
        pytest.raises(ClusterError, match="is taken by a program that is not Ray"),
        connected(f"127.0.0.1:{taken_port}"),
    ):
        pass
