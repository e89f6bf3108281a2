"""How a frame lies on the wire.

    magic (4) | version (1) | kind (1) | 0 (2) | header length (4) | body length (8) | header | body

All numbers are big-endian. Header and body are opaque here: the header is the msgpack of whoever sends, the body an
Arrow record batch message without its schema. Nothing read from a socket is unpickled. Whoever breaks the format gets
a ``CodecError``, and only its own connection is closed.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

import pyarrow as pa

from clonos_py.model.errors import CodecError

MAGIC = b"clns"
VERSION = 1
_PREAMBLE = struct.Struct(">4sBBHIQ")
PREAMBLE_BYTES = _PREAMBLE.size


class Kind(IntEnum):
    """What a frame is for. Only ``DATA`` is seen by the owner of an endpoint."""

    CHALLENGE = 1
    PROOF = 2
    WELCOME = 3
    DATA = 4


@dataclass(frozen=True)
class Limits:
    """The largest frame that is taken in. Whoever has not proven the secret gets ``UNPROVEN``."""

    header_bytes_max: int = 1 << 30
    body_bytes_max: int = 1 << 30


UNPROVEN = Limits(header_bytes_max=4096, body_bytes_max=0)


class Preamble(NamedTuple):
    kind: Kind
    header_bytes: int
    body_bytes: int


class Frame(NamedTuple):
    """One frame as received. ``body`` is None where its length is 0."""

    kind: Kind
    header: bytes
    body: pa.Buffer | None


def preamble(kind: Kind, header_bytes: int, body_bytes: int) -> bytes:
    """The bytes before header and body. Raises CodecError for a header beyond 4 GiB."""
    try:
        return _PREAMBLE.pack(MAGIC, VERSION, kind, 0, header_bytes, body_bytes)
    except struct.error as error:
        raise CodecError(f"a header of {header_bytes} bytes does not fit into a frame: send it as a body") from error


def read_preamble(view: memoryview, offset: int, limits: Limits) -> Preamble:
    """The preamble at ``offset``, of which all bytes are there. Raises CodecError."""
    magic, version, kind, zero, header_bytes, body_bytes = _PREAMBLE.unpack_from(view, offset)
    if magic != MAGIC or zero != 0:
        raise CodecError(f"no frame begins with {bytes(view[offset : offset + 8])!r}: the peer speaks another protocol")
    if version != VERSION:
        raise CodecError(f"the peer sends frames of version {version}, this process reads version {VERSION}")
    if not Kind.CHALLENGE <= kind <= Kind.DATA:
        raise CodecError(f"a frame of unknown kind {kind}")
    if header_bytes > limits.header_bytes_max or body_bytes > limits.body_bytes_max:
        raise CodecError(
            f"a frame of {header_bytes} + {body_bytes} bytes exceeds the limit of "
            f"{limits.header_bytes_max} + {limits.body_bytes_max}"
        )
    return Preamble(Kind(kind), header_bytes, body_bytes)
