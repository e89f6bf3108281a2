"""Serves the web application of a run in a thread of the process that drives it."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from clonos_py.model.errors import SettingError
from clonos_py.model.plan import PhysicalPlan
from clonos_py.observe.events import Event, Listener
from clonos_py.runtime.stop_switch import StopSwitch
from clonos_py.runtime.web.controls import JobControls
from clonos_py.settings.definitions import Runtime, Settings
from clonos_py.settings.kinds import ListenAddress

if TYPE_CHECKING:  # a run without an address does not import it
    from clonos_py.runtime.web.job_view import JobView

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
    from clonos_py.runtime.web.job_view import JobView

    controls = JobControls(
        stop.request, _savepoints(plan.job, settings.namespace) if _keeps_savepoints(settings) else None
    )
    with serving(JobView(plan, settings, datetime.now(UTC)), listener, controls) as told:
        yield told


def _keeps_savepoints(settings: Settings) -> bool:
    return settings.runtime is Runtime.RAY and settings.checkpoints is not None


def _savepoints(job: str, namespace: str) -> Callable[[str], int]:
    def keep(name: str) -> int:
        from clonos_py.runtime.ray.asking import keep_savepoint
        from clonos_py.runtime.ray.cluster import JobName

        return keep_savepoint(JobName(job, namespace), name)

    return keep


@contextmanager
def serving(view: JobView, listener: Listener, controls: JobControls) -> Iterator[Listener]:
    """What ``served`` does, for a view that its caller reads, too: the listener tells the view before ``listener``,
    also where the settings name no address."""
    if (address := view.settings.web) is None:
        yield _in_turn(view, listener)
        return
    try:
        import uvicorn

        from clonos_py.runtime.web.application import application
        from clonos_py.runtime.web.metrics import JobMetrics
    except ImportError as error:
        raise SettingError(f"web = {address} needs {error.name}: install clonos-py[web]") from error
    token = read_token(view.settings.web_token_file)
    metrics = JobMetrics(view)
    listening = bound(address)
    with listening:
        config = uvicorn.Config(
            application(view, metrics, address, token, controls),
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
        try:
            yield _in_turn(view, metrics, listener)
        finally:
            server.should_exit = server.force_exit = True
            thread.join(_END_S)


def _in_turn(*listeners: Listener) -> Listener:
    def listen(at_us: int, event: Event) -> None:
        for listener in listeners:
            listener(at_us, event)

    return listen


def bound(address: ListenAddress) -> socket.socket:
    """A socket that listens at the address. Raises SettingError if it is taken or not of this machine."""
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    try:
        return socket.create_server((address.host, address.port), family=family, backlog=_BACKLOG)
    except OSError as error:
        raise SettingError(
            f"web = {address}: {error.strerror}; choose another port, or an address of this machine"
        ) from error


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
