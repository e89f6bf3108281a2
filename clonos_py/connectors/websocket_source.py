"""A source of the messages of a WebSocket server, and its reader.

Reference: RFC 6455, "The WebSocket Protocol".
"""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec
from typing_extensions import TypeVar

from clonos_py.connectors.extras import need
from clonos_py.connectors.http_address import HttpAddress
from clonos_py.connectors.line_formats import check_readable
from clonos_py.connectors.malformed import CatchingSource, OnErrorWord, RequestedColumns
from clonos_py.connectors.received_json import ReceivedJsonReader
from clonos_py.connectors.resumable_feed import ReceivedItem, Receiver
from clonos_py.connectors.secrets import Secret
from clonos_py.connectors.users_code import failures_of
from clonos_py.model.errors import GraphError, SourceError
from clonos_py.model.operators import Source
from clonos_py.model.record import ArrowSchema, Record, schema_of
from clonos_py.model.times import Duration, micros

if TYPE_CHECKING:
    from websockets.exceptions import ConnectionClosed
    from websockets.sync.client import ClientConnection

R = TypeVar("R", bound=Record, default=Any)

Subscription = Sequence[Any] | Callable[[Any], Sequence[Any]]
"""Messages, or a function that gets the cursor and returns them."""

_MESSAGE_BYTES_MAX = 16 << 20
_TOO_LARGE = 1009
_RETRY_S = 1.0
_CONNECT_S = 10.0


class WebSocketDeadLetter(Record):
    """A malformed message of a server: its address, the number of the message among all objects that the job has
    received from it, from 1, its content, and the reason."""

    url: str
    number: int
    value: bytes
    reason: str


class WebSocketSource(CatchingSource[R]):
    """Reads the messages of a WebSocket server (``wss://`` or ``ws://``) in one task. A message is a JSON object, or an
    array of them. ``schema`` is the class of the rows or their columns.

    ``subscribe``: the messages that the source sends once it is connected; text as it is, other values as JSON.
    ``select(message)`` gets each message as plain data and returns the objects in it that are rows, ``[]`` for an
    acknowledgement.

    When a connection ends, or when the server answers no ping within ``silent``, the source connects again and
    subscribes again. With ``reconnect=False`` it ends when the server closes the connection in order (1000 or 1001). A
    server that cannot be reached, answers 5xx or 429, or closes the connection before its first message, for longer
    than ``away`` ends the job; another answer does at once.

    Rows are written to the causal log, so that none is read twice. Most servers do not keep what they have sent: then
    messages are lost that come while no task is connected, those that a task had received and not yet passed on when it
    died, and, if the whole job goes back, those since its checkpoint.

    If the server can go on at a place, name the field of the objects that says so: ``cursor="id"``. ``subscribe`` is
    then a function that gets its last value, None at first, and asks for what follows it. So do the replacement of a
    task and a job that goes on from a checkpoint, and nothing is lost.

    ``on_error`` decides what happens to an object that does not fit the schema: see ``FileSource``; dead letters are
    rows of ``WebSocketDeadLetter``. Needs ``pip install 'clonos-py[websocket]'``.
    """

    letter = WebSocketDeadLetter

    def __init__(
        self,
        url: str,
        schema: type[R] | ArrowSchema,
        *,
        subscribe: Subscription = (),
        select: Callable[[Any], Iterable[Any]] | None = None,
        cursor: str | None = None,
        token: Secret | None = None,
        headers: Mapping[str, str | Secret] | None = None,
        reconnect: bool = True,
        silent: Duration = "1m",
        away: Duration = "5m",
        on_error: OnErrorWord = "fail",
    ) -> None:
        need("WebSocketSource", "websockets", "websocket")
        address = HttpAddress.of("WebSocketSource", url, token, headers, schemes=("wss", "ws"))
        columns = schema_of(schema)
        check_readable("WebSocketSource", "json", columns)
        if isinstance(subscribe, str) or (cursor is not None and not callable(subscribe)):
            instead = "a list of messages" if cursor is None else "a function of the cursor, as there is one"
            raise GraphError(f"WebSocketSource: subscribe is {subscribe!r}; write {instead}")
        self._server = _MessageServer(address, subscribe, select, cursor, reconnect, micros(silent) / 1e6)
        self._away_s = micros(away) / 1e6
        self.declare(columns, schema if isinstance(schema, type) else None, on_error)

    def reader(self, requested: RequestedColumns, read_rows: int | None) -> Source:
        return _MessageReader(self._server, requested, read_rows, self._away_s)


@dataclass(frozen=True)
class _MessageServer:
    address: HttpAddress
    subscribe: Subscription
    select: Callable[[Any], Iterable[Any]] | None
    cursor: str | None
    reconnect: bool
    silent_s: float

    @property
    def url(self) -> str:
        return self.address.url

    def connect(self) -> ClientConnection:
        """Raises SourceError if the server refuses, OSError if it may accept later."""
        from websockets.exceptions import InvalidHandshake, InvalidStatus, WebSocketException
        from websockets.sync.client import connect

        try:
            found = connect(
                self.url,
                additional_headers=self.address.request_headers(),
                open_timeout=_CONNECT_S,
                close_timeout=_RETRY_S,
                ping_interval=self.silent_s / 2,
                ping_timeout=self.silent_s / 2,
                max_size=_MESSAGE_BYTES_MAX,
                legacy=True,
            )
        except InvalidStatus as problem:
            status = problem.response.status_code
            if status == 429 or status >= 500:
                raise ConnectionError(f"it answered {status}") from problem
            raise SourceError(f"it answered {status}: correct the address or the token") from problem
        except InvalidHandshake as problem:
            raise ConnectionError(f"it did not open a WebSocket: {problem}") from problem
        except WebSocketException as problem:
            raise SourceError(f"{problem}: correct the address") from problem
        assert not isinstance(found, Iterator)
        return found

    def messages_to_send(self, cursor: Any) -> list[str]:
        """Raises SourceError for an error of the user's function."""
        found = self.subscribe
        if callable(found):
            with failures_of("subscribe", SourceError):
                found = list(found(cursor))
        return [message if isinstance(message, str) else json.dumps(message) for message in found]

    def objects(self, message: str | bytes) -> Iterator[tuple[bytes, Any]]:
        """The objects of a message, each with its cursor, or None. One that is not JSON is an object by itself, which
        the parser of rows refuses. Raises SourceError for an error of the user's function."""
        content = message.encode() if isinstance(message, str) else message
        if self.select is None and self.cursor is None and not content.lstrip().startswith(b"["):
            yield content, None
            return
        try:
            found = msgspec.json.decode(content)
        except (msgspec.DecodeError, UnicodeDecodeError):
            yield content, None
            return
        if self.select is not None:
            with failures_of("select", SourceError):
                found = list(self.select(found))
        for value in found if isinstance(found, list) else [found]:
            at = value.get(self.cursor) if self.cursor is not None and isinstance(value, dict) else None
            yield msgspec.json.encode(value), at


class _MessageConnection:
    """Receives the messages of one connection after the other."""

    def __init__(self, server: _MessageServer) -> None:
        self._server = server
        self._socket: socket.socket | None = None
        self._interrupted = False

    def receive(self, cursor: Any, put: Callable[[bytes, Any], bool]) -> float | None:
        from websockets.exceptions import ConnectionClosed

        received = False
        with closing(self._server.connect()) as connection:
            self._socket = connection.socket
            if self._interrupted:
                return _RETRY_S
            try:
                for text in self._server.messages_to_send(cursor):
                    connection.send(text)
                while True:
                    message = connection.recv()
                    received = True
                    for content, at in self._server.objects(message):
                        cursor = cursor if at is None else at
                        if not put(content, cursor):
                            return _RETRY_S
            except ConnectionClosed as problem:
                return self._wait_after(problem, received)

    def _wait_after(self, problem: ConnectionClosed, received: bool) -> float | None:
        from websockets.exceptions import ConnectionClosedOK

        if problem.sent is not None and problem.sent.code == _TOO_LARGE:
            raise SourceError(f"a message has more than {_MESSAGE_BYTES_MAX >> 20} MiB: subscribe to less")
        if not self._server.reconnect and isinstance(problem, ConnectionClosedOK):
            return None
        if not received:
            raise ConnectionError(f"it closed the connection before its first message: {problem}")
        return _RETRY_S

    def close(self) -> None: ...

    def interrupt(self) -> None:
        self._interrupted = True
        if self._socket is not None:
            with suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)


class _MessageReader(ReceivedJsonReader):
    """The reader of one task. Offsets count objects."""

    noun = "message"

    def __init__(
        self, server: _MessageServer, requested: RequestedColumns, read_rows: int | None, away_s: float
    ) -> None:
        super().__init__(requested, read_rows, server.url, away_s)
        self._server = server

    def receiver(self) -> Receiver[bytes]:
        return _MessageConnection(self._server)

    def letter(self, item: ReceivedItem[bytes], number: int) -> Mapping[str, Any]:
        return {"url": self._server.url, "number": number}
