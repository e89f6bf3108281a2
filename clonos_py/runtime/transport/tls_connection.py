"""A connection between nodes under TLS, with the same frames and the same handshake of the secret inside it.

Each write or read of the socket advances the TLS handshake. No frame passes before it is done. OpenSSL's memory for an
accepted connection (tens of KiB) is allocated with the peer's first bytes, not when a peer only connects.
"""

from __future__ import annotations

import errno
import socket
import ssl

from clonos_py.model.errors import CodecError
from clonos_py.runtime.transport.connection import READ_BYTES_MAX, Connection
from clonos_py.runtime.transport.handshake import Handshake
from clonos_py.runtime.transport.tls import Tls, tls_reason
from clonos_py.runtime.transport.wire import Limits

_RECORD_BYTES = 16 << 10
"""The maximum size of a TLS record. Once the secret is proven, targets have more room than that. Before, reading goes
on until OpenSSL holds no more bytes or the targets are full."""
_WRITE_BYTES = 256 << 10
"""Bytes passed to OpenSSL at once."""


class TlsConnection(Connection):
    """Encrypts what a connection sends and decrypts what it receives."""

    def __init__(
        self, number: int, sock: socket.socket, peer: str, handshake: Handshake, limits: Limits, tls: Tls
    ) -> None:
        super().__init__(number, sock, peer, handshake, limits)
        self._context = tls.acceptor if self.accepted else tls.connector
        self._secured: ssl.SSLSocket | None = None
        self._established = False

    def _ready(self) -> bool:
        if not self._established and (self._secured or not self.accepted):
            self._establish()
        return self._established

    def _establish(self) -> None:
        """Performs the next step of the TLS handshake. The socket must be connected before it is wrapped."""
        try:
            if self._secured is None:
                accepts = self.accepted
                self._secured = self._context.wrap_socket(self.sock, server_side=accepts, do_handshake_on_connect=False)
                self.sock = self._secured
            self._secured.do_handshake()
            self._established = True
        except ssl.SSLWantReadError:
            pass
        except OSError as error:
            raise self._plain_error(error) from error

    def _send(self, pieces: list[memoryview]) -> int:
        """Sends. OpenSSL requires that a write that it could not finish is repeated with the same bytes. It is, because
        the queue changes only at its end."""
        assert self._secured is not None
        try:
            return self._secured.send(_gathered(pieces))
        except OSError as error:
            raise self._plain_error(error) from error

    def _fill(self, targets: list[memoryview]) -> int:
        if not self._established:
            self._establish()
        if not self._established:
            raise BlockingIOError
        assert self._secured is not None
        rest = targets[::-1]
        room = min(sum(target.nbytes for target in targets), READ_BYTES_MAX)
        taken = 0
        try:
            # Never leaves part of a record with OpenSSL: the selector would not report it.
            while rest and (not taken or self._secured.pending() or room - taken >= _RECORD_BYTES):
                count = self._secured.recv_into(rest[-1])
                if not count:
                    break
                taken += count
                rest[-1:] = [rest[-1][count:]] if count < rest[-1].nbytes else []
        except OSError as error:
            problem = self._plain_error(error)
            if not taken or isinstance(problem, CodecError):
                raise problem from error
        return taken

    def _plain_error(self, error: OSError) -> OSError | CodecError:
        """Maps OpenSSL's errors to those of a plain socket, and to CodecError if the peer broke a rule."""
        match error:
            case ssl.SSLWantReadError() | ssl.SSLWantWriteError():
                return BlockingIOError()
            case ssl.SSLEOFError() | ssl.SSLZeroReturnError() | ssl.SSLSyscallError():
                return ConnectionResetError(errno.ECONNRESET, "the peer closed it without ending TLS")
            case ssl.SSLError():
                return CodecError(f"no TLS: {tls_reason(error)}")
            case _:
                return error


def _gathered(pieces: list[memoryview]) -> memoryview:
    """The bytes to encrypt next: part of a large piece, or several small ones, because each write makes one record."""
    if pieces[0].nbytes >= _RECORD_BYTES:
        return pieces[0][:_WRITE_BYTES]
    record = bytearray()
    for piece in pieces:
        record += piece[: _RECORD_BYTES - len(record)]
        if len(record) == _RECORD_BYTES:
            break
    return memoryview(record)
