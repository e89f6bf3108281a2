"""moto's server as S3, which can be cut off, refuse, or lose an answer, and which counts requests."""

from __future__ import annotations

import logging
import os
import socket
import threading
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NoReturn

import boto3
import pytest
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
from werkzeug.serving import make_server
from werkzeug.wsgi import get_input_stream

BUCKET = "checkpoints"
_Answer = Callable[..., Any]
_App = Callable[[dict[str, Any], _Answer], Iterable[bytes]]


@dataclass(frozen=True)
class Refusal:
    """An answer instead of that of the server, as servers of S3 send it."""

    status: int
    code: str
    message: str = "as the test has ordered"

    @property
    def body(self) -> bytes:
        return (
            '<?xml version="1.0" encoding="UTF-8"?>\n'
            f"<Error><Code>{self.code}</Code><Message>{self.message}</Message></Error>"
        ).encode()


FULL = Refusal(507, "XMinioStorageFull", "Storage backend has reached its minimum free drive threshold.")
QUOTA = Refusal(403, "QuotaExceeded", "Bucket quota exceeded")
BUSY = Refusal(503, "SlowDown", "Please reduce your request rate.")


@dataclass
class S3Server:
    """The server, and what is wrong with it now."""

    url: str = ""
    cut_off: bool = False
    """Every connection is closed without an answer."""
    refusal: Refusal | None = None
    refused: frozenset[str] = frozenset({"GET", "PUT", "POST", "DELETE", "HEAD"})
    """The methods that ``refusal`` answers."""
    compares: bool = True
    """Whether it heeds ``If-None-Match``."""
    lost_answers: int = 0
    """How many of the next creations are carried out and then answered with an error."""
    busy_answers: int = 0
    """How many of the next requests are answered with BUSY."""
    cut_off_after: int | None = None
    """After how many requests it is cut off."""
    requests: Counter[str] = field(default_factory=Counter)
    """By kind: how many requests were carried out."""
    seen: list[str] = field(default_factory=list)
    """The same requests, each with its path."""
    _creates: threading.Lock = field(default_factory=threading.Lock)
    """moto looks for an object and writes it in two steps, which S3 does in one."""

    def heal(self) -> None:
        self.cut_off, self.cut_off_after, self.refusal, self.compares = False, None, None, True
        self.lost_answers = self.busy_answers = 0
        self.refused = frozenset({"GET", "PUT", "POST", "DELETE", "HEAD"})

    @property
    def environment(self) -> Mapping[str, str]:
        """The variables with which clients find it."""
        return {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_REGION": "us-east-1",
        }

    def client(self) -> Any:
        return boto3.client(
            "s3",
            endpoint_url=self.url,
            aws_access_key_id="test",
            aws_secret_access_key="secret",
            region_name="us-east-1",
        )

    def ask_for_credentials(self, asks: bool) -> None:
        """Whether only users that the server has are let in; it has none."""
        data = b"0" if asks else b"inf"
        headers = {"Content-Type": "text/plain"}
        request = urllib.request.Request(f"{self.url}/moto-api/reset-auth", data, headers, method="POST")
        urllib.request.urlopen(request).close()

    def __call__(self, environ: dict[str, Any], start_response: _Answer, app: _App) -> Iterable[bytes]:
        """Answers a request, or does what is wrong with it."""
        method = environ["REQUEST_METHOD"]
        if environ["PATH_INFO"].startswith("/moto-api/"):
            return app(environ, start_response)
        if self.cut_off or self.cut_off_after == 0:
            _close(environ)
        if self.cut_off_after is not None:
            self.cut_off_after -= 1
        if self.busy_answers:
            self.busy_answers -= 1
            get_input_stream(environ).read()
            return _refused(BUSY, start_response)
        if self.refusal is not None and method in self.refused:
            get_input_stream(environ).read()
            return _refused(self.refusal, start_response)
        if not self.compares:
            environ.pop("HTTP_IF_NONE_MATCH", None)
        self.requests[_kind(environ)] += 1
        self.seen.append(f"{_kind(environ)} {environ['PATH_INFO']}?{environ.get('QUERY_STRING', '')}")
        if self.lost_answers and "HTTP_IF_NONE_MATCH" in environ:
            self.lost_answers -= 1
            list(app(environ, lambda *_: lambda _: None))
            return _refused(Refusal(500, "InternalError"), start_response)
        if "HTTP_IF_NONE_MATCH" in environ:
            with self._creates:
                return list(app(environ, start_response))
        return app(environ, start_response)


def _close(environ: Mapping[str, Any]) -> NoReturn:
    """Closes the connection. The server drops a request whose connection is gone without a word."""
    environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
    raise ConnectionResetError


def _refused(refusal: Refusal, start_response: _Answer) -> Iterable[bytes]:
    start_response(f"{refusal.status} Refused", [("Content-Length", str(len(refusal.body)))])
    return [refusal.body]


def _kind(environ: Mapping[str, Any]) -> str:
    match environ["REQUEST_METHOD"]:
        case "GET" if "list-type" in environ.get("QUERY_STRING", ""):
            return "list"
        case "POST" if "delete" in environ.get("QUERY_STRING", ""):
            return "delete"
        case "PUT" if "HTTP_X_AMZ_COPY_SOURCE" in environ:
            return "copy"
        case "POST":
            return "put"
        case method:
            return str(method).lower()


class _Handler(MotoRequestHandler):
    def log(self, type: str, message: str, *args: Any) -> None:
        pass


@contextmanager
def running() -> Iterator[S3Server]:
    """A server on a free port within the block, with an empty bucket."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = S3Server()
    app: _App = DomainDispatcherApplication(create_backend_app)
    http = make_server(
        "127.0.0.1",
        0,
        lambda environ, start: server(environ, start, app),
        threaded=True,
        request_handler=_Handler,
    )
    server.url = f"http://127.0.0.1:{http.server_port}"
    thread = threading.Thread(target=http.serve_forever, name="s3", daemon=True)
    thread.start()
    server.client().create_bucket(Bucket=BUCKET)
    try:
        yield server
    finally:
        http.shutdown()
        thread.join()
        http.server_close()


def use(server: S3Server, patch: pytest.MonkeyPatch) -> None:
    """Sets the variables of the environment, also for the processes that this one starts."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        patch.delenv(name)
    for name, value in server.environment.items():
        patch.setenv(name, value)
