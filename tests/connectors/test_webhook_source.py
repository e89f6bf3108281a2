"""Rows that are posted: an answer means that they are durable, under any failures; other requests have their own
answers."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest

from clonos_py import Job, Record, col
from clonos_py.connectors import (
    FileSink,
    Secret,
    WebhookDeadLetter,
    WebhookSource,
    webhook_inbox,
    webhook_server,
    webhook_source,
)
from clonos_py.connectors.line_formats import JsonLines
from clonos_py.connectors.webhook_inbox import Inbox, Post, Settle
from clonos_py.model.errors import GraphError, SourceError
from clonos_py.model.operators import End, Read, Source, Wait
from tests.line_servers import free_port
from tests.posting import Clients
from tests.visible_rows import visible_rows
from tests.waiting import WAIT_S_MAX, attempts, wait_until, wait_while_running


class Item(Record):
    id: int
    name: str | None = None


class Serving:
    """A source that is polled in a thread, as a task does, and whose checkpoints are taken by hand."""

    def __init__(self, definition: Any = None, index: int = 0, **given: Any) -> None:
        self.port = free_port()
        self.definition = definition or WebhookSource(self.port, Item, **given)
        self.url = f"http://127.0.0.1:{self.port}/"
        self.source: Source = self.definition.create((None,) * len(self.definition.schemas))
        self.source.open(index, 2)
        self.source.notify(lambda: None)
        self.source.seek({})
        self.reads: list[Read] = []
        self._pool = ThreadPoolExecutor(16)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._poll, daemon=True)

    def start(self) -> Serving:
        self._thread.start()
        wait_until(self._answers)
        return self

    def _answers(self) -> bool:
        try:
            return httpx.get(self.url).status_code > 0
        except httpx.TransportError:
            return False

    def _poll(self) -> None:
        while not self._over.is_set():
            given = self.source.poll(time.monotonic_ns() // 1_000)
            if isinstance(given, Read):
                self.reads.append(given)
            else:
                time.sleep(0.005)

    def post(self, content: Any, **headers: str) -> Future[httpx.Response]:
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        return self._pool.submit(httpx.post, self.url, content=body, headers=headers, timeout=WAIT_S_MAX)

    def checkpoint(self) -> None:
        self.source.commit({0: self.reads[-1].stop})

    def read(self, rows: int) -> None:
        wait_until(lambda: len(self.rows()) >= rows)

    def rows(self, port: int = 0) -> list[dict[str, Any]]:
        return [row for r in list(self.reads) if (batch := r.rows[port]) is not None for row in batch.to_pylist()]

    def close(self) -> None:
        self._over.set()
        if self._thread.ident is not None:
            self._thread.join()
        self.source.close()
        self._pool.shutdown()


_opened: list[Serving] = []


@pytest.fixture(autouse=True)
def _closes() -> Iterator[None]:
    yield
    while _opened:
        _opened.pop().close()


def serving(**given: Any) -> Serving:
    _opened.append(Serving(**given))
    return _opened[-1].start()


def test_a_request_is_answered_when_a_checkpoint_covers_its_rows() -> None:
    served = serving()
    first = served.post([{"id": 1}, {"id": 2}])
    served.read(2)
    covered = served.reads[-1].stop
    later = served.post({"id": 3})
    served.read(3)
    time.sleep(0.2)
    assert not first.done()
    served.source.commit({0: covered})
    assert first.result().json() == {"rows": 2, "malformed": 0}
    time.sleep(0.2)
    assert not later.done()
    served.checkpoint()
    assert later.result().status_code == 200
    assert [(read.start, read.stop) for read in served.reads] == [(0, 1), (1, 2)]


@pytest.mark.parametrize(
    ("body", "ids"),
    [
        (b'{"id": 1}', [1]),
        (b' {\n"id":\n1} \n', [1]),
        (b'[{"id": 1},\n {"id": 2, "more": [1]}]', [1, 2]),
        (b'{"id": 1}\n\n{"id": 2}\r\n', [1, 2]),
    ],
)
def test_a_body_is_an_object_a_list_or_lines(body: bytes, ids: list[int]) -> None:
    served = serving()
    answer = served.post(body)
    served.read(len(ids))
    served.checkpoint()
    assert answer.result().json() == {"rows": len(ids), "malformed": 0}
    assert [row["id"] for row in served.rows()] == ids


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "the body is empty"),
        (b"junk", "value 1: it is not a JSON object, which begins with '{'"),
        (b'[{"user": 1}', "the list is not JSON: it does not end"),
        (b'[{"user": 1},]', "the list is not JSON: trailing comma in array (byte 13)"),
        (b"[[1]]", "value 1: it is not a JSON object, which begins with '{'"),
        (b'[{"id": 1}, {"id": "x"}]', "value 2: field 'id' is 'x', not a whole number"),
        (b'[{"id": 1}, {"name": "x"}]', "value 2: field 'id' is missing"),
        (b'[{"id": 1}', "the list is not JSON: "),
        (b'{"id": 1}\njunk', "value 2: "),
        (b"[1]", "value 1: "),
        (b"[[]]", "value 1: "),
        (b'{"id": ' + b"[" * 100_000, "value 1: "),
        (b"[" * 100_000, "the list is nested too deep"),
        (b"null", "value 1: null is not a JSON object"),
        (b'[{"id": 1}, null]', "value 2: null is not a JSON object"),
    ],
)
def test_malformed_bodies_are_refused_with_the_reason_and_as_a_whole(body: bytes, reason: str) -> None:
    served = serving()
    answer = served.post(body).result()
    assert answer.status_code == 400
    assert reason in answer.json()["error"]
    assert served.reads == []


def test_malformed_values_are_skipped_or_caught() -> None:
    skipping = serving(on_error="skip")
    answer = skipping.post(b'{"id": 1}\njunk\n{"id": 3}')
    skipping.read(2)
    skipping.checkpoint()
    assert answer.result().json() == {"rows": 2, "malformed": 1}
    assert skipping.reads[0].counts == {"rows_skipped": 1}

    catching = serving(on_error="dead-letter")
    answers = [catching.post([{"id": 1}, 5, {"id": "x"}])]
    catching.read(1)
    answers.append(catching.post(b"[junk"))
    wait_until(lambda: len(catching.rows(1)) == 3)
    catching.checkpoint()
    assert [answer.result().json() for answer in answers] == [{"rows": 1, "malformed": 2}, {"rows": 0, "malformed": 1}]
    letters = [WebhookDeadLetter(**row) for row in catching.rows(1)]
    assert [(letter.request, letter.number, letter.value) for letter in letters] == [
        (1, 2, b"5"),
        (1, 3, b'{"id": "x"}'),
        (2, 1, b"[junk"),
    ]
    assert all(letter.reason for letter in letters)


@pytest.mark.parametrize("on_error", ["fail", "skip", "dead-letter"])
@pytest.mark.parametrize("value", ["1", '{"id": "x"}'])
def test_a_request_has_a_limited_number_of_malformed_values(
    value: str, on_error: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhook_source, "MALFORMED_MAX", 10)
    served = serving(on_error=on_error)
    calls: list[bytes] = []
    parse = JsonLines.parse

    def counting(self: JsonLines, content: bytes) -> pa.RecordBatch:
        calls.append(content)
        return parse(self, content)

    monkeypatch.setattr(JsonLines, "parse", counting)
    answer = served.post(f"[{','.join([value] * 1_000)}]".encode()).result()
    reason = answer.json()["error"]
    if on_error == "fail":
        assert (answer.status_code, reason[:9]) == (400, "value 1: ")
    else:
        assert answer.status_code == 413
        assert "more than 10 malformed values, of which the first is value 1: " in reason
        assert "send fewer values at once" in reason
    assert len(calls) <= (1 if value == "1" else 40), "values after the last one that counts are not parsed"
    assert served.reads == []

    few = served.post(f"[{','.join([value] * 10)}]".encode())
    if on_error == "fail":
        assert few.result().status_code == 400
        return
    wait_until(lambda: bool(served.reads))
    served.checkpoint()
    assert few.result().json() == {"rows": 0, "malformed": 10}


def test_refused_requests_have_specific_answers(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("word\n")
    served = serving(path="/rows", token=Secret(file=str(tmp_path / "token")), body_bytes_max=1_000)
    good = {"Authorization": "Bearer word"}
    there, row = f"{served.url}rows", b'{"id": 1}'
    for given, status in (({}, 401), ({"Authorization": "Bearer other"}, 401), ({"Authorization": "word"}, 401)):
        answer = httpx.post(there, content=row, headers=given)
        assert (answer.status_code, answer.headers["WWW-Authenticate"]) == (status, "Bearer")
    assert httpx.post(served.url, content=row, headers=good).status_code == 404
    assert httpx.get(there, headers=good).status_code == 405
    assert httpx.post(there, content=row, headers=good | {"Content-Encoding": "gzip"}).status_code == 415
    large = b'{"id": 1}\n' * 200_000
    assert httpx.post(there, content=large, headers=good).status_code == 413
    assert httpx.post(there, content=iter([large[:900], large]), headers=good).status_code == 413
    assert served.reads == []
    pending = served._pool.submit(httpx.post, f"{there}?a=b", content=row, headers=good)
    served.read(1)
    served.checkpoint()
    assert pending.result().status_code == 200


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "DELETE", "OPTIONS", "TRACE", "PATCH", "QUERY"])
def test_other_methods_are_answered_and_the_next_client_is_served(method: str) -> None:
    served = serving()
    answer = httpx.request(method, served.url)
    assert (answer.status_code, answer.headers["Allow"]) == (405, "POST")
    assert answer.text == ("" if method == "HEAD" else '{"error": "rows are taken by POST"}\n')
    pending = served.post({"id": 1})
    served.read(1)
    served.checkpoint()
    assert pending.result().status_code == 200


@pytest.mark.parametrize(
    "part",
    [b"POST", b"POST / HTTP/1.1\r\nHost: x\r\nContent-Le", b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{"],
)
def test_a_request_that_is_sent_too_slowly_is_answered(part: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    served = serving()
    monkeypatch.setattr(webhook_server, "_REQUEST_S_MAX", 0.5)
    answer = b""
    for _ in attempts():  # if the machine stalls here, the connection is closed as an idle one
        with socket.create_connection(("127.0.0.1", served.port), WAIT_S_MAX) as slow:
            slow.sendall(part)
            if (answer := received(slow)).startswith(b"HTTP/1.1 408 "):
                break
    assert b"the request was not complete within 0.5 s: send it faster" in answer
    assert served.reads == []


def test_an_idle_connection_is_closed_without_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    served = serving()
    monkeypatch.setattr(webhook_server, "_REQUEST_S_MAX", 0.1)
    with socket.create_connection(("127.0.0.1", served.port), WAIT_S_MAX) as idle:
        assert received(idle) == b""


def received(connection: socket.socket) -> bytes:
    """What the server sends until it closes."""
    content = b""
    with suppress(ConnectionResetError):
        while more := connection.recv(1 << 16):
            content += more
    return content


def test_a_request_with_several_keys_is_refused() -> None:
    served = serving()
    twice = [("Idempotency-Key", "a"), ("Idempotency-Key", "b")]
    answer = httpx.post(served.url, content=b'{"id": 1}', headers=twice)
    assert (answer.status_code, answer.json()["error"]) == (400, "the header idempotency-key is there 2 times")
    assert served.reads == []


def test_a_request_with_two_lengths_is_refused() -> None:
    """A proxy that believes the other one would take the rest for a request of somebody else."""
    served = serving()
    head = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n"
    with socket.create_connection(("127.0.0.1", served.port), WAIT_S_MAX) as stranger:
        stranger.sendall(head.replace(b"POST /", b"POST " + httpx.URL(served.url).raw_path) + b"0\r\n\r\nPOST")
        stranger.shutdown(socket.SHUT_WR)
        answer = received(stranger)
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b"Content-Length and Transfer-Encoding are both there" in answer
    assert served.reads == []


def test_no_request_waits_for_the_long_body_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, go_on = threading.Event(), threading.Event()
    parse = webhook_source.PostParser.parse

    def slowly(parser: webhook_source.PostParser, body: bytes) -> Post | webhook_source.RefusedBody:
        if len(body) > 100:
            begun.set()
            assert go_on.wait(WAIT_S_MAX)
        return parse(parser, body)

    monkeypatch.setattr(webhook_source.PostParser, "parse", slowly)
    monkeypatch.setattr(webhook_source, "_AT_ONCE_BYTES", 100)
    served = serving()
    long = served.post([{"id": number} for number in range(100)])
    assert begun.wait(WAIT_S_MAX)
    short = served.post({"id": 100})
    served.read(1)
    served.checkpoint()
    assert short.result().json() == {"rows": 1, "malformed": 0}
    go_on.set()
    served.read(101)
    served.checkpoint()
    assert long.result().json() == {"rows": 100, "malformed": 0}


def test_a_client_that_does_not_speak_http_loses_its_connection_only() -> None:
    served = serving()
    with socket.create_connection(("127.0.0.1", served.port)) as stranger:
        stranger.sendall(b"\x16\x03\x01\x02\x00nonsense\r\n\r\n")
        assert stranger.recv(1 << 16).startswith(b"HTTP/1.1 400 ")
    answer = served.post({"id": 1})
    served.read(1)
    served.checkpoint()
    assert answer.result().status_code == 200


def test_senders_are_asked_to_retry_under_back_pressure_and_during_a_recovery(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(webhook_inbox, "WAITING_BYTES_MAX", 100)
    recovering = Serving()
    _opened.append(recovering)
    recovering.source.passed(Read(0, 0, 1, (None,), note=[]))
    answer = recovering.post({"id": 1}).result()
    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "1")
    assert isinstance(recovering.source.poll(0), Wait)
    first = recovering.post([{"id": 1}] * 30)
    wait_until(lambda: recovering.source.rows_waiting() == 30)
    assert recovering.post({"id": 2}).result().status_code == 503, "nothing is polled, and there is no room"
    recovering.start()
    recovering.read(30)
    recovering.checkpoint()
    assert first.result().status_code == 200


def test_a_sender_whose_rows_do_not_become_durable_in_time_gets_an_error() -> None:
    served = serving(answer_within="200ms")
    answer = served.post({"id": 1}).result()
    assert answer.status_code == 503
    assert "not durable yet" in answer.json()["error"]


def test_a_repeated_key_is_accepted_once() -> None:
    served = serving()
    first, second = (served.post({"id": 1}, **{"Idempotency-Key": "a"}) for _ in range(2))
    served.read(1)
    time.sleep(0.1)
    served.checkpoint()
    assert first.result().json() == second.result().json() == {"rows": 1, "malformed": 0}
    assert served.post({"id": 1}, **{"Idempotency-Key": "a"}).result().status_code == 200
    other = served.post({"id": 2}, **{"Idempotency-Key": "b"})
    served.read(2)
    served.checkpoint()
    assert other.result().status_code == 200
    assert [row["id"] for row in served.rows()] == [1, 2]
    assert served.post({"id": 1}, **{"Idempotency-Key": "x" * 256}).result().status_code == 400


def test_a_key_belongs_to_one_body_also_after_a_restart() -> None:
    served = serving()
    assert "1 to 255 characters" in served.post({"id": 1}, **{"Idempotency-Key": ""}).result().json()["error"]
    first = served.post({"id": 1}, **{"Idempotency-Key": "a"})
    served.read(1)
    other = served.post({"id": 2}, **{"Idempotency-Key": "a"}).result()
    assert (other.status_code, "had another body" in other.json()["error"]) == (422, True)
    served.checkpoint()
    assert first.result().json() == {"rows": 1, "malformed": 0}
    saved = served.source.snapshot()
    served.close()
    _opened.remove(served)

    restored, replayed = Serving(), Serving()
    _opened.extend((restored, replayed))
    restored.source.restore(json.loads(json.dumps(saved)))
    restored.source.seek({0: 1})
    replayed.source.passed(served.reads[0])
    replayed.source.commit({0: 1})
    for replacement in (restored.start(), replayed.start()):
        assert replacement.post({"id": 2}, **{"Idempotency-Key": "a"}).result().status_code == 422
        assert replacement.post({"id": 1}, **{"Idempotency-Key": "a"}).result().status_code == 200
        assert replacement.reads == []


def test_a_replacement_has_the_keys_of_the_checkpoint_and_of_the_log() -> None:
    served = serving()
    pending = [served.post({"id": 1}, **{"Idempotency-Key": "a"})]
    served.read(1)
    saved = served.source.snapshot()
    pending.append(served.post({"id": 2}, **{"Idempotency-Key": "b"}))
    served.read(2)
    served.close()
    _opened.remove(served)

    replacement = Serving()
    _opened.append(replacement)
    replacement.source.restore(json.loads(json.dumps(saved)))
    replacement.source.seek({0: 1})
    replacement.source.passed(served.reads[1])
    replacement.source.seek({0: 2})
    replacement.start()
    assert replacement.post({"id": 1}, **{"Idempotency-Key": "a"}).result().status_code == 200
    known = replacement.post({"id": 2}, **{"Idempotency-Key": "b"})
    time.sleep(0.2)
    assert not known.done(), "no checkpoint covers it yet"
    replacement.source.commit({0: 2})
    assert known.result().status_code == 200
    assert replacement.reads == []
    assert [isinstance(answer.exception(), httpx.TransportError) for answer in pending] == [True, True]


def test_a_repeated_key_is_answered_when_its_rows_are_durable() -> None:
    inbox, answered = Inbox(1_000_000), list[str]()
    inbox.accept()

    def repeat(name: str) -> None:
        inbox.add(Post(1, key="a"), lambda durable: answered.append(name))

    repeat("first")
    repeat("again, before it is taken")
    assert len(inbox.take(0, 100, None, 0)) == 1
    repeat("again, before it is durable")
    assert answered == []
    inbox.settle(1)
    assert answered == ["first", "again, before it is taken", "again, before it is durable"]
    repeat("again, afterwards")
    assert answered[3:] == ["again, afterwards"]


def test_keys_are_dropped_after_their_lifetime() -> None:
    inbox = Inbox(1_000)
    inbox.accept()
    for key in "ab":
        inbox.add(Post(1, key=key), lambda durable: None)
        inbox.take(0, 100, None, 0 if key == "a" else 500)
    assert [note[0] for note in inbox.notes()] == ["a", "b"]
    inbox.take(2, 100, None, 1_200)
    assert [note[0] for note in inbox.notes()] == ["b"]


def test_rows_undone_by_a_rollback_are_withdrawn() -> None:
    inbox = Inbox(1_000_000)
    inbox.accept()
    answered: dict[str, bool] = {}
    for key in "abc":
        inbox.add(Post(1, key=key, size_bytes=1), lambda durable, key=key: answered.update({key: durable}))  # type: ignore[misc]
    assert [post.position for post in inbox.take(0, 2, None, 0)] == [1, 2]
    inbox.withdraw_after(1)
    assert answered == {"b": False}
    assert [post.key for post in inbox.take(1, 9, None, 0)] == ["c"]
    inbox.settle(2)
    assert answered == {"a": True, "b": False, "c": True}


def test_a_port_that_is_taken_is_waited_for_and_then_named() -> None:
    served = serving()
    other = WebhookSource(served.port, Item).create((None,))
    other.open(0, 1)
    other.seek({})
    assert isinstance(other.poll(0), Wait)
    with pytest.raises(
        SourceError, match=rf"http://127\.0\.0\.1:{served.port}/: cannot listen there .*: end the program"
    ):
        other.poll(61_000_000)


def test_one_task_listens_and_the_others_end_at_once() -> None:
    source = WebhookSource(free_port(), Item).create((None,))
    source.open(1, 2)
    assert isinstance(source.poll(0), End)


def test_impossible_settings_of_a_webhook_source_are_refused() -> None:
    with pytest.raises(GraphError, match="70000 is not a port"):
        WebhookSource(70_000, Item)
    with pytest.raises(GraphError, match="'80' is not a port"):
        WebhookSource("80", Item)  # type: ignore[arg-type]
    with pytest.raises(GraphError, match="'orders' is not a path"):
        WebhookSource(80, Item, "orders")
    with pytest.raises(GraphError, match="token would be plain text in the plan"):
        WebhookSource(80, Item, token="word")  # type: ignore[arg-type]


def test_the_number_of_connections_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhook_server, "CONNECTIONS_MAX", 2)
    served = serving()
    pending = [served.post({"id": number}) for number in (1, 2)]
    served.read(2)
    with pytest.raises(httpx.TransportError):
        httpx.get(served.url)
    served.checkpoint()
    assert [answer.result().status_code for answer in pending] == [200, 200]


def test_silent_connections_keep_no_client_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhook_server, "CONNECTIONS_MAX", 2)
    served = serving()
    silent = [socket.create_connection(("127.0.0.1", served.port), WAIT_S_MAX) for _ in range(6)]
    assert all(closed(connection) for connection in silent[:4]), "each new one replaces the oldest"
    silent[4].sendall(b"GET / HTTP/1.1\r\n")  # it is no longer the one that has been silent for the longest time
    pending = served.post({"id": 1})
    served.read(1)
    assert closed(silent[5])
    silent[4].sendall(b"Host: x\r\n\r\n")
    assert silent[4].recv(1_024).startswith(b"HTTP/1.1 405")
    served.checkpoint()
    assert pending.result().status_code == 200


def closed(connection: socket.socket) -> bool:
    """Waits until the server has closed a connection."""
    with connection:
        try:
            return connection.recv(1) == b""
        except ConnectionResetError:
            return True


KILLS = ("rows[0]@600ms", "rows[0]@1200ms", "out[0]@1800ms", "rows[0]@2400ms", "out[0]@2400ms", "out[1]@2400ms")
"""The last three together: all tasks, and so all logs, are gone."""


def posted(folder: Path, clients: int = 8, each: int = 20, kills: Sequence[str] = KILLS) -> tuple[Clients, list[int]]:
    """Clients post numbers to a job whose tasks are killed; the clients, and the numbers in the output."""
    port = free_port()
    job = Job("posted", checkpoint_interval="300ms")
    rows = job.source(WebhookSource(port, Item)).named("rows").parallelism(1)
    rows.rebalance().filter(col("id") >= 0).sink(FileSink(str(folder / "out"))).named("out")
    sending = Clients(f"http://127.0.0.1:{port}/", clients, each)
    run = job.start(runtime="local", parallelism=2, kills=list(kills), checkpoints=str(folder / "checkpoints"))
    with sending.sending():
        wait_while_running(run, lambda: sending.done, lambda: (len(sending.taken), sending.again, run.counters))
    assert run.stop(), "it commits all that was answered"
    return sending, visible(folder / "out")


def visible(out: Path) -> list[int]:
    return sorted(row["id"] for row in visible_rows(out))


def test_answered_rows_are_visible_once_although_all_tasks_are_killed(tmp_path: Path) -> None:
    sending, found = posted(tmp_path)
    assert sorted(sending.taken) == list(range(160))
    assert found == list(range(160))
    assert sending.again, "the kills came while rows were sent"


def test_the_check_finds_an_answer_before_the_rows_are_durable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted bug: rows are answered before they are durable, and then lost, with all tasks."""
    add = Inbox.add

    def hasty(self: Inbox, post: Post, settle: Settle) -> Post | None:
        added = add(self, post, lambda durable: None)
        if added is not None:
            settle(True)
        return added

    monkeypatch.setattr(Inbox, "add", hasty)
    all_tasks = ("rows[0]@600ms", "out[0]@600ms", "out[1]@600ms")
    sending, found = posted(tmp_path, clients=2, each=200, kills=all_tasks)
    assert set(sending.taken) - set(found)
