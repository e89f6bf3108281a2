"""A source of rows that clients post by HTTP, and its reader.

A client cannot be asked for rows again. So rows are written to the causal log (D4), and a client is answered only when
a completed checkpoint covers its rows: no later failure loses them, not even of all tasks at once. A client sends a
request without an answer again; with an idempotency key its rows count once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import msgspec
import xxhash
from typing_extensions import TypeVar

from clonos_py.columns.views import concat
from clonos_py.connectors.line_formats import JsonLines, check_readable
from clonos_py.connectors.malformed import CatchingSource, OnError, OnErrorWord, Refused, RequestedColumns, parsed
from clonos_py.connectors.pushed_rows import READ_BYTES, WAIT_US, PushedRowsReader, check_port
from clonos_py.connectors.record_ends import MARK
from clonos_py.connectors.secrets import Secret, refuse_plain_secrets
from clonos_py.connectors.webhook_inbox import Inbox, MalformedValue, Post
from clonos_py.connectors.webhook_server import WebAddress, WebAnswer, WebServer
from clonos_py.model.errors import GraphError, SourceError
from clonos_py.model.operators import End, Read, Source, Wait
from clonos_py.model.record import ArrowSchema, Record, schema_of
from clonos_py.model.times import Duration, micros

R = TypeVar("R", bound=Record, default=Any)

KEY_CHARS_MAX = 255
MALFORMED_MAX = 1_000
"""The limit per request. Each malformed value is parsed separately."""
_AT_ONCE_BYTES = 64 << 10
"""Longer bodies are parsed in another thread, so that other requests do not wait."""
_PORT_WAIT_US = 200_000
_PORT_US_MAX = 60_000_000
"""A replaced process may hold the port until it has ended."""
_RETRY = {"Retry-After": "1"}
_NOT_YET = "not durable yet; it may have been taken: repeat it with the same Idempotency-Key"
_OTHER_BODY = "an earlier request with this Idempotency-Key had another body: give each body a key of its own"

_decode_list = msgspec.json.Decoder(list[msgspec.Raw]).decode
_decode_one = msgspec.json.Decoder(msgspec.Raw).decode


class WebhookDeadLetter(Record):
    """A malformed value of a request: the number of the request among those that the job has taken, the number of the
    value in it, both from 1, its content, and the reason."""

    request: int
    number: int
    value: bytes
    reason: str


class WebhookSource(CatchingSource[R]):
    """Receives rows by HTTP: one task listens at ``port`` of ``host``, an address of its node.

    The body of a POST to ``path`` is a JSON object, a list of objects, or objects on lines; ``schema`` is the class of
    the rows or their columns. The answer comes when a completed checkpoint covers the rows, so it can take a
    ``checkpoint_interval``. It is one of

    - 200: the rows are taken, and no failure loses them;
    - 400: the body is malformed, or the ``Idempotency-Key`` is empty or longer than 255 characters; no row is taken;
    - 401: the bearer token is missing or is not ``token``, where one is given;
    - 408: the request took longer than 30 s to arrive; no row is taken;
    - 413: the body has more than ``body_bytes_max`` bytes or, where malformed values are left out, more than 1,000 of
      these; no row of it is taken;
    - 422: an earlier request with the same ``Idempotency-Key`` had another body; no row is taken;
    - 503, with Retry-After: the job is behind or recovering, or no checkpoint completed within ``answer_within``.

    A client that gets 503 or no answer should send the request again. Its rows may have been taken the first time. If
    both requests have the same body and the same header ``Idempotency-Key``, they are taken once. Keys are kept for the
    time ``keys`` after they were taken, and are part of each checkpoint; so choose a long time only for few requests.

    ``on_error`` decides what happens to a value that does not fit the schema. With "fail" its request is answered 400.
    With "skip" and "dead-letter" the other values of the request are taken, and the answer has the number of malformed
    ones; dead letters are rows of ``WebhookDeadLetter``. A request with more than 1,000 malformed values is answered
    413 instead; its client can send fewer values at once.

    For encryption, or if others can reach the port, put a reverse proxy in front.
    """

    letter = WebhookDeadLetter
    commits = True

    def __init__(
        self,
        port: int,
        schema: type[R] | ArrowSchema,
        path: str = "/",
        host: str = "127.0.0.1",
        *,
        token: Secret | None = None,
        body_bytes_max: int = 1 << 20,
        answer_within: Duration = "30s",
        keys: Duration = "10m",
        on_error: OnErrorWord = "fail",
    ) -> None:
        check_port("WebhookSource", port)
        if not path.startswith("/") or "?" in path or not path.isascii():
            raise GraphError(f"WebhookSource: {path!r} is not a path: write it as /orders")
        refuse_plain_secrets("WebhookSource", token=token)
        self._host, self._port, self._path, self._token = host, port, path, token
        self._body_bytes_max = body_bytes_max
        self._answer_within_s, self._keys_us = micros(answer_within) / 1e6, micros(keys)
        record = schema if isinstance(schema, type) else None
        columns = schema_of(schema)
        check_readable("WebhookSource", "json", columns)
        self.declare(columns, record, on_error)

    def reader(self, requested: RequestedColumns, read_rows: int | None) -> Source:
        return WebhookReader(self._address, requested, self._answer_within_s, self._keys_us, read_rows)

    def _address(self) -> WebAddress:
        """The address with its secret. Raises SettingError if the secret is missing."""
        token = None if self._token is None else self._token.read()
        return WebAddress(self._host, self._port, self._path, token, self._body_bytes_max)


class WebhookReader(PushedRowsReader):
    """The reader of one task. Offsets count requests."""

    def __init__(
        self,
        address: Callable[[], WebAddress],
        requested: RequestedColumns,
        answer_within_s: float,
        keys_us: int,
        read_rows: int | None,
    ) -> None:
        super().__init__(requested, read_rows)
        self._address = address
        self._posts = PostParser(requested)
        self._inbox = Inbox(keys_us)
        self._answer_within_s = answer_within_s
        self._server: WebServer | None = None
        self._position = 0
        self._listens = False
        self._since_us: int | None = None

    def close(self) -> None:
        if self._server is not None:
            self._server.close()

    def notify(self, wake: Callable[[], None]) -> None:
        self._inbox.wake, self._listens = wake, True

    # ---- positions

    def snapshot(self) -> Any:
        return {"position": self._position, "keys": self._inbox.notes()} if self.reads else None

    def restore(self, saved: Any) -> None:
        self._position = saved["position"]
        self._inbox.restored(saved["position"], saved["keys"])

    def passed(self, read: Read) -> None:
        """Replays a read. The server listens already during recovery, and asks clients to try again."""
        self._position = read.stop
        self._inbox.replayed(read.note or ())
        if self._listens and self._server is None:
            self._listen()

    def seek(self, positions: Mapping[int, int]) -> None:
        self._position = positions.get(0, 0)
        self._inbox.withdraw_after(self._position)

    def commit(self, positions: Mapping[int, int]) -> None:
        if 0 in positions:
            self._inbox.settle(positions[0])

    # ---- reading

    def rows_waiting(self) -> int | None:
        return self._inbox.rows_waiting

    def poll(self, now: int) -> Read | Wait | End:
        if not self.reads:
            return End()
        if self._server is None and (problem := self._listen()) is not None:
            return self._wait_for_port(now, problem)
        self._inbox.accept()
        if posts := self._inbox.take(self._position, READ_BYTES, self.rows_max, now):
            return self._read(posts)
        return Wait(now + WAIT_US)

    def reread(self, partition: int, start: int, stop: int) -> Read:
        """The log ended before the rows of this read: no task depends on them, and no client got an answer."""
        return Read(0, start, stop, self.no_rows, 0, 0)

    def _read(self, posts: list[Post]) -> Read:
        start, self._position = self._position, posts[-1].position
        letters = [
            {"request": post.position, "number": one.number, "value": one.value, "reason": one.reason}
            for post in posts
            for one in post.malformed
        ]
        rows = self.requested.delivered(concat([post.rows for post in posts if post.rows is not None]))
        for post in posts:
            post.rows, post.malformed = None, ()
        ports = (rows if rows.num_rows else None, self.requested.letter_rows(letters))[: self.requested.count]
        malformed = sum(post.malformed_count for post in posts)
        notes = [post.note for post in posts if post.key is not None]
        counts = self.requested.counted(malformed)
        events = rows.num_rows + malformed
        return Read(0, start, self._position, ports, 0, events, counts=counts, note=notes)

    # ---- the server

    def _listen(self) -> OSError | None:
        """Starts the server; returns the error if it cannot listen."""
        try:
            self._server = WebServer(self._address(), self._answer)
        except OSError as problem:
            return problem
        return None

    def _wait_for_port(self, now: int, problem: OSError) -> Wait:
        self._since_us = now if self._since_us is None else self._since_us
        if now - self._since_us > _PORT_US_MAX:
            raise SourceError(
                f"{self._address()}: cannot listen there ({problem.strerror}): end the program that holds the port, or "
                "name another port or an address of this node"
            )
        return Wait(now + _PORT_WAIT_US)

    async def _answer(self, body: bytes, key: str | None) -> WebAnswer:
        """Answers a request, in the server's thread."""
        if key is not None and not 0 < len(key) <= KEY_CHARS_MAX:
            return WebAnswer(400, {"error": f"an Idempotency-Key has 1 to {KEY_CHARS_MAX} characters"})
        long = len(body) > _AT_ONCE_BYTES
        post = await asyncio.to_thread(self._posts.parse, body) if long else self._posts.parse(body)
        if isinstance(post, RefusedBody):
            return WebAnswer(post.status, {"error": post.reason})
        if key is not None:
            post.key, post.digest = key, xxhash.xxh3_64_intdigest(body) >> 1
        if not post.row_count and not post.malformed_count:
            return _taken(post)
        return await self._durable(post)

    async def _durable(self, post: Post) -> WebAnswer:
        """Waits until the post is settled, and answers."""
        loop = asyncio.get_running_loop()
        settled: asyncio.Future[bool] = loop.create_future()

        def settle(durable: bool) -> None:
            with suppress(RuntimeError):  # the server is closed: clients send again
                loop.call_soon_threadsafe(_resolve, settled, durable)

        added = self._inbox.add(post, settle)
        if added is None:
            return WebAnswer(503, {"error": "the job is behind, or recovers: try again"}, _RETRY)
        if added.digest != post.digest:
            return WebAnswer(422, {"error": _OTHER_BODY})
        try:
            async with asyncio.timeout(self._answer_within_s):
                durable = await settled
        except TimeoutError:
            return WebAnswer(503, {"error": _NOT_YET}, _RETRY)
        if not durable:
            return WebAnswer(503, {"error": "the job went back to its last checkpoint: try again"}, _RETRY)
        return _taken(added)


def _resolve(settled: asyncio.Future[bool], durable: bool) -> None:
    if not settled.done():
        settled.set_result(durable)


def _taken(post: Post) -> WebAnswer:
    return WebAnswer(200, {"rows": post.row_count, "malformed": post.malformed_count})


class RefusedBody(NamedTuple):
    """The body is refused; none of its rows is taken."""

    status: int
    reason: str


class PostParser:
    """Converts bodies to posts."""

    def __init__(self, requested: RequestedColumns) -> None:
        self._requested = requested
        self._format = JsonLines(requested.declared)

    def parse(self, body: bytes) -> Post | RefusedBody:
        values = values_of(body)
        if values is None:
            return RefusedBody(400, "the body is empty: send an object, a list of objects, or objects on lines")
        content = b"".join(value.replace(b"\n", b" ") + b"\n" for value in values)
        fails = self._requested.on_error is OnError.FAIL
        refused_max = 0 if fails else MALFORMED_MAX
        found = parsed(self._format, content, self._format.records(content, whole=True), refused_max)
        if (problem := _list_problem(values)) is not None:
            found = found._replace(refused=[Refused(0, problem)])
        if len(found.refused) > refused_max:
            first = problem or f"value {found.refused[0].record + 1}: {found.refused[0].reason}"
            if fails:
                return RefusedBody(400, first)
            excess = f"the body has more than {refused_max} malformed values, of which the first is {first}"
            return RefusedBody(413, f"{excess}; correct them, or send fewer values at once")
        caught = found.refused if self._requested.letters else ()
        malformed = [MalformedValue(one.record + 1, values[one.record], one.reason) for one in caught]
        return Post(found.rows.num_rows, malformed, len(found.refused), found.rows, len(content))


def values_of(body: bytes) -> list[bytes] | None:
    """The values of a list, a single value, or the values on lines; None if the body is empty."""
    text = body.removeprefix(MARK).strip()
    if not text:
        return None
    if text.startswith(b"["):
        try:
            return [bytes(value) for value in _decode_list(text)]
        except (msgspec.DecodeError, RecursionError):
            return [text]
    try:
        _decode_one(text)
    except (msgspec.DecodeError, RecursionError):
        return [line for line in text.split(b"\n") if line.strip()]
    return [text]


def _list_problem(values: Sequence[bytes]) -> str | None:
    """Why a body that begins like a list could not be split into values; None if it could."""
    if len(values) != 1 or not values[0].startswith(b"["):
        return None
    try:
        _decode_list(values[0])
    except RecursionError:
        return "the list is nested too deep"
    except msgspec.DecodeError as error:
        problem = str(error).removeprefix("JSON is malformed: ")
        return f"the list is not JSON: {'it does not end' if 'truncated' in problem else problem}"
    return None
