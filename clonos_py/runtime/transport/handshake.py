"""Authentication of connections: a mutual challenge and response over a secret of the job's processes. No I/O.

    acceptor                               connector
    CHALLENGE nonce A              ->
                                   <-      PROOF nonce B, MAC(connector, A, B, hello), hello
    WELCOME MAC(acceptor, A, B)    ->

Each side draws a new nonce, so that a recorded handshake proves nothing. Each MAC names its role, so that it cannot be
reflected. ``hello`` is the connector's first message, and its MAC covers it. Until the proof, the limits ``UNPROVEN``
apply, and frames of other kinds are refused.
"""

from __future__ import annotations

import hashlib
import hmac
from enum import Enum

from clonos_py.model.errors import CodecError
from clonos_py.runtime.transport.wire import WireFrame, WireKind

NONCE_BYTES = 32
_MAC_BYTES = 32


class HandshakeState(Enum):
    """The state of one side."""

    AWAITS_CHALLENGE = "awaits challenge"
    AWAITS_PROOF = "awaits proof"
    AWAITS_WELCOME = "awaits welcome"
    DONE = "done"


TRANSITIONS = {
    HandshakeState.AWAITS_CHALLENGE: (WireKind.CHALLENGE, HandshakeState.AWAITS_WELCOME),
    HandshakeState.AWAITS_PROOF: (WireKind.PROOF, HandshakeState.DONE),
    HandshakeState.AWAITS_WELCOME: (WireKind.WELCOME, HandshakeState.DONE),
}
"""By state: the only kind of frame that is accepted, and the state after it."""

Reply = tuple[WireKind, bytes]


class Handshake:
    """One side of a handshake. The caller sends the results of ``first`` and ``on_frame``."""

    def __init__(self, secret: bytes, nonce: bytes, hello: bytes | None) -> None:
        """A connector passes its ``hello``; an acceptor passes None and finds the peer's in ``hello`` when done."""
        self._secret = secret
        self._nonce = nonce
        self._peer_nonce = b""
        self.hello = hello or b""
        accepts = hello is None
        self.state = HandshakeState.AWAITS_PROOF if accepts else HandshakeState.AWAITS_CHALLENGE

    def first(self) -> Reply | None:
        """The frame that this side sends first; None for a connector."""
        return (WireKind.CHALLENGE, self._nonce) if self.state is HandshakeState.AWAITS_PROOF else None

    def on_frame(self, frame: WireFrame) -> Reply | None:
        """Takes the peer's next frame, and returns the answer, if any. Raises CodecError if it proves nothing."""
        due, after = TRANSITIONS[self.state]
        if frame.kind is not due:
            raise CodecError(f"got a {frame.kind.name} frame where {due.name} was due")
        reply = self._answer(frame.header)
        self.state = after
        return reply

    def _answer(self, payload: bytes) -> Reply | None:
        match self.state:
            case HandshakeState.AWAITS_CHALLENGE:
                return self._prove(payload)
            case HandshakeState.AWAITS_PROOF:
                return self._welcome(payload)
            case _:
                self._check(payload, b"acceptor", self._peer_nonce + self._nonce)
                return None

    def _prove(self, challenge: bytes) -> Reply:
        if len(challenge) != NONCE_BYTES:
            raise CodecError(f"a challenge of {len(challenge)} bytes instead of {NONCE_BYTES}")
        self._peer_nonce = challenge
        mac = self._mac(b"connector", challenge + self._nonce + self.hello)
        return WireKind.PROOF, self._nonce + mac + self.hello

    def _welcome(self, proof: bytes) -> Reply:
        nonce, hello = proof[:NONCE_BYTES], proof[NONCE_BYTES + _MAC_BYTES :]
        self._check(proof[NONCE_BYTES : NONCE_BYTES + _MAC_BYTES], b"connector", self._nonce + nonce + hello)
        self.hello = hello
        return WireKind.WELCOME, self._mac(b"acceptor", self._nonce + nonce)

    def _mac(self, role: bytes, payload: bytes) -> bytes:
        return hmac.digest(self._secret, role + b":" + payload, hashlib.sha256)

    def _check(self, mac: bytes, role: bytes, payload: bytes) -> None:
        if not hmac.compare_digest(mac, self._mac(role, payload)):
            raise CodecError(f"the {role.decode()} does not have the job's secret: it belongs to another job")
