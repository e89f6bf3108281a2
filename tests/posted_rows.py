"""A server to which rows are posted: it takes those of a key once, and answers as a test has ordered."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any

from tests.serving import served


@dataclass
class Posts:
    """``ordered``: the answers to the next requests, each a status and headers; then 200. ``lost``: of so many further
    requests the rows are taken, and the connection is closed without an answer."""

    url: str = ""
    ordered: list[tuple[int, dict[str, str]]] = field(default_factory=list)
    lost: int = 0
    refused: frozenset[int] = frozenset()
    """Numbers of rows that are answered 422."""
    by_key: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    requests: list[dict[str, str]] = field(default_factory=list)
    """The headers of all requests."""
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def rows(self) -> list[dict[str, Any]]:
        with self.lock:
            return [row for rows in self.by_key.values() for row in rows]

    def answer(self, headers: dict[str, str], body: Any) -> tuple[int, dict[str, str]] | None:
        with self.lock:
            self.requests.append(headers)
            rows = body if isinstance(body, list) else [body]
            if self.ordered and self.ordered[0][0] != 200:
                return self.ordered.pop(0)
            if any(row.get("number") in self.refused for row in rows):
                return 422, {}
            self.by_key.setdefault(headers["idempotency-key"], rows)
            if self.lost:
                self.lost -= 1
                return None
            return 200, {}


@contextmanager
def posts_taken() -> Iterator[Posts]:
    taken = Posts()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            answer = taken.answer({name.lower(): value for name, value in self.headers.items()}, body)
            if answer is None:
                self.close_connection = True
                return
            self.send_response(answer[0])
            for name, value in answer[1].items():
                self.send_header(name, value)
            self.send_header("Content-Length", "4")
            self.end_headers()
            self.wfile.write(b"told")

        def log_message(self, format: str, *args: object) -> None: ...

    with served(Handler) as address:
        taken.url = f"{address}/rows"
        yield taken
