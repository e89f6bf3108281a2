"""An HTTP server in its own thread. It passes the bodies of POST requests to a handler, which supplies the answers.

h11 implements the protocol; this module has the sockets, limits and timeouts. Connections that idle, send too slowly or
exceed the limit are closed, so that unknown clients cost little. When there are too many, the one that has sent nothing
for the longest time is closed (``model/waiting_connections.py``). Connections whose request waits for its answer are
never closed for others.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import json
import socket
import threading
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

import h11

from clonos_py.model.waiting_connections import WaitingConnections

CONNECTIONS_MAX = 1_024
"""Connections that may be open at once."""
_REQUEST_S_MAX = 30.0
_DRAIN_S_MAX = 2.0
_READ_BYTES = 1 << 16
_JOIN_S_MAX = 5.0


@dataclass(frozen=True)
class WebAnswer:
    """An HTTP response. ``content`` is sent as JSON."""

    status: int
    content: Mapping[str, object]
    headers: Mapping[str, str] = field(default_factory=dict)


Handle = Callable[[bytes, str | None], Awaitable[WebAnswer]]
"""Answers a request, given its body and its idempotency key."""


@dataclass(frozen=True)
class WebAddress:
    """The address of a server. ``token``: the bearer token that requests must have, if any. ``body_bytes_max``: larger
    bodies are refused."""

    host: str
    port: int
    path: str
    token: str | None
    body_bytes_max: int

    def __str__(self) -> str:
        return f"http://{self.host}:{self.port}{self.path}"


class RefusedRequest(Exception):
    """The request is answered before its body is read completely."""

    def __init__(self, answer: WebAnswer) -> None:
        super().__init__(str(answer))
        self.answer = answer


class WebServer:
    """The server; it listens from its creation until ``close``. Raises OSError if it cannot listen."""

    def __init__(self, address: WebAddress, handle: Handle) -> None:
        self._address, self._handle = address, handle
        self._socket = socket.create_server((address.host, address.port), backlog=256)
        self._socket.setblocking(False)
        self._loop = asyncio.new_event_loop()
        self._connections: set[asyncio.Task[None]] = set()
        self._silent = WaitingConnections[asyncio.Task[None]]()
        """The connections whose request is not complete. Each waits since its last bytes."""
        self._answering = 0
        """How many connections have a complete request, which waits for its answer."""
        self._stop = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name=f"web server of {address}", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Closes the port and all connections, including those that wait for an answer."""
        with contextlib.suppress(RuntimeError):  # the loop may have ended already
            self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(_JOIN_S_MAX)

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._serve())
            self._loop.run_until_complete(self._loop.shutdown_default_executor())
        finally:
            self._loop.close()

    async def _serve(self) -> None:
        server = await asyncio.start_server(self._connected, sock=self._socket)
        await self._stop.wait()
        server.close()
        for connection in list(self._connections):
            connection.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        connection = _Connection(reader, writer, partial(self._heard, task))
        try:
            self._heard(task)
            self._close_surplus()
            while await self._exchange(connection, task):
                pass
        except (OSError, TimeoutError, asyncio.CancelledError, h11.ProtocolError):
            writer.transport.abort()
        finally:
            self._connections.discard(task)
            self._silent.remove(task)
            writer.close()

    def _heard(self, task: asyncio.Task[None]) -> None:
        """Bytes have come, or the next request is waited for."""
        self._silent.add(task, self._loop.time())

    def _close_surplus(self) -> None:
        """Closes the connections that have sent nothing for the longest time, if there are too many. That may be the
        new one, if all others wait for answers."""
        for connection in self._silent.surplus(CONNECTIONS_MAX, self._answering):
            self._silent.remove(connection)
            connection.cancel()

    async def _exchange(self, connection: _Connection, task: asyncio.Task[None]) -> bool:
        """Handles one request; returns whether the connection stays open."""
        try:
            async with asyncio.timeout(_REQUEST_S_MAX):
                if (request := await connection.request()) is None:
                    return False
                self._check(request)
                key = _header(request, b"idempotency-key")
                body = await connection.body(self._address.body_bytes_max)
        except RefusedRequest as refused:
            await connection.refuse(refused.answer)
            return False
        except h11.RemoteProtocolError as problem:
            await connection.refuse(WebAnswer(problem.error_status_hint, {"error": str(problem)}))
            return False
        except TimeoutError:
            if connection.has_begun:
                error = f"the request was not complete within {_REQUEST_S_MAX:g} s: send it faster, or less at once"
                await connection.refuse(WebAnswer(408, {"error": error}))
            return False
        self._silent.remove(task)
        self._answering += 1
        try:
            stays = await connection.answer(await self._handle(body, key))
        finally:
            self._answering -= 1
        self._heard(task)
        return stays

    def _check(self, request: h11.Request) -> None:
        """Raises RefusedRequest for a wrong path, method, token, encoding or length."""
        if request.target.partition(b"?")[0] != self._address.path.encode():
            raise RefusedRequest(WebAnswer(404, {"error": f"rows are taken at {self._address.path}"}))
        if request.method != b"POST":
            raise RefusedRequest(WebAnswer(405, {"error": "rows are taken by POST"}, {"Allow": "POST"}))
        token, given = self._address.token, _header(request, b"authorization") or ""
        if token is not None and not hmac.compare_digest(given.encode(), f"Bearer {token}".encode()):
            error = "the bearer token is missing or wrong"
            raise RefusedRequest(WebAnswer(401, {"error": error}, {"WWW-Authenticate": "Bearer"}))
        if (_header(request, b"content-encoding") or "identity").lower() != "identity":
            raise RefusedRequest(WebAnswer(415, {"error": "send the body as it is, without a content encoding"}))
        length = _header(request, b"content-length")
        if length is not None and _header(request, b"transfer-encoding") is not None:  # proxies differ in what counts
            error = "Content-Length and Transfer-Encoding are both there, so the length of the body is not clear"
            raise RefusedRequest(WebAnswer(400, {"error": error}))
        if length is not None and int(length) > self._address.body_bytes_max:
            raise RefusedRequest(_too_large(self._address.body_bytes_max))


def _too_large(bytes_max: int) -> WebAnswer:
    return WebAnswer(413, {"error": f"the body has more than {bytes_max} bytes: send fewer rows at once"})


def _header(request: h11.Request, name: bytes) -> str | None:
    """The value of a header. Raises RefusedRequest if there are several, as it is not clear which one is meant."""
    found = [value for key, value in request.headers if key == name]
    if len(found) > 1:
        raise RefusedRequest(WebAnswer(400, {"error": f"the header {name.decode()} is there {len(found)} times"}))
    return found[0].decode("latin-1") if found else None


class _Connection:
    """The requests of one connection, handled in sequence."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, heard: Callable[[], None]) -> None:
        """``heard`` is called when bytes have come."""
        self._reader, self._writer, self._heard = reader, writer, heard
        self._state = h11.Connection(h11.SERVER)
        self._wants_body = True
        """Whether the answer has a body: not for HEAD (RFC 9110, section 9.3.2)."""

    async def request(self) -> h11.Request | None:
        """The next request; None if there is none."""
        self._wants_body = True
        event = await self._event()
        if not isinstance(event, h11.Request):
            return None
        self._wants_body = event.method != b"HEAD"
        return event

    @property
    def has_begun(self) -> bool:
        """Whether a part of a request has come that is not answered yet."""
        return self._state.their_state is not h11.IDLE or bool(self._state.trailing_data[0])

    async def body(self, bytes_max: int) -> bytes:
        """The request's body. Raises RefusedRequest if it has more than ``bytes_max`` bytes."""
        if self._state.they_are_waiting_for_100_continue:
            self._writer.write(self._sent(h11.InformationalResponse(status_code=100, headers=[])))
        body = bytearray()
        while isinstance(event := await self._event(), h11.Data):
            body += event.data
            if len(body) > bytes_max:
                raise RefusedRequest(_too_large(bytes_max))
        if not isinstance(event, h11.EndOfMessage):
            raise ConnectionResetError("the request ended within its body")
        return bytes(body)

    async def answer(self, answer: WebAnswer) -> bool:
        """Sends the answer; returns whether another request may follow."""
        await self._send(answer, {})
        if self._state.our_state is h11.MUST_CLOSE:
            return False
        self._state.start_next_cycle()
        return True

    async def refuse(self, answer: WebAnswer) -> None:
        """Answers before the request is read completely, and closes. The rest is still read for a while: closing a
        connection with unread bytes resets it, and the sender may not see the answer."""
        await self._send(answer, {"Connection": "close"})
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(_DRAIN_S_MAX):
                self._writer.write_eof()
                while await self._reader.read(_READ_BYTES):
                    pass

    async def _send(self, answer: WebAnswer, more: Mapping[str, str]) -> None:
        content = json.dumps(answer.content).encode() + b"\n"
        headers = {"Content-Type": "application/json", "Content-Length": str(len(content)), **answer.headers, **more}
        response = h11.Response(status_code=answer.status, headers=list(headers.items()))
        body = [h11.Data(data=content)] if self._wants_body else []
        events: list[h11.Event] = [response, *body, h11.EndOfMessage()]
        self._writer.write(b"".join(map(self._sent, events)))  # in this order, as h11 counts the bytes
        await self._writer.drain()

    def _sent(self, event: h11.Event) -> bytes:
        return self._state.send(event) or b""

    async def _event(self) -> h11.Event | None:
        """The next event; None if the sender has to wait for an answer first."""
        while (event := self._state.next_event()) is h11.NEED_DATA:
            content = await self._reader.read(_READ_BYTES)
            self._heard()
            self._state.receive_data(content)
        return event if isinstance(event, h11.Event) else None
