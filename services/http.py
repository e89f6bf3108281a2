"""``ctx.http``: requests whose answers are logged, so that a replay sees the answers its predecessor saw.

A failed request (refused, timed out, cut off) is an answer too: a ServiceError, logged and raised again on replay. A
request is sent once per attempt of a task; one that was sent but not yet logged when the task died is sent again. So
each carries an idempotency key made of the input that caused it (D16), the same on replay, by which the server can
recognise it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Protocol, TypedDict, Unpack

import msgspec

from clonos_py.model.errors import ServiceError
from clonos_py.model.operators import OperatorContext
from clonos_py.model.times import micros
from clonos_py.services.plain import plain

HTTP = "http"
"""The name of the service, and the kind under which the gate logs its answers."""
IDEMPOTENCY_KEY = "Idempotency-Key"


@dataclass(frozen=True)
class Request:
    """One HTTP request, complete."""

    method: str
    url: str
    headers: Mapping[str, str]
    content: bytes
    timeout_us: int

    def digest(self) -> str:
        """16 hexadecimal digits of everything that the server sees."""
        seen = [self.method, self.url, sorted(self.headers.items()), self.content]
        return hashlib.blake2b(msgspec.msgpack.encode(seen), digest_size=8).hexdigest()


class HttpClient(Protocol):
    """Who really sends. Lives outside the core."""

    def send(self, request: Request) -> dict[str, Any]:
        """The answer as ``{"status": int, "headers": {lower-case name: value}, "content": bytes}``.

        Raises ServiceError when there is no answer.
        """
        ...

    def close(self) -> None: ...


@dataclass(frozen=True)
class Response:
    """An answer, of whatever status. ``headers`` have lower-case names."""

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
        """The content as UTF-8; what is not is replaced by U+FFFD."""
        return self.content.decode(errors="replace")

    def json(self, fraction: Callable[[str], Any] = Decimal) -> Any:
        """The content as JSON. Numbers with a fraction are exact Decimals, fit to multiply Money; ``fraction=float``
        makes them floats. Raises ServiceError if it is no JSON."""
        try:
            return msgspec.json.Decoder(float_hook=fraction).decode(self.content)
        except msgspec.DecodeError as error:
            raise ServiceError(f"{self.url} answered {self.status} and no JSON: {error}") from error


class Options(TypedDict, total=False):
    """What every request takes, by keyword."""

    headers: Mapping[str, str] | None
    timeout: str | int


class ContentOptions(Options, total=False):
    """And what one with content takes."""

    json: Any
    content: bytes | str | None


class Http:
    """What ``ctx.http`` is. ``key`` gives the next idempotency key's part that names the input."""

    def __init__(self, ctx: OperatorContext, key: Callable[[], str]) -> None:
        self._ctx = ctx
        self._key = key

    def get(self, url: str, **options: Unpack[Options]) -> Response:
        """A request without content, see ``request`` for its options and errors."""
        return self.request("GET", url, **options)

    def post(self, url: str, **options: Unpack[ContentOptions]) -> Response:
        """A request with ``json=`` or ``content=``, see ``request``."""
        return self.request("POST", url, **options)

    def put(self, url: str, **options: Unpack[ContentOptions]) -> Response:
        """A request with ``json=`` or ``content=``, see ``request``."""
        return self.request("PUT", url, **options)

    def delete(self, url: str, **options: Unpack[Options]) -> Response:
        """A request without content, see ``request``."""
        return self.request("DELETE", url, **options)

    def request(
        self,
        method: str,
        url: str,
        *,
        json: Any = None,
        content: bytes | str | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: str | int = "10s",
    ) -> Response:
        """Sends and waits for the answer. ``json`` is encoded as the content. ``timeout`` (a duration such as ``"2s"``)
        holds for connecting and for each piece of the answer.

        Raises ServiceError if there was no answer; a status of 400 and above is an answer.
        """
        body = _content(json, content)
        sent = dict(headers or {})
        if json is not None:
            sent.setdefault("Content-Type", "application/json")
        bare = Request(method, url, sent, body, micros(timeout))
        keyed = Request(method, url, {IDEMPOTENCY_KEY: f"{self._key()}/{bare.digest()}"} | sent, body, bare.timeout_us)
        answer = self._ctx.gate.ask(HTTP, lambda: plain(self._ctx.service(HTTP).send(keyed), url))
        return Response(url, answer["status"], answer["headers"], answer["content"])


def _content(json: Any, content: bytes | str | None) -> bytes:
    if json is not None:
        return msgspec.json.encode(json)
    return content.encode() if isinstance(content, str) else content or b""
