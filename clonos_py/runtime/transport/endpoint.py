"""The event loop of the data plane: listens, connects, reads and writes for one process, in one thread.

The owner calls ``poll`` in a loop and gets events. Only that thread may call the methods, except ``wake``. ``send``
queues frames, and the next ``poll`` writes them, many small frames in one system call. A connection that breaks the
wire format, the handshake or a limit is closed with a logged reason; other connections are not affected. ``listeners``
and ``strangers`` limit the resources that peers without the secret can use.
"""

from __future__ import annotations

import logging
import os
import secrets
import selectors
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import pyarrow as pa

from clonos_py.model.errors import CodecError
from clonos_py.runtime.transport.address import Address
from clonos_py.runtime.transport.connection import Connection, PeerClosed
from clonos_py.runtime.transport.events import Accepted, Closed, PeerConnected, QueueEmptied, Received, TransportEvent
from clonos_py.runtime.transport.handshake import NONCE_BYTES, Handshake
from clonos_py.runtime.transport.listeners import Listeners
from clonos_py.runtime.transport.strangers import RefusalLog, Strangers
from clonos_py.runtime.transport.tls import Tls
from clonos_py.runtime.transport.tls_connection import TlsConnection
from clonos_py.runtime.transport.wire import Limits

_LOG = logging.getLogger("clonos_py.transport")

Body = bytes | bytearray | memoryview | pa.Buffer


class Endpoint:
    """The sockets of one process. Other processes pass its ``address`` to ``connect``."""

    def __init__(
        self,
        secret: bytes,
        node: str,
        host: str,
        folder: Path,
        limits: Limits | None = None,
        tls: Tls | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Listens at ``host`` (the node's own address) and in ``folder``. Processes with the same ``node`` share a file
        system and connect over Unix-domain sockets. ``tls``: all other connections must use it. Raises ClusterError if
        it cannot listen."""
        self._secret = secret
        self._node = node
        self._limits = limits or Limits()
        self._tls = tls
        self._selector = selectors.DefaultSelector()
        self._connections: dict[int, Connection] = {}
        self._strangers = Strangers(clock)
        self._refusals = RefusalLog(clock)
        self._dirty: dict[int, Connection] = {}
        self._events: list[TransportEvent] = []
        self._next = 0
        path = folder / f"{os.getpid():x}-{secrets.token_hex(4)}"
        self._listeners = Listeners(self._selector, host, path, clock)
        self.address = str(Address(node, str(path), host, self._listeners.port))
        self._waker, self._woken = socket.socketpair()
        self._waker.setblocking(False)
        self._woken.setblocking(False)
        self._wake_pending = False
        self._selector.register(self._woken, selectors.EVENT_READ, self._woken)

    def connect(self, address: str, hello: bytes) -> int:
        """Begins to connect. The result is a ``PeerConnected`` or ``Closed`` event. Frames may be queued at once."""
        where = Address.parse(address)
        family, target = where.target(self._node)
        handshake = Handshake(self._secret, secrets.token_bytes(NONCE_BYTES), hello)
        try:
            connection = self._add(socket.socket(family, socket.SOCK_STREAM), address, handshake)
        except OSError as error:
            self._next += 1
            self._events.append(Closed(self._next, f"{address} cannot be reached: {error.strerror}"))
            return self._next
        try:
            connection.sock.connect(target)
        except BlockingIOError:
            if family == socket.AF_UNIX:
                self._fail(connection, f"{address} has too many connections waiting")
            else:
                connection.connecting = True
                self._selector.modify(connection.sock, selectors.EVENT_WRITE, connection)
        except OSError as error:
            self._fail(connection, f"{address} cannot be reached: {error.strerror}")
        else:
            self._dirty[connection.number] = connection
        return connection.number

    def send(self, connection: int, header: bytes, bodies: Sequence[Body] = ()) -> None:
        """Queues a frame whose body is the concatenation of ``bodies``; they must not change any more. Frames to a
        closed connection are dropped: ``poll`` has returned its ``Closed`` event, or will."""
        if found := self._connections.get(connection):
            found.queue(header, [memoryview(body).cast("B") for body in bodies])
            self._dirty[connection] = found

    def unsent_bytes(self, connection: int) -> int:
        """The number of bytes that wait to be sent; 0 for a closed connection."""
        found = self._connections.get(connection)
        return found.unsent_bytes if found else 0

    def close_connection(self, connection: int) -> None:
        """Closes a connection, and drops its unsent and unread bytes. It causes no more events."""
        if found := self._connections.get(connection):
            self._remove(found)
        self._events = [event for event in self._events if event.connection != connection]

    def close(self) -> None:
        """Closes everything."""
        for connection in list(self._connections.values()):
            self._remove(connection)
        self._listeners.close()
        self._waker.close()
        self._woken.close()
        self._selector.close()

    def wake(self) -> None:
        """Makes the waiting ``poll``, or else the next one, return at once. May be called by any thread, also after
        ``close``."""
        if not self._wake_pending:
            self._wake_pending = True
            with suppress(OSError):
                self._waker.send(b"!")

    def poll(self, timeout_s: float | None) -> list[TransportEvent]:
        """Writes queued frames, waits for events for up to ``timeout_s`` (None: without limit), and returns them."""
        for connection in list(self._dirty.values()):
            if not connection.connecting:
                self._guard(connection, self._write)
        self._dirty.clear()
        self._close_overdue()
        self._listeners.resume()
        waits = (timeout_s, self._strangers.wait_s(), self._listeners.wait_s(), 0 if self._events else None)
        for key, mask in self._selector.select(min((wait for wait in waits if wait is not None), default=None)):
            self._serve(key.data, mask)
        events, self._events = self._events, []
        return events

    def _serve(self, what: Connection | socket.socket, mask: int) -> None:
        if isinstance(what, Connection):
            if mask & selectors.EVENT_WRITE:
                self._guard(what, self._write)
            if mask & selectors.EVENT_READ and what.number in self._connections:
                self._guard(what, self._read)
        elif what is self._woken:
            self._woken.recv(64)  # first: after the reset it could take a later wake's byte, whose flag then stays set
            self._wake_pending = False
        else:
            self._accept(what)

    def _accept(self, listener: socket.socket) -> None:
        if (accepted := self._listeners.accept(listener)) is None:
            return
        try:
            connection = self._add(*accepted, Handshake(self._secret, secrets.token_bytes(NONCE_BYTES), None))
        except OSError as error:
            self._listeners.pause(error)
            return
        self._listeners.accepted()
        self._dirty[connection.number] = connection

    def _add(self, sock: socket.socket, peer: str, handshake: Handshake) -> Connection:
        """Adds a connection. Raises OSError if the system has no resources for it; the socket is closed then."""
        self._next += 1
        connection: Connection
        try:
            if self._tls and sock.family != socket.AF_UNIX:
                connection = TlsConnection(self._next, sock, peer, handshake, self._limits, self._tls)
            else:
                connection = Connection(self._next, sock, peer, handshake, self._limits)
            self._selector.register(sock, selectors.EVENT_READ, connection)
        except OSError:
            sock.close()
            raise
        self._connections[connection.number] = connection
        self._strangers.add(connection)
        return connection

    def _read(self, connection: Connection) -> None:
        was_proven = connection.proven
        frames = connection.read()
        if not was_proven:
            self._dirty[connection.number] = connection
            if connection.proven:
                self._prove(connection)
        number = connection.number
        self._events += [Received(number, frame.header, frame.body) for frame in frames]

    def _prove(self, connection: Connection) -> None:
        number = connection.number
        self._strangers.remove(connection)
        hello = connection.handshake.hello
        self._events.append(Accepted(number, hello) if connection.accepted else PeerConnected(number))

    def _write(self, connection: Connection) -> None:
        if connection.connecting:
            connection.finish_connecting()
            self._selector.modify(connection.sock, selectors.EVENT_READ, connection)
        waits = not connection.write()
        if waits == connection.waits_to_write:
            return
        connection.waits_to_write = waits
        events = selectors.EVENT_READ | selectors.EVENT_WRITE if waits else selectors.EVENT_READ
        self._selector.modify(connection.sock, events, connection)
        if not waits:
            self._events.append(QueueEmptied(connection.number))

    def _guard(self, connection: Connection, act: Callable[[Connection], None]) -> None:
        try:
            act(connection)
        except CodecError as error:
            self._refuse(connection, str(error))
        except PeerClosed as error:
            self._fail(connection, str(error))

    def _close_overdue(self) -> None:
        for overdue in self._strangers.overdue():
            self._refuse(overdue.connection, overdue.reason)

    def _refuse(self, connection: Connection, reason: str) -> None:
        """Closes a connection whose peer broke a rule or missed a deadline, and logs the reason."""
        if connection.accepted and not connection.proven:
            self._refusals.note(connection.peer, reason)
        else:
            _LOG.warning("closed the connection with %s: %s", connection.peer, reason)
        self._fail(connection, reason)

    def _fail(self, connection: Connection, reason: str) -> None:
        """Closes a connection. The owner gets ``Closed``, unless it never had an event of the connection."""
        known = connection.proven or not connection.accepted
        self._remove(connection)
        if known:
            self._events.append(Closed(connection.number, reason))

    def _remove(self, connection: Connection) -> None:
        del self._connections[connection.number]
        self._strangers.remove(connection)
        self._dirty.pop(connection.number, None)
        self._selector.unregister(connection.sock)
        connection.sock.close()
