"""Serves the web application of a run in a thread of the process that drives it."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from clonos_py.model.errors import SettingError
from clonos_py.model.plan import PhysicalPlan
from clonos_py.observe.events import Event, Listener
from clonos_py.runtime.stop_switch import StopSwitch
from clonos_py.settings.definitions import Settings
from clonos_py.settings.kinds import ListenAddress

_END_S = 1.0
_BACKLOG = 128
_TOKEN_CHARACTERS_MIN = 16


@contextmanager
def served(plan: PhysicalPlan, settings: Settings, listener: Listener, stop: StopSwitch) -> Iterator[Listener]:
    """The listener for the run: ``listener`` itself, or one that also tells the web server, which answers within the
    block and may request ``stop``. Raises SettingError if the server cannot be started."""
    if settings.web is None:
        yield listener
        return
    try:
        import uvicorn

        from clonos_py.runtime.web.application import application
        from clonos_py.runtime.web.job_view import JobView
        from clonos_py.runtime.web.metrics import JobMetrics
    except ImportError as error:
        raise SettingError(f"web = {settings.web} needs {error.name}: install clonos-py[web]") from error
    token = read_token(settings.web_token_file)
    view = JobView(plan, settings, datetime.now(UTC))
    metrics = JobMetrics(view)
    listening = bound(settings.web)
    with listening:
        config = uvicorn.Config(
            application(view, metrics, settings.web, token, stop.request),
            log_config=None,
            log_level="critical",
            access_log=False,
            lifespan="off",
            timeout_graceful_shutdown=0,
            server_header=False,
        )
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, name="web", daemon=True)
        thread.start()

        def listen(at_us: int, event: Event) -> None:
            view(at_us, event)
            metrics(at_us, event)
            listener(at_us, event)

        try:
            yield listen
        finally:
            server.should_exit = server.force_exit = True
            thread.join(_END_S)


def bound(address: ListenAddress) -> socket.socket:
    """A socket that listens at the address. Raises SettingError if it is taken or not of this machine."""
    try:
        family, kind, protocol, _, place = socket.getaddrinfo(
            address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listening = socket.socket(family, kind, protocol)
    except OSError as error:
        raise SettingError(f"web = {address}: {error.strerror}; name an address of this machine") from error
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(place)
        listening.listen(_BACKLOG)
    except OSError as error:
        listening.close()
        raise SettingError(
            f"web = {address}: {error.strerror}; choose another port, or an address of this machine"
        ) from error
    return listening


def read_token(path: str | None) -> str | None:
    """The token in a file, without white space around it; None without a file. Raises SettingError if there is none."""
    if path is None:
        return None
    try:
        token = Path(path).read_text(encoding="ascii").strip()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not plain text"
        raise SettingError(f"web_token_file = {path}: {reason}; name a file with the token") from error
    if len(token) < _TOKEN_CHARACTERS_MIN or any(character.isspace() for character in token):
        raise SettingError(
            f"web_token_file = {path}: a token is one word of at least {_TOKEN_CHARACTERS_MIN} characters, such as "
            "`openssl rand -hex 16` makes"
        )
    return token
