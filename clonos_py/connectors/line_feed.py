"""Receives lines from a TCP server in a thread, which reconnects when a connection ends.

Received lines are buffered until the task takes them. While the buffer is full, nothing is received, so the server is
slowed down.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from clonos_py.connectors.record_ends import MARK, line_records
from clonos_py.model.errors import SourceError, type_and_text

_RECEIVED_BYTES = 1 << 16
BUFFERED_BYTES = 1 << 20
LINE_BYTES_MAX = 16 << 20
_PAUSE_S_MIN, _PAUSE_S_MAX = 0.05, 2.0
_CONNECT_S_MAX = 5.0
_KEEPALIVE = {socket.TCP_KEEPIDLE: 30, socket.TCP_KEEPINTVL: 10, socket.TCP_KEEPCNT: 3}
"""Times in seconds and the number of probes: a server that does not answer for a minute counts as unreachable."""


@dataclass(frozen=True)
class LineServer:
    """The address of a server. ``away_s``: how long it may refuse connections. ``reconnect``: whether to connect again
    after it closes a connection; otherwise the lines end there. ``marks``: whether a byte order mark at the start of a
    connection is no part of the first line."""

    host: str
    port: int
    away_s: float
    reconnect: bool
    marks: bool = False

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


class LineFeed:
    """The buffer and its receiving thread, which calls ``wake`` when there are lines to take or an error to raise."""

    def __init__(self, server: LineServer, wake: Callable[[], None]) -> None:
        self._server, self._wake = server, wake
        self._changed = threading.Condition()
        self._lines = bytearray()
        """Complete lines."""
        self._unfinished = 0
        self._failure = ""
        self._ended = self._closed = False
        self._connection: socket.socket | None = None
        threading.Thread(target=self._run, name=f"lines of {server}", daemon=True).start()

    # ---- called by the task

    def take(self, bytes_max: int, lines_max: int | None) -> bytes:
        """Complete lines, at least one if there is one. Raises SourceError once all are taken and the feed has
        failed."""
        with self._changed:
            if not self._lines:
                if self._failure:
                    raise SourceError(self._failure)
                return b""
            cut = self._lines.rfind(b"\n", 0, bytes_max) + 1 or self._lines.index(b"\n") + 1
            taken = bytes(self._lines[:cut])
            if lines_max is not None and len(ends := line_records(taken, whole=True).ends) > lines_max:
                taken = taken[: ends[lines_max - 1]]
            del self._lines[: len(taken)]
            self._changed.notify_all()
            return taken

    def take_unfinished(self) -> int:
        """The number of lines dropped since the last call because a connection ended inside them."""
        with self._changed:
            found, self._unfinished = self._unfinished, 0
            return found

    @property
    def waiting(self) -> int:
        """The number of lines that can be taken."""
        with self._changed:
            return self._lines.count(b"\n")

    @property
    def ended(self) -> bool:
        """Whether all lines were taken and no more will come."""
        with self._changed:
            return self._ended and not self._lines

    def close(self) -> None:
        """Closes the connection at once; the thread ends."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            if self._connection is not None:
                with suppress(OSError):
                    self._connection.shutdown(socket.SHUT_RDWR)

    # ---- the thread

    def _run(self) -> None:
        try:
            while not self._closed and not self._ended:
                with self._connected() as connection:
                    self._receive(connection)
                self._pause(_PAUSE_S_MIN)
        except SourceError as problem:
            self._fail(str(problem))
        except Exception as problem:  # noqa: BLE001 - the waiting task must get an error
            self._fail(f"{self._server}: {type_and_text(problem)}")

    def _fail(self, failure: str) -> None:
        with self._changed:
            self._failure = failure
        self._wake()

    def _connected(self) -> socket.socket:
        """Connects to the server. Raises SourceError after it has refused connections for too long."""
        until_s, pause_s = time.monotonic() + self._server.away_s, _PAUSE_S_MIN
        while not self._closed:
            try:
                connection = socket.create_connection((self._server.host, self._server.port), _CONNECT_S_MAX)
            except OSError as problem:
                if time.monotonic() + pause_s > until_s:
                    raise SourceError(
                        f"the server {self._server} has taken no connection for {self._server.away_s:g} s ({problem}): "
                        "start it, correct host and port, or give it more time with away="
                    ) from problem
                self._pause(pause_s)
                pause_s = min(2 * pause_s, _PAUSE_S_MAX)
            else:
                return self._prepared(connection)
        return socket.socket()

    def _prepared(self, connection: socket.socket) -> socket.socket:
        connection.settimeout(None)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in _KEEPALIVE.items():
            connection.setsockopt(socket.IPPROTO_TCP, option, value)
        with self._changed:
            self._connection = connection
        return connection

    def _pause(self, seconds: float) -> None:
        with self._changed:
            if not self._closed and not self._ended:
                self._changed.wait_for(lambda: self._closed, seconds)

    def _receive(self, connection: socket.socket) -> None:
        """Receives until the connection ends. An incomplete last line is dropped, or taken if the source ends."""
        rest = bytearray()
        cut_off = False
        marks = self._server.marks
        try:
            while not self._closed and (received := connection.recv(_RECEIVED_BYTES)):
                rest += received
                if marks and MARK.startswith(rest[: len(MARK)]):
                    if len(rest) < len(MARK):
                        continue
                    del rest[: len(MARK)]
                    received = bytes(rest)
                marks = False
                if end := rest.rfind(b"\n", len(rest) - len(received)) + 1:
                    self._put(rest[:end])
                    del rest[:end]
                elif len(rest) > LINE_BYTES_MAX:
                    raise SourceError(
                        f"{self._server} has sent more than {LINE_BYTES_MAX >> 20} MiB without a line end: end each "
                        "record with one"
                    )
        except OSError:
            cut_off = True
        self._over(rest, cut_off)

    def _put(self, lines: bytearray) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._closed or len(self._lines) < BUFFERED_BYTES)
            first = not self._lines
            self._lines += lines
        if first:
            self._wake()

    def _over(self, rest: bytearray, cut_off: bool) -> None:
        with self._changed:
            self._connection = None
        if self._closed:
            return
        if self._server.reconnect:
            with self._changed:
                self._unfinished += bool(rest)
            return
        if cut_off:
            raise SourceError(
                f"the connection to {self._server} broke before the server had closed it: start the job again, or let "
                "it connect again by itself with reconnect=True"
            )
        if rest:
            self._put(rest + b"\n")
        with self._changed:
            self._ended = True
        self._wake()
