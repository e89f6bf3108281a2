"""HTTP through the log, against a real server that answers differently every time."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from datetime import timedelta
from decimal import Decimal
from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest

from clonos_py.connectors.http import HttpxClient
from clonos_py.model.errors import ServiceError, UserCodeError
from clonos_py.model.times import Duration
from clonos_py.services.context import Context
from clonos_py.services.http import IDEMPOTENCY_KEY
from clonos_py.services.registry import ServiceRegistry
from tests.serving import served
from tests.unit.operators.scripted import ScriptedContext, ScriptedGate


class Counting(BaseHTTPRequestHandler):
    """Answers with the number of the request, and records the requests."""

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
        if self.path == "/large":
            self.send_response(200)
            self.send_header("Content-Length", str(5 << 20))
            self.send_header("Connection", "close")  # or the client might reuse a connection that is being closed
            self.end_headers()
            with contextlib.suppress(ConnectionError):  # its client needs no more
                self.wfile.write(bytes(5 << 20))
            self.close_connection = True
            return
        content = b'{"number": %d, "rate": 1.10}' % len(self.seen) if self.path != "/text" else b"h\xc3\xa9 \xff"
        failing = self.path == "/flaky" and len(self.seen) % 3
        self.send_response(404 if self.path == "/missing" else 503 if failing else 200)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("X-Number", str(len(self.seen)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = do_HEAD = do_OPTIONS = answer

    def log_message(self, format: str, *args: Any) -> None:
        """No log of requests."""


@pytest.fixture
def server() -> Iterator[tuple[str, type[Counting]]]:
    handler = type("Handler", (Counting,), {"seen": [], "connections": set()})
    with served(handler) as address:
        yield address, handler


@pytest.fixture
def clients() -> Iterator[ServiceRegistry]:
    registry = ServiceRegistry({}, HttpxClient)
    yield registry
    registry.close()


def context(clients: ServiceRegistry, log: list[tuple[str, Any]] | None = None) -> tuple[Context, ScriptedContext]:
    scripted = ScriptedContext(gate=ScriptedGate(log))
    scripted.service = clients.client  # type: ignore[method-assign]
    return Context(scripted), scripted


def test_answers_are_replayed_without_a_request(server: tuple[str, type[Counting]], clients: ServiceRegistry) -> None:
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


def test_a_response_is_plain_data_and_any_status_is_an_answer(
    server: tuple[str, type[Counting]], clients: ServiceRegistry
) -> None:
    url, _ = server
    ctx, _ = context(clients)
    missing = ctx.http.get(f"{url}/missing")
    assert (missing.status, missing.ok, missing.headers["x-number"]) == (404, False, "1")
    assert ctx.http.get(f"{url}/text").text == "hé \ufffd"
    with pytest.raises(ServiceError, match="/text answered 200 and no JSON"):
        ctx.http.get(f"{url}/text").json()


def test_json_fractions_are_decimals_unless_floats_are_requested(
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
    assert [key.rsplit("/", 1)[0] for key in first[:3]] == [
        f"line-0/probe/0/0/7/{end}" for end in ("0/1", "0/2", "1/3")
    ]
    assert len({key.rsplit("/", 1)[1] for key in first}) == 2


@pytest.mark.parametrize("timeout", ["100ms", timedelta(milliseconds=100)])
def test_an_answer_after_the_timeout_is_an_error_live_and_in_a_replay(
    server: tuple[str, type[Counting]], clients: ServiceRegistry, timeout: Duration
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
def test_a_request_without_an_answer_is_an_error_that_names_it(clients: ServiceRegistry, url: str) -> None:
    ctx, _ = context(clients)
    with pytest.raises(ServiceError, match="GET"):
        ctx.http.get(url)


def test_every_verb_is_sent(server: tuple[str, type[Counting]], clients: ServiceRegistry) -> None:
    url, handler = server
    ctx, _ = context(clients)
    http = ctx.http
    answers = [verb(url) for verb in (http.get, http.post, http.put, http.patch, http.delete, http.head, http.options)]
    assert [seen["method"] for seen in handler.seen] == ["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"]
    assert [answer.ok for answer in answers] == [True] * 7
    assert [bool(answer.content) for answer in answers] == [True] * 5 + [False, True]


def test_attempts_are_logged_and_a_replay_makes_none(
    server: tuple[str, type[Counting]], clients: ServiceRegistry
) -> None:
    url, handler = server
    ctx, scripted = context(clients)
    live = ctx.http.post(f"{url}/flaky", json={"a": 1}, retries=3, backoff="1ms")
    assert (live.status, len(handler.seen), len(scripted.gate.log)) == (200, 3, 3)
    assert len({str(seen["headers"][IDEMPOTENCY_KEY]) for seen in handler.seen}) == 1
    again, _ = context(clients, scripted.gate.log)
    assert again.http.post(f"{url}/flaky", json={"a": 1}, retries=3, backoff="1ms") == live
    assert len(handler.seen) == 3


def test_a_replay_that_ends_between_two_attempts_continues_with_the_next(
    server: tuple[str, type[Counting]], clients: ServiceRegistry
) -> None:
    url, handler = server
    ctx, scripted = context(clients)
    ctx.http.get(f"{url}/flaky", retries=3, backoff="1ms")
    first = str(handler.seen[0]["headers"][IDEMPOTENCY_KEY])
    again, _ = context(clients, scripted.gate.log[:2])
    again.http.get(f"{url}/flaky", retries=3, backoff="1ms")
    assert len(handler.seen) == 5, "the third attempt of four, and a fourth since that failed"
    assert str(handler.seen[-1]["headers"][IDEMPOTENCY_KEY]) == first


def test_the_last_attempt_is_returned_with_any_status(
    server: tuple[str, type[Counting]], clients: ServiceRegistry
) -> None:
    url = server[0]
    ctx, _ = context(clients)
    assert ctx.http.get(f"{url}/flaky", retries=1, backoff="1ms").status == 503
    with pytest.raises(ServiceError, match="GET"):
        ctx.http.get("http://127.0.0.1:1/", retries=2, backoff="1ms")
    with pytest.raises(UserCodeError, match="retries=-1"):
        ctx.http.get(url, retries=-1)


def test_an_answer_that_is_too_large_is_an_error_and_is_not_read_to_its_end(
    server: tuple[str, type[Counting]], clients: ServiceRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    ctx, _ = context(clients)
    assert len(ctx.http.get(f"{server[0]}/large").content) == 5 << 20
    monkeypatch.setattr("clonos_py.connectors.http.ANSWER_BYTES_MAX", 1 << 20)
    with pytest.raises(ServiceError, match="the answer has more than"):
        ctx.http.get(f"{server[0]}/large")
