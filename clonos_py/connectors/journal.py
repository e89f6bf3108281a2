"""Journals of causal files: what determinants and which rows are out, written ahead of the rows (D16).

A journal is a sequence of records: length and digest of what follows, then the entry, msgpack-encoded. A record that
was torn by the death of its writer ends the journal. So does a damaged one: the reader compares with the rows, which
never go beyond the journal.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from io import FileIO

import msgspec
import xxhash

from clonos_py.connectors.row_files import open_regular
from clonos_py.model.errors import SinkError
from clonos_py.model.segments import LogSegment

_HEAD = struct.Struct(">IQ")


class Mark(msgspec.Struct, frozen=True, array_like=True):
    """A piece of rows: bytes [start, stop) of the epoch's file, with their digest; ``checksum`` is of the rows."""

    seq: int
    epoch: int
    start: int
    stop: int
    checksum: int
    digest: int


class JournalEntry(msgspec.Struct, frozen=True, array_like=True):
    """What was written in one go, by a job whose vertices had the parallelism that ``shape`` tells."""

    shape: str
    log: list[LogSegment]
    marks: list[Mark]


_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[JournalEntry] = msgspec.msgpack.Decoder(JournalEntry)


def add_entry(journal: FileIO, entry: JournalEntry) -> None:
    """Appends to an open journal, durably."""
    payload = _encoder.encode(entry)
    write_all(journal, _HEAD.pack(len(payload), xxhash.xxh3_64_intdigest(payload)) + payload)
    os.fdatasync(journal.fileno())


def entries(path: str) -> Iterator[JournalEntry]:
    """What a journal holds. Raises SinkError if it is of another version, or no file."""
    with open_regular(path) as file:
        content = memoryview(file.read())
    at = 0
    while at + _HEAD.size <= len(content):
        length, digest = _HEAD.unpack_from(content, at)
        at += _HEAD.size
        payload = content[at : at + length]
        if len(payload) < length or xxhash.xxh3_64_intdigest(payload) != digest:
            return
        try:
            yield _decoder.decode(payload)
        except msgspec.MsgspecError as problem:
            raise SinkError(f"{path}: cannot be read ({problem}); run the version that wrote it") from problem
        at += length


def write_all(file: FileIO, content: bytes) -> None:
    """A single write may stop short, as at a disk that is nearly full."""
    left = memoryview(content)
    while left:
        left = left[file.write(left) :]
