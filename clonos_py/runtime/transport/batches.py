"""Encodes record batches as frame bodies: Arrow's message format without the schema, which both ends have in the plan.

Encoding makes one contiguous copy, so that a retained frame references only its own columns. Decoding copies nothing:
the arrays point into the received buffer and keep a reference to it.

A body is not trusted, even from a peer that has proven the secret: a damaged body must neither end the process nor
yield wrong rows. Anything that the schema does not announce is refused before Arrow reads it: compressed buffers
(1.5 KB may become 32 MB), dictionaries, other messages. So a body uses no more memory than it has bytes. ``validity``
describes the checks of the arrays.
"""

from __future__ import annotations

import struct

import pyarrow as pa

from clonos_py.columns.compact import compact
from clonos_py.model.errors import CodecError
from clonos_py.runtime.transport.validity import check_batch

_CONTINUATION = 0xFFFFFFFF
_PREFIX = struct.Struct("<II")
_U16, _U32, _I32 = struct.Struct("<H"), struct.Struct("<I"), struct.Struct("<i")
_RECORD_BATCH = 3
_MESSAGE_TYPE, _MESSAGE_HEADER, _COMPRESSION = 1, 2, 3
"""Numbers of fields in Arrow's Message.fbs. The first two are fields of Message, the third of RecordBatch."""


def encode_batch(batch: pa.RecordBatch) -> pa.Buffer:
    """Encodes a batch as one message. Equal rows give equal bytes, even if the batch is a slice."""
    return compact(batch).serialize()


def pack_batch(batch: pa.RecordBatch) -> pa.Buffer:
    """Encodes a batch with its schema: the length of the schema's message, the message, then that of ``encode_batch``.
    For receivers that do not know the schema."""
    schema = batch.schema.serialize()
    return pa.py_buffer(b"".join((_U32.pack(schema.size), memoryview(schema), memoryview(encode_batch(batch)))))


def unpack_batch(body: pa.Buffer) -> pa.RecordBatch:
    """Decodes what ``pack_batch`` has encoded. Raises CodecError unless it is a valid batch of its schema."""
    try:
        (size,) = _U32.unpack_from(memoryview(body))
        start = _U32.size + size
        if start > body.size:
            raise ValueError("its schema is longer than the body")
        schema = pa.ipc.read_schema(body.slice(_U32.size, size))
    except (pa.ArrowException, struct.error, OSError, LookupError, ValueError, TypeError, MemoryError) as error:
        raise CodecError(f"a body of {body.size} bytes has no schema: {error}") from error
    return decode_batch(pa.py_buffer(bytes(memoryview(body)[start:])), schema)


def decode_batch(body: pa.Buffer, schema: pa.Schema) -> pa.RecordBatch:
    """Decodes the batch in ``body``. Raises CodecError unless it is a valid batch of ``schema`` in the format of
    ``encode_batch``."""
    try:
        _check_message(memoryview(body))
        batch = pa.ipc.read_record_batch(body, schema)
        check_batch(batch)
    except (pa.ArrowException, struct.error, OSError, LookupError, ValueError, TypeError, MemoryError) as error:
        raise CodecError(f"a body of {body.size} bytes is no batch of the edge's schema: {error}") from error
    return batch


def _check_message(body: memoryview) -> None:
    """Raises ValueError, IndexError or struct.error unless ``body`` begins with the metadata of an uncompressed record
    batch. Arrow verifies the rest of the metadata."""
    continuation, size = _PREFIX.unpack_from(body)
    if continuation != _CONTINUATION or size % 8:
        raise ValueError("it does not begin like an Arrow message")
    metadata = body[_PREFIX.size : _PREFIX.size + size]
    message = _reference(metadata, 0)
    kind = _field(metadata, message, _MESSAGE_TYPE)
    header = _field(metadata, message, _MESSAGE_HEADER)
    if not kind or metadata[kind] != _RECORD_BATCH or not header:
        raise ValueError("it is not a record batch")
    if _field(metadata, _reference(metadata, header), _COMPRESSION):
        raise ValueError("its buffers are compressed")


def _reference(metadata: memoryview, place: int) -> int:
    """The position of the table to which the reference at ``place`` points."""
    return place + int(_U32.unpack_from(metadata, place)[0])


def _field(metadata: memoryview, table: int, number: int) -> int:
    """The position of a field of the table, 0 if the table does not have it, by the rules of flatbuffers."""
    shape = table - int(_I32.unpack_from(metadata, table)[0])
    if shape < 0:
        raise ValueError("its metadata points outside of the body")
    place = 4 + 2 * number
    if place >= _U16.unpack_from(metadata, shape)[0]:
        return 0
    offset = int(_U16.unpack_from(metadata, shape + place)[0])
    return table + offset if offset else 0
