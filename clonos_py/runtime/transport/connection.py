"""One socket of an endpoint: the handshake first, then frames in both directions. It never blocks."""

from __future__ import annotations

import os
import socket

from clonos_py.model.errors import CodecError
from clonos_py.runtime.transport.handshake import Handshake, HandshakeState
from clonos_py.runtime.transport.inbound import STAGING_BYTES_UNPROVEN, Inbound
from clonos_py.runtime.transport.outbound import Outbound
from clonos_py.runtime.transport.wire import UNPROVEN, Limits, WireFrame, WireKind

SILENCE_S = 20
"""A TCP connection is broken if the other host acknowledges nothing for this time."""
_SOCKET_BUFFER_BYTES = 1 << 20
READ_BYTES_MAX = 4 << 20
"""Bytes read from one connection per turn, so that none starves the others."""


class PeerClosed(Exception):
    """The peer has closed the connection, or it broke."""


class Connection:
    """State and queues of one socket. Its methods raise CodecError if the peer broke a rule, and PeerClosed if it is
    gone. The endpoint then closes the connection."""

    def __init__(self, number: int, sock: socket.socket, peer: str, handshake: Handshake, limits: Limits) -> None:
        """The endpoint sets ``connecting`` (the socket is not connected yet) and ``waits_to_write`` (the system took
        less than was queued)."""
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
        """Called when the socket becomes writable for the first time: it is connected or has failed. Raises PeerClosed
        if it has failed."""
        self.connecting = False
        if error := self.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            raise PeerClosed(f"{self.peer} cannot be reached: {os.strerror(error)}")

    def write(self) -> bool:
        """Sends as much as the system takes. Returns whether all is sent."""
        try:
            while self._ready() and (pieces := self._outbound.pieces()):
                self._outbound.advance(self._send(pieces))
        except BlockingIOError:
            return False
        except OSError as error:
            raise PeerClosed(f"the connection with {self.peer} was lost: {error.strerror}") from error
        return True

    def read(self) -> list[WireFrame]:
        """Returns the data frames that have arrived. Answers handshake frames itself (``write`` sends the answers)."""
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
        """Reads into ``targets``. Returns the number of bytes, 0 if there are none now."""
        try:
            count = self._fill(targets)
        except BlockingIOError:
            return 0
        except OSError as error:
            raise PeerClosed(f"the connection with {self.peer} was lost: {error.strerror}") from error
        if count == 0:
            raise PeerClosed(f"{self.peer} closed the connection")
        return count

    def _ready(self) -> bool:
        """Whether the socket takes frames. If not, it will after a ``read``."""
        return True

    def _send(self, pieces: list[memoryview]) -> int:
        """Sends, and returns how many bytes the system took. Raises OSError."""
        return self.sock.sendmsg(pieces)

    def _fill(self, targets: list[memoryview]) -> int:
        """Reads, and returns the number of bytes, 0 at the end of the stream. Raises OSError."""
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
    """Makes the connection break after ``SILENCE_S`` without acknowledgements, with unsent data or without: the host
    has vanished (power, a cable, a firewall). The system's own timeout is a quarter of an hour."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    options = {"TCP_USER_TIMEOUT": SILENCE_S * 1_000, "TCP_KEEPIDLE": SILENCE_S // 2, "TCP_KEEPINTVL": 2}
    for name, value in options.items():
        if (option := getattr(socket, name, None)) is not None:
            sock.setsockopt(socket.IPPROTO_TCP, option, value)
