"""Encodes and decodes frames and acknowledgements for connections of the transport."""

from __future__ import annotations

from typing import Any

import msgspec
import pyarrow as pa
import xxhash

from clonos_py.channel.frames import Frame, FrameHeader, FrameKind
from clonos_py.columns.page_samples import LARGE_BYTES, sample
from clonos_py.link.instructions import Acknowledgement
from clonos_py.model.errors import CodecError
from clonos_py.runtime.transport.batches import decode_batch, encode_batch, pack_batch, unpack_batch

_header_encoder = msgspec.msgpack.Encoder()
_header_decoder: msgspec.msgpack.Decoder[FrameHeader] = msgspec.msgpack.Decoder(FrameHeader)
_ack_decoder: msgspec.msgpack.Decoder[Acknowledgement] = msgspec.msgpack.Decoder(Acknowledgement)


class WireCodec:
    """The codec of the in-flight log. It holds frames in the form in which they are sent: one Arrow message each."""

    def encode(self, rows: pa.RecordBatch) -> pa.Buffer:
        return encode_batch(rows)

    def pack(self, rows: pa.RecordBatch) -> pa.Buffer:
        return pack_batch(rows)

    def message(self, body: pa.Buffer) -> pa.Buffer:
        return body

    def body(self, message: pa.Buffer, schema: pa.Schema) -> pa.Buffer:
        """The message itself: the receiver validates it like any frame."""
        return message

    def size_bytes(self, body: pa.Buffer) -> int:
        return body.size

    def checksum(self, body: pa.Buffer, sampled: bool) -> int:
        return _checksum(body, sampled)


def encode_header(header: FrameHeader) -> bytes:
    return _header_encoder.encode(header)


def encode_ack(acknowledgement: Acknowledgement) -> bytes:
    return _header_encoder.encode(acknowledgement)


def decode_ack(data: bytes) -> Acknowledgement:
    """Decodes an acknowledgement. Raises CodecError if ``data`` is none."""
    try:
        return _ack_decoder.decode(data)
    except (msgspec.MsgspecError, ValueError) as problem:
        raise CodecError(f"an acknowledgement cannot be read: {problem}") from problem


def _checksum(body: pa.Buffer, sampled: bool) -> int:
    if not sampled or body.size < LARGE_BYTES:
        return xxhash.xxh3_64_intdigest(memoryview(body))
    hashed = xxhash.xxh3_64(seed=body.size)
    for part in sample(body):
        hashed.update(part)
    return hashed.intdigest()


def decode_frame(
    data: bytes, body: pa.Buffer | None, schema: pa.Schema, rows_max: int, verify: bool, sampled: bool
) -> tuple[FrameHeader, Frame]:
    """Decodes a header and its frame of at most ``rows_max`` rows. The limit is needed because columns without content,
    such as nulls, can announce any number of rows. ``verify``: compare the body with the header's checksum, which is
    worth its cost if a network lies between. ``sampled``: whether the sender's checksum is sampled. Raises
    CodecError."""
    header = _header(data)
    if verify and body is not None and header.checksum and _checksum(body, sampled) != header.checksum:
        raise CodecError(f"frame {header.seq} was damaged on its way")
    rows = _rows(header, body, schema, rows_max)
    return header, header.frame(rows)


def decode_feed(data: bytes, body: pa.Buffer | None) -> tuple[FrameHeader, Any]:
    """Decodes a part of a feed: its header, and the rows of a chunk or else the body. Raises CodecError."""
    header = _header(data)
    if not header.kind.of_feed:
        raise CodecError(f"a feed brings a frame of kind {header.kind.name}")
    return header, unpack_batch(body) if body is not None and header.kind is FrameKind.FEED_CHUNK else body


def _header(data: bytes) -> FrameHeader:
    try:
        return _header_decoder.decode(data)
    except (msgspec.MsgspecError, ValueError, RecursionError) as problem:
        raise CodecError(f"a frame's header cannot be read: {problem}") from problem


def _rows(header: FrameHeader, body: pa.Buffer | None, schema: pa.Schema, rows_max: int) -> pa.RecordBatch | None:
    if not 0 <= header.rows <= rows_max:
        raise CodecError(
            f"frame {header.seq} announces {header.rows} rows; frames of this edge have {rows_max} at most"
        )
    if body is None:
        if header.rows:
            raise CodecError(f"frame {header.seq} announces {header.rows} rows and has none")
        return None
    rows = decode_batch(body, schema)
    if rows.num_rows != header.rows:
        raise CodecError(f"frame {header.seq} announces {header.rows} rows and has {rows.num_rows}")
    return rows
