"""A WebSocket server of numbered messages."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

from websockets.http11 import Request, Response
from websockets.sync.server import ServerConnection, serve


@dataclass
class Messages:
    """``sent``: all messages, in order. A client that has sent ``{"after": n}`` gets those behind the n-th. ``each``:
    the server closes a connection after so many of them, with ``code``. ``statuses``: the answers to the next clients,
    which are refused. With ``keeps`` false, it sends each message once only."""

    url: str = ""
    sent: list[str | bytes] = field(default_factory=list)
    each: int = 1_000
    code: int = 1000
    statuses: list[int] = field(default_factory=list)
    keeps: bool = True
    asks: bool = False
    """Whether it waits for the first message of a client."""
    asked: list[Any] = field(default_factory=list)
    """The first messages of the clients."""
    headers: list[str | None] = field(default_factory=list)
    """The header ``Authorization`` of the clients."""


@contextmanager
def message_server(sent: Sequence[str | bytes], **options: Any) -> Iterator[Messages]:
    messages = Messages(sent=list(sent), **options)

    def refuse(connection: ServerConnection, request: Request) -> Response | None:
        messages.headers.append(request.headers.get("Authorization"))
        return connection.respond(HTTPStatus(messages.statuses.pop(0)), "") if messages.statuses else None

    def handle(connection: ServerConnection) -> None:
        start = 0
        if messages.asks:
            messages.asked.append(json.loads(connection.recv()))
            start = messages.asked[-1].get("after") or 0
        for message in messages.sent[start : start + messages.each]:
            connection.send(message)
        if not messages.keeps:
            del messages.sent[start : start + messages.each]
        connection.close(messages.code)

    with serve(handle, "127.0.0.1", 0, process_request=refuse) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        messages.url = f"ws://127.0.0.1:{server.socket.getsockname()[1]}/messages"
        try:
            yield messages
        finally:
            server.shutdown()
            thread.join()
