"""Journals of causal files: write-ahead records of determinants and of rows to be written (D16).

A journal is a sequence of records: length and digest of the entry, then the entry, msgpack-encoded. Reading stops at a
record that is torn, because its writer died, or damaged. The reader compares the journal with the rows, which never go
beyond it.
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
    """A piece of rows: bytes [start, stop) of the epoch's file and their digest. ``checksum`` is that of the rows."""

    seq: int
    epoch: int
    start: int
    stop: int
    checksum: int
    digest: int


class JournalEntry(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """The log segments and marks of one write. ``shape``: the parallelism of the job's vertices at that time.
    The tag is the version of the form: version 1, which had none, named logs by the order of tasks."""

    shape: str
    log: list[LogSegment]
    marks: list[Mark]


_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[JournalEntry] = msgspec.msgpack.Decoder(JournalEntry)


def add_entry(journal: FileIO, entry: JournalEntry) -> None:
    """Appends an entry durably to an open journal."""
    payload = _encoder.encode(entry)
    write_all(journal, _HEAD.pack(len(payload), xxhash.xxh3_64_intdigest(payload)) + payload)
    os.fdatasync(journal.fileno())


def entries(path: str) -> Iterator[JournalEntry]:
    """The entries of a journal. Raises SinkError if it was written by another version, or is no regular file."""
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
    """Writes all bytes. A single write may stop early, for example on a disk that is nearly full."""
    left = memoryview(content)
    while left:
        left = left[file.write(left) :]
