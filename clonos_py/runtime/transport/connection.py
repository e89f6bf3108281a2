"""One socket of an endpoint: handshake first, then frames both ways, never blocking."""

from __future__ import annotations

import os
import socket

from clonos_py.model.errors import CodecError
from clonos_py.runtime.transport.handshake import Handshake, HandshakeState
from clonos_py.runtime.transport.inbound import STAGING_BYTES_UNPROVEN, Inbound
from clonos_py.runtime.transport.outbound import Outbound
from clonos_py.runtime.transport.wire import UNPROVEN, Limits, WireFrame, WireKind

SILENCE_S = 20
"""A TCP connection whose other host acknowledges nothing for so long is broken."""
_SOCKET_BUFFER_BYTES = 1 << 20
READ_BYTES_MAX = 4 << 20
"""Read per turn from one connection, so that none starves the others."""


class PeerClosed(Exception):
    """The peer has closed the connection, or it broke."""


class Connection:
    """State and queues of one socket. Its methods raise CodecError where the peer broke a rule and PeerClosed where
    it is gone; the endpoint then closes it."""

    def __init__(self, number: int, sock: socket.socket, peer: str, handshake: Handshake, limits: Limits) -> None:
        """``connecting`` and ``waits_to_write`` are the endpoint's: whether the socket is not yet connected, and
        whether the system took less than was queued."""
        self.number = number
        self.sock = sock
        self.peer = peer
        self.handshake = handshake
        first = handshake.first()
        self.connecting = False
        self.waits_to_write = False
        self.accepted = first is not None
        self._limits = limits
        self._inbound = Inbound(UNPROVEN, STAGING_BYTES_UNPROVEN)
        self._outbound = Outbound()
        self._early: list[tuple[bytes, list[memoryview]]] = []
        _tune(sock)
        if first:
            self._outbound.add(*first)

    @property
    def proven(self) -> bool:
        """Whether the peer has proven the secret."""
        return self.handshake.state is HandshakeState.DONE

    @property
    def unsent_bytes(self) -> int:
        return self._outbound.unsent_bytes

    def queue(self, header: bytes, bodies: list[memoryview]) -> None:
        """Queues a data frame; ``write`` sends it once the handshake is done."""
        if self.proven:
            self._outbound.add(WireKind.DATA, header, bodies)
        else:
            self._early.append((header, bodies))

    def finish_connecting(self) -> None:
        """The socket has become writable for the first time: it is connected or has failed."""
        self.connecting = False
        if error := self.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            raise PeerClosed(f"{self.peer} cannot be reached: {os.strerror(error)}")

    def write(self) -> bool:
        """Sends what the system takes; whether all is sent."""
        try:
            while self._ready() and (pieces := self._outbound.pieces()):
                self._outbound.advance(self._send(pieces))
        except BlockingIOError:
            return False
        except OSError as error:
            raise PeerClosed(f"{self.peer} broke off: {error.strerror}") from error
        return True

    def read(self) -> list[WireFrame]:
        """The data frames that have arrived. Handshake frames are answered here (``write`` sends the answer)."""
        frames: list[WireFrame] = []
        taken = 0
        while taken < READ_BYTES_MAX:
            targets = self._inbound.targets()
            try:
                count = self._receive(targets)
            except PeerClosed:
                if not frames:
                    raise
                break
            self._inbound.advance(count)
            self._take(frames)
            taken += count
            if count < sum(target.nbytes for target in targets):
                break
        return frames

    def _take(self, frames: list[WireFrame]) -> None:
        while frame := self._inbound.next_frame():
            if not self.proven:
                self._shake_hands(frame)
            elif frame.kind is WireKind.DATA:
                frames.append(frame)
            else:
                raise CodecError(f"a {frame.kind.name} frame after the handshake")

    def _receive(self, targets: list[memoryview]) -> int:
        """Bytes read, 0 if there are none now."""
        try:
            count = self._fill(targets)
        except BlockingIOError:
            return 0
        except OSError as error:
            raise PeerClosed(f"{self.peer} broke off: {error.strerror}") from error
        if count == 0:
            raise PeerClosed(f"{self.peer} closed the connection")
        return count

    def _ready(self) -> bool:
        """Whether the socket takes frames; if not, it will after a ``read``."""
        return True

    def _send(self, pieces: list[memoryview]) -> int:
        """How many bytes the system took. Raises OSError."""
        return self.sock.sendmsg(pieces)

    def _fill(self, targets: list[memoryview]) -> int:
        """How many bytes were there, 0 at the end. Raises OSError."""
        return self.sock.recvmsg_into(targets)[0]

    def _shake_hands(self, frame: WireFrame) -> None:
        if reply := self.handshake.on_frame(frame):
            self._outbound.add(*reply)
        if self.proven:
            self._inbound.trust(self._limits)
            for header, bodies in self._early:
                self._outbound.add(WireKind.DATA, header, bodies)
            self._early.clear()


def _tune(sock: socket.socket) -> None:
    sock.setblocking(False)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SOCKET_BUFFER_BYTES)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _SOCKET_BUFFER_BYTES)
    if sock.family in (socket.AF_INET, socket.AF_INET6):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        _notice_silence(sock)


def _notice_silence(sock: socket.socket) -> None:
    """A host that vanished without a word (power, a cable, a firewall) acknowledges nothing: the connection breaks
    after ``SILENCE_S``, with unsent data or without. The system's own patience is a quarter of an hour."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    options = {"TCP_USER_TIMEOUT": SILENCE_S * 1_000, "TCP_KEEPIDLE": SILENCE_S // 2, "TCP_KEEPINTVL": 2}
    for name, value in options.items():
        if (option := getattr(socket, name, None)) is not None:
            sock.setsockopt(socket.IPPROTO_TCP, option, value)
