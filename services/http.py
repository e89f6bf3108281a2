"""``ctx.http``: HTTP requests whose answers are logged, so that a replay receives the same answers as its predecessor.

A failed request (refused, timed out, interrupted) is also an answer: a ServiceError, which is logged and raised again
on replay. A request is sent once per attempt of a task. If the task fails after it has sent a request and before the
answer is logged, the replacement sends the request again. So each request carries an idempotency key, made of the job's
lineage and the input that caused it (``keys``, D16). The key is the same on replay, so the server can recognise the
request. With ``retries``, each try is logged separately under the same key. A replay does not repeat logged tries.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import partial
from typing import Any, Protocol, TypedDict, Unpack

import msgspec

from clonos_py.model.errors import ServiceError, UserCodeError
from clonos_py.model.operators import OperatorContext
from clonos_py.model.times import Duration, micros
from clonos_py.services.plain import plain

HTTP = "http"
"""The name of the service, and the kind under which the gate logs its answers."""
IDEMPOTENCY_KEY = "Idempotency-Key"
TRANSIENT = frozenset({408, 425, 429, 500, 502, 503, 504})
"""The status codes after which a request is tried again."""
_BACKOFF_US_MAX = 60_000_000


@dataclass(frozen=True)
class Request:
    """A complete HTTP request."""

    method: str
    url: str
    headers: Mapping[str, str]
    content: bytes
    timeout_us: int
    after_us: int = 0
    """The delay before the request is sent. It is part of a try, not of the request that the server receives."""

    def digest(self) -> str:
        """A digest, as 16 hexadecimal digits, of everything that the server receives."""
        seen = [self.method, self.url, sorted(self.headers.items()), self.content]
        return hashlib.blake2b(msgspec.msgpack.encode(seen), digest_size=8).hexdigest()


class HttpClient(Protocol):
    """The client that sends requests, implemented outside the core."""

    def send(self, request: Request) -> dict[str, Any]:
        """Sends a request. Returns ``{"status": int, "headers": {lower-case name: value}, "content": bytes}``.

        Raises ServiceError if there is no answer.
        """
        ...

    def close(self) -> None: ...


@dataclass(frozen=True)
class Response:
    """An answer with any status. ``headers`` have lower-case names."""

    url: str
    status: int
    headers: Mapping[str, str]
    content: bytes

    @property
    def ok(self) -> bool:
        """Whether the status is below 400."""
        return self.status < 400

    @property
    def text(self) -> str:
        """The content decoded as UTF-8. Invalid bytes are replaced by U+FFFD."""
        return self.content.decode(errors="replace")

    def json(self, fraction: Callable[[str], Any] = Decimal) -> Any:
        """The content decoded as JSON. Numbers with a fraction become exact Decimals, which Money can be multiplied by;
        with ``fraction=float`` they become floats. Raises ServiceError if the content is not JSON."""
        try:
            return msgspec.json.Decoder(float_hook=fraction).decode(self.content)
        except msgspec.DecodeError as error:
            raise ServiceError(f"{self.url} answered {self.status} and no JSON: {error}") from error


class Options(TypedDict, total=False):
    """The keyword options of every request."""

    headers: Mapping[str, str] | None
    timeout: Duration
    retries: int
    backoff: Duration


class ContentOptions(Options, total=False):
    """The keyword options of requests with content."""

    json: Any
    content: bytes | str | None


class Http:
    """The class of ``ctx.http``. ``key`` returns the part of the next idempotency key that names the input."""

    def __init__(self, ctx: OperatorContext, key: Callable[[], str]) -> None:
        self._ctx = ctx
        self._key = key

    def get(self, url: str, **options: Unpack[Options]) -> Response:
        """A request without content. See ``request`` for options and errors."""
        return self.request("GET", url, **options)

    def post(self, url: str, **options: Unpack[ContentOptions]) -> Response:
        """A request with ``json=`` or ``content=``, see ``request``."""
        return self.request("POST", url, **options)

    def put(self, url: str, **options: Unpack[ContentOptions]) -> Response:
        """A request with ``json=`` or ``content=``, see ``request``."""
        return self.request("PUT", url, **options)

    def patch(self, url: str, **options: Unpack[ContentOptions]) -> Response:
        """A request with ``json=`` or ``content=``, see ``request``."""
        return self.request("PATCH", url, **options)

    def delete(self, url: str, **options: Unpack[Options]) -> Response:
        """A request without content, see ``request``."""
        return self.request("DELETE", url, **options)

    def head(self, url: str, **options: Unpack[Options]) -> Response:
        """A request whose answer has no content, see ``request``."""
        return self.request("HEAD", url, **options)

    def options(self, url: str, **options: Unpack[Options]) -> Response:
        """A request without content, see ``request``."""
        return self.request("OPTIONS", url, **options)

    def request(self, method: str, url: str, **options: Unpack[ContentOptions]) -> Response:
        """Sends a request and waits for the answer. ``json`` is encoded as the content. ``timeout`` (a duration such as
        ``"2s"``, by default 10 s) applies to connecting and to each piece of the answer.

        ``retries``: the number of further tries if there was no answer or one with a transient status (408, 425, 429,
        500, 502, 503, 504). The first waits for ``backoff`` (by default 100 ms), each next one twice as long, at most a
        minute.

        Raises ServiceError if there was no answer. A status of 400 and above is an answer.
        """
        for attempt, last in attempts(method, url, self._key(), options):
            try:
                answer = self._ctx.gate.ask(HTTP, partial(self._send, attempt))
            except ServiceError:
                if last:
                    raise
            else:
                if last or answer["status"] not in TRANSIENT:
                    return response(url, answer)
        raise AssertionError("the last attempt ends the loop")

    def _send(self, request: Request) -> Any:
        return send(self._ctx.service(HTTP), request)


def send(client: HttpClient, request: Request) -> Any:
    """Sends a request and returns the answer as plain data. Raises ServiceError."""
    return plain(client.send(request), request.url)


def response(url: str, answer: Mapping[str, Any]) -> Response:
    """The response for user code from a logged answer."""
    return Response(url, answer["status"], answer["headers"], answer["content"])


def attempts(method: str, url: str, key: str, options: ContentOptions) -> Iterator[tuple[Request, bool]]:
    """The requests to send one after the other until one is answered, each with whether it is the last."""
    json, retries = options.get("json"), options.get("retries", 0)
    if type(retries) is not int or retries < 0:
        raise UserCodeError(f"{method} {url}: retries={retries!r} is not a number of further attempts")
    sent = dict(options.get("headers") or {})
    if json is not None:
        sent.setdefault("Content-Type", "application/json")
    bare = Request(method, url, sent, _content(json, options.get("content")), micros(options.get("timeout", "10s")))
    keyed = replace(bare, headers={IDEMPOTENCY_KEY: f"{key}/{bare.digest()}"} | sent)
    backoff_us = micros(options.get("backoff", "100ms"))
    for number in range(retries + 1):
        after_us = min(backoff_us << (number - 1), _BACKOFF_US_MAX) if number else 0
        yield replace(keyed, after_us=after_us), number == retries


def _content(json: Any, content: bytes | str | None) -> bytes:
    if json is not None:
        return msgspec.json.encode(json)
    return content.encode() if isinstance(content, str) else content or b""
