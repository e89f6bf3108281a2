"""The event loop of the data plane: listens, connects, reads and writes for one process, in one thread.

The owner calls ``poll`` again and again and gets events; everything but ``wake`` must be called by that one thread.
What ``send`` queues is written by the next ``poll``, many small frames in one system call. A connection that breaks the
wire format, the handshake or a limit is closed with a logged reason, and no other one notices. TCP is bound to the
node's own address, the Unix-domain socket lies in a folder of its own (D18).
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

from clonos_py.model.errors import ClusterError, CodecError
from clonos_py.runtime.transport.address import Address
from clonos_py.runtime.transport.connection import Connection, PeerClosed
from clonos_py.runtime.transport.events import Accepted, Closed, Connected, Drained, Received, TransportEvent
from clonos_py.runtime.transport.handshake import NONCE_BYTES, Handshake
from clonos_py.runtime.transport.tls import Tls
from clonos_py.runtime.transport.tls_connection import TlsConnection
from clonos_py.runtime.transport.wire import Limits

_LOG = logging.getLogger("clonos_py.transport")
_BACKLOG = 512
HANDSHAKE_S = 5.0
"""A new connection has so long to prove the secret."""

Body = bytes | bytearray | memoryview | pa.Buffer


class Endpoint:
    """The sockets of one process. ``address`` is what others pass to ``connect``."""

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
        """Listens at ``host`` (the node's own address) and in ``folder``. Processes that give the same ``node`` share
        a file system and meet on Unix-domain sockets; with ``tls``, all others are refused without it. Raises
        ClusterError where it cannot listen."""
        self._secret = secret
        self._node = node
        self._limits = limits or Limits()
        self._tls = tls
        self._clock = clock
        self._selector = selectors.DefaultSelector()
        self._connections: dict[int, Connection] = {}
        self._unproven: dict[int, float] = {}
        self._dirty: dict[int, Connection] = {}
        self._events: list[TransportEvent] = []
        self._next = 0
        tcp = _listen_tcp(host)
        path = folder / f"{os.getpid():x}-{secrets.token_hex(4)}"
        self._listeners = [tcp, _listen_unix(path)]
        for listener in self._listeners:
            self._selector.register(listener, selectors.EVENT_READ, listener)
        self.address = str(Address(node, str(path), host, tcp.getsockname()[1]))
        self._waker, self._woken = socket.socketpair()
        self._waker.setblocking(False)
        self._woken.setblocking(False)
        self._wake_pending = False
        self._selector.register(self._woken, selectors.EVENT_READ, self._woken)

    def connect(self, address: str, hello: bytes) -> int:
        """Begins to connect; ``Connected`` or ``Closed`` will tell. Frames may be queued at once."""
        where = Address.parse(address)
        family, target = where.target(self._node)
        sock = socket.socket(family, socket.SOCK_STREAM)
        handshake = Handshake(self._secret, secrets.token_bytes(NONCE_BYTES), hello)
        connection = self._add(sock, address, handshake)
        try:
            sock.connect(target)
        except BlockingIOError:
            if family == socket.AF_UNIX:
                self._fail(connection, f"{address} has too many connections waiting")
            else:
                connection.connecting = True
                self._selector.modify(sock, selectors.EVENT_WRITE, connection)
        except OSError as error:
            self._fail(connection, f"{address} cannot be reached: {error.strerror}")
        else:
            self._dirty[connection.number] = connection
        return connection.number

    def send(self, connection: int, header: bytes, bodies: Sequence[Body] = ()) -> None:
        """Queues a frame whose body is the concatenation of ``bodies``; they must not change any more. Frames to a
        connection that is closed are dropped: its ``Closed`` is on the way."""
        if found := self._connections.get(connection):
            found.queue(header, [memoryview(body).cast("B") for body in bodies])
            self._dirty[connection] = found

    def unsent_bytes(self, connection: int) -> int:
        """How many bytes wait for the peer to read; 0 for one that is closed."""
        found = self._connections.get(connection)
        return found.unsent_bytes if found else 0

    def close_connection(self, connection: int) -> None:
        """Closes it for good, unsent and unread bytes dropped. Nothing more is told of it."""
        if found := self._connections.get(connection):
            self._remove(found)
        self._events = [event for event in self._events if event.connection != connection]

    def close(self) -> None:
        """Closes everything."""
        for connection in list(self._connections.values()):
            self._remove(connection)
        for listener in self._listeners:
            listener.close()
        Path(Address.parse(self.address).path).unlink(missing_ok=True)
        self._waker.close()
        self._woken.close()
        self._selector.close()

    def wake(self) -> None:
        """Makes a ``poll`` that waits, or else the next one, return at once. May be called by any thread, also after
        ``close``."""
        if not self._wake_pending:
            self._wake_pending = True
            with suppress(OSError):
                self._waker.send(b"!")

    def poll(self, timeout_s: float | None) -> list[TransportEvent]:
        """Writes what is queued, waits for something to happen (None: without limit), and tells what did."""
        for connection in list(self._dirty.values()):
            if not connection.connecting:
                self._guard(connection, self._write)
        self._dirty.clear()
        if self._unproven:
            self._expire()
            timeout_s = HANDSHAKE_S if timeout_s is None else min(HANDSHAKE_S, timeout_s)
        if self._events:
            timeout_s = 0
        for key, mask in self._selector.select(timeout_s):
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
            self._woken.recv(64)  # before the flag: a byte taken after it would leave the flag up for good
            self._wake_pending = False
        else:
            self._accept(what)

    def _accept(self, listener: socket.socket) -> None:
        try:
            sock, peer = listener.accept()
        except OSError as error:
            _LOG.warning("a connection could not be accepted: %s", error)
            return
        name = f"{peer[0]}:{peer[1]}" if isinstance(peer, tuple) else "a process of this node"
        connection = self._add(sock, name, Handshake(self._secret, secrets.token_bytes(NONCE_BYTES), None))
        self._dirty[connection.number] = connection

    def _add(self, sock: socket.socket, peer: str, handshake: Handshake) -> Connection:
        self._next += 1
        connection: Connection
        if self._tls and sock.family != socket.AF_UNIX:
            connection = TlsConnection(self._next, sock, peer, handshake, self._limits, self._tls)
        else:
            connection = Connection(self._next, sock, peer, handshake, self._limits)
        self._connections[connection.number] = connection
        self._unproven[connection.number] = self._clock() + HANDSHAKE_S
        self._selector.register(sock, selectors.EVENT_READ, connection)
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
        del self._unproven[number]
        hello = connection.handshake.hello
        self._events.append(Accepted(number, hello) if connection.accepted else Connected(number))

    def _write(self, connection: Connection) -> None:
        if connection.connecting:
            connection.finish_connecting()
            self._selector.modify(connection.sock, selectors.EVENT_READ, connection)
        waits = not connection.write()
        if waits == connection.waits_to_write:
            return
        connection.waits_to_write = waits
        wanted = selectors.EVENT_READ | selectors.EVENT_WRITE if waits else selectors.EVENT_READ
        self._selector.modify(connection.sock, wanted, connection)
        if not waits:
            self._events.append(Drained(connection.number))

    def _guard(self, connection: Connection, act: Callable[[Connection], None]) -> None:
        try:
            act(connection)
        except CodecError as error:
            _LOG.warning("closed the connection with %s: %s", connection.peer, error)
            self._fail(connection, str(error))
        except PeerClosed as error:
            self._fail(connection, str(error))

    def _expire(self) -> None:
        now = self._clock()
        for number in [number for number, until in self._unproven.items() if until <= now]:
            connection = self._connections[number]
            _LOG.warning("closed the connection with %s: the secret was not proven in time", connection.peer)
            self._fail(connection, f"{connection.peer} did not prove the secret in time")

    def _fail(self, connection: Connection, reason: str) -> None:
        """Closes it; the owner is told unless it never heard of it."""
        known = connection.proven or not connection.accepted
        self._remove(connection)
        if known:
            self._events.append(Closed(connection.number, reason))

    def _remove(self, connection: Connection) -> None:
        del self._connections[connection.number]
        self._unproven.pop(connection.number, None)
        self._dirty.pop(connection.number, None)
        self._selector.unregister(connection.sock)
        connection.sock.close()


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
