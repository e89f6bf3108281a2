"""A source of server-sent events, and its reader.

Reference: the HTML standard, section 9.2, "Server-sent events".
"""

from __future__ import annotations

import re
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

import httpx
from typing_extensions import TypeVar

from clonos_py.connectors.http_address import HttpAddress
from clonos_py.connectors.line_formats import check_readable
from clonos_py.connectors.malformed import CatchingSource, OnErrorWord, RequestedColumns
from clonos_py.connectors.received_json import ReceivedJsonReader
from clonos_py.connectors.record_ends import MARK
from clonos_py.connectors.resumable_feed import ReceivedItem, Receiver
from clonos_py.connectors.secrets import Secret
from clonos_py.model.errors import SourceError
from clonos_py.model.operators import Source
from clonos_py.model.record import ArrowSchema, Record, schema_of
from clonos_py.model.times import Duration, micros

R = TypeVar("R", bound=Record, default=Any)

_LINE_END = re.compile(rb"\r\n|\n|\r(?!\Z)")
"""A CR at the end of what has come may be the first half of a line end."""
_EVENT_BYTES_MAX = 16 << 20

_RETRY_S = 1.0
_CONNECT_S = 10.0


class EventStreamDeadLetter(Record):
    """A malformed event of a server: its address, the id of the event, its data, and the reason."""

    url: str
    id: str
    value: bytes
    reason: str


class EventStreamSource(CatchingSource[R]):
    """Reads server-sent events (``text/event-stream``) of ``url`` in one task: the data of each is a JSON object.

    ``schema`` is the class of the rows or their columns. With ``events`` only events of these types are read; those
    without a type are called ``message``.

    When a connection ends, or when nothing has come for ``silent``, not even a comment, the source connects again after
    the time that the server asks for (``retry``), and names the last event that it has read in the header
    ``Last-Event-ID``. So does a replacement, and a job that goes on from a checkpoint. No event is lost if the server
    keeps events and gives each an id. Of a server that does not, events are lost that it sends meanwhile. Rows are
    written to the causal log, so that none is read twice.

    A server that cannot be reached, or answers 5xx or 429, for longer than ``away`` ends the job; another answer than
    200 does at once, but 204 ends the source. ``on_error`` decides what happens to an event that does not fit the
    schema: see ``FileSource``; dead letters are rows of ``EventStreamDeadLetter``.
    """

    letter = EventStreamDeadLetter

    def __init__(
        self,
        url: str,
        schema: type[R] | ArrowSchema,
        *,
        events: Sequence[str] = (),
        token: Secret | None = None,
        headers: Mapping[str, str | Secret] | None = None,
        silent: Duration = "1m",
        away: Duration = "5m",
        on_error: OnErrorWord = "fail",
    ) -> None:
        address = HttpAddress.of("EventStreamSource", url, token, headers)
        columns = schema_of(schema)
        check_readable("EventStreamSource", "json", columns)
        self._server = _EventServer(address, tuple(events), micros(silent) / 1e6)
        self._away_s = micros(away) / 1e6
        self.declare(columns, schema if isinstance(schema, type) else None, on_error)

    def reader(self, requested: RequestedColumns, read_rows: int | None) -> Source:
        return _EventReader(self._server, requested, read_rows, self._away_s)


@dataclass(frozen=True)
class _EventServer:
    address: HttpAddress
    events: tuple[str, ...]
    silent_s: float

    @property
    def url(self) -> str:
        return self.address.url

    def request_headers(self, last_id: str | None) -> dict[str, str]:
        """Raises SettingError if a secret is missing."""
        headers = self.address.request_headers() | {"Accept": "text/event-stream", "Cache-Control": "no-store"}
        return headers | ({"Last-Event-ID": last_id} if last_id else {})


class ServerEvent(NamedTuple):
    """``id``: the last one that the stream has named, up to this event; None if there was none."""

    kind: str
    data: bytes
    id: str | None


class EventParser:
    """Cuts a stream of bytes into events. ``retry_s``: after which time the server wants to be asked again."""

    def __init__(self, last_id: str | None) -> None:
        self._rest = b""
        self._first = True
        self._kind, self._data = "", list[bytes]()
        self._id = last_id
        self.retry_s = _RETRY_S

    def events(self, pieces: Iterable[bytes]) -> Iterator[ServerEvent]:
        """Raises SourceError for an event that is too large."""
        for piece in pieces:
            lines = _LINE_END.split(self._rest + piece)
            self._rest = lines.pop()
            if len(self._rest) + sum(map(len, self._data)) > _EVENT_BYTES_MAX:
                raise SourceError(f"an event has more than {_EVENT_BYTES_MAX >> 20} MiB: send smaller ones")
            for line in lines:
                yield from self._line(line.removeprefix(MARK) if self._first else line)
                self._first = False

    def _line(self, line: bytes) -> Iterator[ServerEvent]:
        if not line:
            if self._data:
                yield ServerEvent(self._kind or "message", b"\n".join(self._data), self._id)
            self._kind, self._data = "", []
            return
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        match name:
            case b"data":
                self._data.append(value)
            case b"event":
                self._kind = value.decode("utf-8", "replace")
            case b"id" if b"\0" not in value:
                self._id = value.decode("utf-8", "replace") or None
            case b"retry" if value.isdigit():
                self.retry_s = int(value) / 1_000


class _EventConnection:
    """Receives the events of one connection after the other."""

    def __init__(self, server: _EventServer) -> None:
        self._server = server
        self._client = httpx.Client(follow_redirects=True, timeout=httpx.Timeout(_CONNECT_S, read=server.silent_s))
        self._socket: socket.socket | None = None

    def receive(self, cursor: str | None, put: Callable[[bytes, Any], bool]) -> float | None:
        parser, headers = EventParser(cursor), self._server.request_headers(cursor)
        with self._client.stream("GET", self._server.url, headers=headers) as answer:
            if answer.status_code == 204:
                return None
            if answer.status_code == 429 or answer.status_code >= 500:
                raise httpx.HTTPStatusError(
                    f"it answered {answer.status_code}", request=answer.request, response=answer
                )
            if answer.status_code != 200:
                raise SourceError(f"it answered {answer.status_code}: correct the address or the token")
            self._socket = answer.extensions["network_stream"].get_extra_info("socket")
            with suppress(httpx.ReadTimeout, httpx.RemoteProtocolError, httpx.ReadError):
                for event in parser.events(answer.iter_bytes()):
                    wanted = not self._server.events or event.kind in self._server.events
                    if wanted and not put(event.data, event.id):
                        break
        return parser.retry_s

    def close(self) -> None:
        self._client.close()

    def interrupt(self) -> None:
        if self._socket is not None:
            with suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)


class _EventReader(ReceivedJsonReader):
    """The reader of one task. Offsets count events."""

    noun = "event"

    def __init__(self, server: _EventServer, requested: RequestedColumns, read_rows: int | None, away_s: float) -> None:
        super().__init__(requested, read_rows, server.url, away_s)
        self._server = server

    def receiver(self) -> Receiver[bytes]:
        return _EventConnection(self._server)

    def letter(self, item: ReceivedItem[bytes], number: int) -> Mapping[str, Any]:
        return {"url": self._server.url, "id": item.cursor or ""}

    def place(self, item: ReceivedItem[bytes], number: int) -> str:
        return super().place(item, number) if item.cursor is None else f"event {item.cursor!r}"
