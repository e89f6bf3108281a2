"""HTTP through the log, against a real server that answers differently every time."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from clonos_py.connectors.http import HttpxClient
from clonos_py.model.errors import ServiceError
from clonos_py.services.context import Context
from clonos_py.services.http import IDEMPOTENCY_KEY
from clonos_py.services.registry import ServiceRegistry
from tests.unit.operators.scripted import ScriptedContext, ScriptedGate


class Counting(BaseHTTPRequestHandler):
    """Answers with the number of the request, and remembers what it was asked."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    seen: list[dict[str, Any]]
    connections: set[Any]

    def answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.seen.append({"path": self.path, "method": self.command, "body": body, "headers": dict(self.headers)})
        self.connections.add(self.client_address)
        if self.path == "/slow":
            time.sleep(0.4)
        content = b'{"number": %d, "rate": 1.10}' % len(self.seen) if self.path != "/text" else b"h\xc3\xa9 \xff"
        self.send_response(404 if self.path == "/missing" else 200)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("X-Number", str(len(self.seen)))
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_POST = do_PUT = do_DELETE = answer

    def log_message(self, format: str, *args: Any) -> None:
        """Quiet."""


@pytest.fixture
def server() -> Iterator[tuple[str, type[Counting]]]:
    handler = type("Handler", (Counting,), {"seen": [], "connections": set()})
    listening = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=listening.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{listening.server_address[1]}", handler
    listening.shutdown()
    thread.join()
    listening.server_close()


@pytest.fixture
def clients() -> Iterator[ServiceRegistry]:
    registry = ServiceRegistry({}, HttpxClient)
    yield registry
    registry.close()


def context(clients: ServiceRegistry, log: list[tuple[str, Any]] | None = None) -> tuple[Context, ScriptedContext]:
    scripted = ScriptedContext(gate=ScriptedGate(log))
    scripted.service = clients.client  # type: ignore[method-assign]
    return Context(scripted), scripted


def test_answers_are_replayed_without_asking_again(
    server: tuple[str, type[Counting]], clients: ServiceRegistry
) -> None:
    url, handler = server
    ctx, scripted = context(clients)
    live = [ctx.http.get(f"{url}/rates").json() for _ in range(3)]
    assert [answer["number"] for answer in live] == [1, 2, 3]
    again, _ = context(clients, scripted.gate.log)
    assert [again.http.get(f"{url}/rates").json() for _ in range(3)] == live
    assert len(handler.seen) == 3
    assert again.http.get(f"{url}/rates").json()["number"] == 4


def test_requests_share_a_connection(server: tuple[str, type[Counting]], clients: ServiceRegistry) -> None:
    url, handler = server
    ctx, _ = context(clients)
    for _ in range(5):
        ctx.http.get(url)
    assert len(handler.connections) == 1


def test_a_response_is_plain_and_any_status_is_an_answer(
    server: tuple[str, type[Counting]], clients: ServiceRegistry
) -> None:
    url, _ = server
    ctx, _ = context(clients)
    missing = ctx.http.get(f"{url}/missing")
    assert (missing.status, missing.ok, missing.headers["x-number"]) == (404, False, "1")
    assert ctx.http.get(f"{url}/text").text == "hé \ufffd"
    with pytest.raises(ServiceError, match="/text answered 200 and no JSON"):
        ctx.http.get(f"{url}/text").json()


def test_json_fractions_are_exact_unless_floats_are_wanted(
    server: tuple[str, type[Counting]], clients: ServiceRegistry
) -> None:
    ctx, _ = context(clients)
    response = ctx.http.get(server[0])
    assert Decimal(2) * response.json()["rate"] == Decimal("2.20")
    assert type(response.json(fraction=float)["rate"]) is float


def test_posts_carry_json_or_content(server: tuple[str, type[Counting]], clients: ServiceRegistry) -> None:
    url, handler = server
    ctx, _ = context(clients)
    ctx.http.post(url, json={"a": 1}, headers={"X-Who": "me"})
    ctx.http.put(url, content="text")
    ctx.http.delete(url)
    assert [(s["method"], s["body"]) for s in handler.seen] == [("POST", b'{"a":1}'), ("PUT", b"text"), ("DELETE", b"")]
    assert handler.seen[0]["headers"]["Content-Type"] == "application/json"
    assert handler.seen[0]["headers"]["X-Who"] == "me"


def test_the_idempotency_key_names_the_input_and_the_request(
    server: tuple[str, type[Counting]], clients: ServiceRegistry
) -> None:
    url, handler = server

    def ask() -> list[str]:
        handler.seen.clear()
        ctx, scripted = context(clients)
        for frame, row in [((0, 7), 0), ((0, 7), 1), ((0, 8), 0)]:
            scripted.frame = frame
            ctx.at_row(row)
            ctx.http.get(f"{url}/a")
            ctx.http.get(f"{url}/a")
        ctx.http.get(f"{url}/b")
        return [str(seen["headers"][IDEMPOTENCY_KEY]) for seen in handler.seen]

    first, second = ask(), ask()
    assert first == second
    assert len(set(first)) == 7
    assert [key.rsplit("/", 1)[0] for key in first[:3]] == ["probe/0/0/7/0/1", "probe/0/0/7/0/2", "probe/0/0/7/1/3"]
    assert len({key.rsplit("/", 1)[1] for key in first}) == 2


@pytest.mark.parametrize("timeout", ["100ms", 100_000])
def test_a_late_answer_is_an_error_live_and_on_replay(
    server: tuple[str, type[Counting]], clients: ServiceRegistry, timeout: str | int
) -> None:
    url, _ = server
    ctx, scripted = context(clients)
    with pytest.raises(ServiceError, match=r"/slow: no answer within 0.1 s") as live:
        ctx.http.get(f"{url}/slow", timeout=timeout)
    again, _ = context(clients, scripted.gate.log)
    with pytest.raises(ServiceError) as replayed:
        again.http.get(f"{url}/slow", timeout=timeout)
    assert str(replayed.value) == str(live.value)


@pytest.mark.parametrize("url", ["http://127.0.0.1:1/", "nonsense://x", "http://[", "http://nowhere.invalid/"])
def test_no_answer_is_an_error_naming_the_request(clients: ServiceRegistry, url: str) -> None:
    ctx, _ = context(clients)
    with pytest.raises(ServiceError, match="GET"):
        ctx.http.get(url)
