"""A server of numbered events, which keeps them: it goes on behind the id that a client names."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler

from tests.serving import served


@dataclass
class Events:
    """``data``: of each event, in order; their ids are 1, 2, ... ``each``: the server ends a connection after so many
    of them. ``statuses``: the answers to the next requests. With ``over`` it answers 204 once all are read."""

    url: str = ""
    data: list[str] = field(default_factory=list)
    each: int = 1_000
    statuses: list[int] = field(default_factory=list)
    over: bool = True
    asked: list[str | None] = field(default_factory=list)
    """The ids that clients have named."""


@contextmanager
def event_server(data: list[str], **options: object) -> Iterator[Events]:
    events = Events(data=data, **options)  # type: ignore[arg-type]

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            last = self.headers["Last-Event-ID"]
            events.asked.append(last)
            start = int(last or 0)
            if events.statuses:
                self._head(events.statuses.pop(0))
                return
            if start == len(events.data) and events.over:
                self._head(204)
                return
            self._head(200)
            self.wfile.write(b"retry: 1\n: hello\n\n")
            for number, text in list(enumerate(events.data, 1))[start : start + events.each]:
                lines = "".join(f"data: {line}\r\n" for line in text.split("\n"))
                self.wfile.write(f"id: {number}\r\n{lines}\r\n".encode())

        def _head(self, status: int) -> None:
            self.send_response(status)
            self.send_header("Content-Type", "text/event-stream")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None: ...

    with served(Handler) as address:
        events.url = f"{address}/events"
        yield events
