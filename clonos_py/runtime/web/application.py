"""The web application of a run: metrics, health, and what programs and pages read of it.

Reading needs the token only if one is set. A request for another host is refused, so that no page of another site can
read the answers by a name of its own that leads here (DNS rebinding).
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import cache
from pathlib import Path
from typing import Annotated, Any, ParamSpec, TypeVar
from urllib.parse import unquote, urlsplit

import msgspec
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from clonos_py.model.errors import ClonosError, SettingError, one_line
from clonos_py.runtime.web.controls import JobControls
from clonos_py.runtime.web.job_view import JobView
from clonos_py.runtime.web.metrics import CONTENT_TYPE, JobMetrics
from clonos_py.settings.kinds import ListenAddress

P = ParamSpec("P")
R = TypeVar("R")
Endpoint = Callable[[Request], Awaitable[Response]]
_Count = Annotated[int, msgspec.Meta(ge=1)]
_POLL_S = 0.25
_KEEP_ALIVE_S = 15.0
_OPEN = frozenset({"/healthz", "/readyz", "/"})
"""Paths without a token. Kubernetes asks for health without one; the page asks its reader for the token."""
_PAGE = Path(__file__).parent / "page"
_PAGE_HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src data:; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-cache",
}


def application(
    view: JobView, metrics: JobMetrics, address: ListenAddress, token: str | None, controls: JobControls
) -> ASGIApp:
    """The application of one run. Only those who have a token may use ``controls``."""

    async def prometheus(request: Request) -> Response:
        return Response(metrics.text(), media_type=CONTENT_TYPE)

    async def healthz(request: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def readyz(request: Request) -> Response:
        reasons = view.unready()
        return PlainTextResponse("".join(f"{why}\n" for why in reasons or ["ready"]), 503 if reasons else 200)

    async def job(request: Request) -> Response:
        found = {**view.job(), "controls": controls.offered if token is not None else []}
        return Response(msgspec.json.encode(found), media_type="application/json")

    async def events(request: Request) -> Response:
        given = request.headers.get("last-event-id", request.query_params.get("after", "0"))
        if not given.isascii() or not given.isdigit():
            return JSONResponse({"error": f"{given!r} is not the number of an event"}, 400)
        headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
        return StreamingResponse(_stream(view, int(given)), media_type="text/event-stream", headers=headers)

    async def page(request: Request) -> Response:
        name = request.path_params.get("name", "index.html")
        if name not in _files():
            return PlainTextResponse("there is no such file\n", 404)
        return FileResponse(_PAGE / name, headers=_PAGE_HEADERS)

    def stop(given: _Nothing) -> tuple[int, dict[str, Any]]:
        controls.stop()
        return 202, {"stopping": True}

    def savepoint(given: _SavepointName) -> tuple[int, dict[str, Any]]:
        keep = _offered(controls.savepoint, "savepoints are kept of jobs on Ray that have a checkpoint folder")
        return 201, {"savepoint": given.name, "checkpoint": keep(given.name)}

    def rescale(given: _Tasks) -> tuple[int, dict[str, Any]]:
        begin = _offered(controls.rescale, "only a detached run changes its parallelism while it runs")
        begin(given.parallelism, given.operators)
        return 202, {"rescaling": True}

    def asked(carry_out: Callable[[Any], tuple[int, dict[str, Any]]], form: type[msgspec.Struct]) -> Endpoint:
        """An endpoint that carries out a request of this form."""

        async def endpoint(request: Request) -> Response:
            if token is None:
                return PlainTextResponse("to change the job from here, run it with web_token_file\n", 403)
            try:
                given = msgspec.json.decode(await request.body() or b"{}", type=form)
                status, answer = await run_in_threadpool(carry_out, given)
            except (msgspec.MsgspecError, UnicodeDecodeError) as error:
                return PlainTextResponse(f"{one_line(error)}\n", 400)
            except ClonosError as error:
                return PlainTextResponse(f"{one_line(error)}\n", 409)
            return JSONResponse(answer, status)

        return endpoint

    routes = [
        Route("/", page),
        Route("/page/{name}", page),
        Route("/metrics", prometheus),
        Route("/healthz", healthz),
        Route("/readyz", readyz),
        Route("/api/v1/job", job),
        Route("/api/v1/events", events),
        Route("/api/v1/stop", asked(stop, _Nothing), methods=["POST"]),
        Route("/api/v1/savepoint", asked(savepoint, _SavepointName), methods=["POST"]),
        Route("/api/v1/rescale", asked(rescale, _Tasks), methods=["POST"]),
    ]
    return _Guard(Starlette(routes=routes), address, token)


class _Nothing(msgspec.Struct):
    """A request without content."""


class _SavepointName(msgspec.Struct, forbid_unknown_fields=True):
    """``name``: under which the last complete checkpoint is kept."""

    name: str


class _Tasks(msgspec.Struct, forbid_unknown_fields=True):
    """How many tasks run each operator that asks for none, and each of these operators."""

    parallelism: _Count | None = None
    operators: dict[str, _Count] = {}

    def __post_init__(self) -> None:
        if self.parallelism is None and not self.operators:
            raise ValueError("name a parallelism, or that of an operator in operators")


def _offered(control: Callable[P, R] | None, otherwise: str) -> Callable[P, R]:
    """Raises SettingError for what the run cannot do."""
    if control is None:
        raise SettingError(otherwise)
    return control


@cache
def _files() -> frozenset[str]:
    """The names of the files of the page."""
    return frozenset(path.name for path in _PAGE.iterdir())


async def _stream(view: JobView, after: int) -> AsyncIterator[bytes]:
    """The events behind ``after``, then new ones as they come (server-sent events)."""
    quiet_s = 0.0
    while True:
        for event in view.events_after(after):
            after, quiet_s = event.number, 0.0
            yield b"id: %d\ndata: %s\n\n" % (event.number, msgspec.json.encode(event.fields))
        await asyncio.sleep(_POLL_S)
        quiet_s += _POLL_S
        if quiet_s >= _KEEP_ALIVE_S:
            quiet_s = 0.0
            yield b": nothing new\n\n"


class _Guard:
    """Refuses requests for another host, and those without the token if one is set."""

    def __init__(self, inner: ASGIApp, address: ListenAddress, token: str | None) -> None:
        self._inner, self._address, self._token = inner, address, token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and (refusal := self._refusal(Request(scope))) is not None:
            await refusal(scope, receive, send)
            return
        await self._inner(scope, receive, send)

    def _refusal(self, request: Request) -> Response | None:
        if self._address.is_loopback and not _is_here(request.headers.get("host", "")):
            return PlainTextResponse("this address answers requests to localhost only\n", 421)
        origin = request.headers.get("origin")
        if request.method != "GET" and origin is not None and urlsplit(origin).netloc != request.headers.get("host"):
            return PlainTextResponse("a page of another site may not change this job\n", 403)
        if self._token is None or request.url.path in _OPEN or request.url.path.startswith("/page/"):
            return None
        kind, _, given = request.headers.get("authorization", "").partition(" ")
        given = given.strip() if kind.lower() == "bearer" else unquote(request.cookies.get("clonos_token", ""))
        if secrets.compare_digest(given.encode(), self._token.encode()):
            return None
        return PlainTextResponse(
            "the token is missing or wrong: send the header Authorization: Bearer TOKEN\n",
            401,
            {"www-authenticate": "Bearer"},
        )


def _is_here(host: str) -> bool:
    """Whether the header Host names this machine."""
    name = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host
    return ListenAddress(name.strip("[]") or "localhost", 0).is_loopback
