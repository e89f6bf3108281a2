"""The sockets that peers connect to: TCP at the node's own address, Unix-domain in a folder of its own (D18).

When the system has no descriptor or no memory for another connection, listening pauses: peers wait in the system's
queue, existing connections go on, and no time is spent on attempts that fail.
"""

from __future__ import annotations

import logging
import selectors
import socket
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from clonos_py.model.errors import ClusterError

_LOG = logging.getLogger("clonos_py.transport")
_BACKLOG = 512
PAUSE_S = 0.2
"""The pause after a failed attempt to accept."""


class Listeners:
    """Both listening sockets, registered with ``selector`` except during a pause."""

    def __init__(self, selector: selectors.BaseSelector, host: str, path: Path, clock: Callable[[], float]) -> None:
        """Raises ClusterError if it cannot listen."""
        self._selector, self._path, self._clock = selector, path, clock
        tcp = _listen_tcp(host)
        self._sockets = [tcp, _listen_unix(path)]
        self.port = int(tcp.getsockname()[1])
        self._resume_at: float | None = None
        self._reported = False
        self._register()

    def accept(self, listener: socket.socket) -> tuple[socket.socket, str] | None:
        """The next connection and the name of its peer; None if there is none now."""
        if self._resume_at is not None:
            return None
        try:
            sock, peer = listener.accept()
        except (BlockingIOError, ConnectionAbortedError, InterruptedError):
            return None
        except OSError as error:
            self.pause(error)
            return None
        return sock, f"{peer[0]}:{peer[1]}" if isinstance(peer, tuple) else "a process of this node"

    def accepted(self) -> None:
        """A connection was added. The next failure is logged again."""
        self._reported = False

    def pause(self, error: OSError) -> None:
        """Pauses: the system lacks a resource for a new connection."""
        if not self._reported:
            _LOG.warning(
                "no connection can be accepted: %s; existing connections stay open, and it is tried again every %s s; "
                "if there are too many open files, raise their limit (ulimit -n)",
                error.strerror,
                PAUSE_S,
            )
            self._reported = True
        if self._resume_at is None:
            for listener in self._sockets:
                self._selector.unregister(listener)
        self._resume_at = self._clock() + PAUSE_S

    def resume(self) -> None:
        """Listens again if a pause is over."""
        if self._resume_at is not None and self._resume_at <= self._clock():
            self._resume_at = None
            self._register()

    def wait_s(self) -> float | None:
        """The time to the end of the pause; None if there is no pause."""
        return None if self._resume_at is None else max(0.0, self._resume_at - self._clock())

    def close(self) -> None:
        """Closes both sockets and removes the path."""
        for listener in self._sockets:
            listener.close()
        with suppress(FileNotFoundError):
            self._path.unlink()

    def _register(self) -> None:
        for listener in self._sockets:
            self._selector.register(listener, selectors.EVENT_READ, listener)


def _listen_unix(path: Path) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.bind(str(path))
    except OSError as error:
        raise ClusterError(f"cannot open the socket {path}: {error}; choose another folder for sockets") from error
    return _listening(listener)


def _listen_tcp(host: str) -> socket.socket:
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    try:
        listener.bind((host, 0))
    except OSError as error:
        raise ClusterError(f"cannot listen at {host}: {error}; is it the address of this node?") from error
    return _listening(listener)


def _listening(listener: socket.socket) -> socket.socket:
    listener.listen(_BACKLOG)
    listener.setblocking(False)
    return listener
