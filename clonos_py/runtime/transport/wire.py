"""The wire format of a frame.

    magic (4) | version (1) | kind (1) | 0 (2) | header length (4) | body length (8) | checksum of the header (4)
    | checksum of all before (4) | header | body

All numbers are big-endian. The checksums (xxHash32) detect damage in transit: with a wrong length the receiver would
wait forever, with a wrong header it would drop rows or fail. A checksum of the body, if any, is part of the header.

Header and body are opaque here: the header is msgpack of the sender, the body an Arrow record batch message without its
schema. Nothing that is read from a socket is unpickled. If a peer breaks the format, that causes a ``CodecError``, and
only its own connection is closed.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

import pyarrow as pa
import xxhash

from clonos_py.model.errors import CodecError

MAGIC = b"clns"
VERSION = 8
_PREAMBLE = struct.Struct(">4sBBHIQI")
_CHECK = struct.Struct(">I")
PREAMBLE_BYTES = _PREAMBLE.size + _CHECK.size


class WireKind(IntEnum):
    """The purpose of a frame. The owner of an endpoint gets only ``DATA`` frames."""

    CHALLENGE = 1
    PROOF = 2
    WELCOME = 3
    DATA = 4


@dataclass(frozen=True)
class Limits:
    """The largest frame that is accepted. A peer that has not proven the secret gets ``UNPROVEN``."""

    header_bytes_max: int = 1 << 30
    body_bytes_max: int = 1 << 30


UNPROVEN = Limits(header_bytes_max=4096, body_bytes_max=0)


class Preamble(NamedTuple):
    kind: WireKind
    header_bytes: int
    body_bytes: int
    header_checksum: int

    def check(self, header: bytes) -> None:
        """Raises CodecError if ``header`` is not the one that was sent."""
        if xxhash.xxh32_intdigest(header) != self.header_checksum:
            raise CodecError(f"a {self.kind.name} frame's header was damaged on its way")


class WireFrame(NamedTuple):
    """One received frame. ``body`` is None if its length is 0."""

    kind: WireKind
    header: bytes
    body: pa.Buffer | None


def preamble(kind: WireKind, header: bytes, body_bytes: int) -> bytes:
    """The bytes before header and body. Raises CodecError for a header beyond 4 GiB."""
    return announce(Preamble(kind, len(header), body_bytes, xxhash.xxh32_intdigest(header)))


def announce(head: Preamble) -> bytes:
    """The bytes before header and body, from their lengths and the header's checksum. Raises CodecError for a header
    beyond 4 GiB."""
    try:
        preamble = _PREAMBLE.pack(
            MAGIC, VERSION, head.kind, 0, head.header_bytes, head.body_bytes, head.header_checksum
        )
    except struct.error as error:
        raise CodecError(
            f"a header of {head.header_bytes} bytes does not fit into a frame: send it as a body"
        ) from error
    return preamble + _CHECK.pack(xxhash.xxh32_intdigest(preamble))


def read_preamble(view: memoryview, offset: int, limits: Limits) -> Preamble:
    """Reads the complete preamble at ``offset``. Raises CodecError."""
    magic, version, kind, zero, header_bytes, body_bytes, checksum = _PREAMBLE.unpack_from(view, offset)
    if magic != MAGIC or zero != 0:
        raise CodecError(f"no frame begins with {bytes(view[offset : offset + 8])!r}: the peer uses another protocol")
    if version != VERSION:
        raise CodecError(f"the peer sends frames of version {version}, this process reads version {VERSION}")
    check = offset + _PREAMBLE.size
    if _CHECK.unpack_from(view, check)[0] != xxhash.xxh32_intdigest(view[offset:check]):
        raise CodecError("a frame's first bytes were damaged on their way")
    if not WireKind.CHALLENGE <= kind <= WireKind.DATA:
        raise CodecError(f"a frame of unknown kind {kind}")
    if header_bytes > limits.header_bytes_max or body_bytes > limits.body_bytes_max:
        raise CodecError(
            f"a frame of {header_bytes} + {body_bytes} bytes exceeds the limit of "
            f"{limits.header_bytes_max} + {limits.body_bytes_max}"
        )
    return Preamble(WireKind(kind), header_bytes, body_bytes, checksum)
