"""The journal of a causal sink: a topic with a partition for each task, which says what is out and what it depends on.

An entry is written in the transaction of its rows, so that both are visible or neither. A large one lies in several
messages that follow each other; the key of each says which of how many it is.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence

import msgspec

from clonos_py.connectors.kafka.port import Message, Messages, TopicPartition
from clonos_py.model.errors import SinkError
from clonos_py.model.ids import Attempt
from clonos_py.model.segments import LogSegment

_MESSAGE_BYTES = 500_000
_PART = struct.Struct(">II")


class Entry(msgspec.Struct, frozen=True, array_like=True):
    """What ``attempt`` of ``operator``, of a job of this ``lineage`` and ``shape``, has written at once: ``pieces`` are
    numbers and checksums of rows, ``log`` what they depend on and is new. ``claim`` is the random name of a claim,
    which is written alone, and else empty. Of two lineages the one whose ``era`` is higher came later."""

    claim: str
    era: int
    operator: str
    lineage: str
    shape: str
    attempt: Attempt
    epoch: int
    log: list[LogSegment]
    pieces: list[tuple[int, int]]


class Found(msgspec.Struct, frozen=True):
    """An entry and the offset of its first message."""

    offset: int
    entry: Entry


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Entry).decode


def messages_of(entry: Entry, partition: TopicPartition) -> list[Message]:
    """The messages of an entry."""
    content = _encode(entry)
    parts = [content[at : at + _MESSAGE_BYTES] for at in range(0, len(content), _MESSAGE_BYTES)]
    return [
        Message(partition.topic, part, _PART.pack(number, len(parts)), partition.partition)
        for number, part in enumerate(parts)
    ]


def entries_in(pieces: Sequence[Messages]) -> Iterator[Found]:
    """All entries. Raises SinkError for what is none."""
    parts: list[bytes] = []
    start = 0
    for messages in pieces:
        for offset, key, value in zip(messages.offsets, messages.keys, messages.values, strict=True):
            where = f"Kafka message {messages.partition} offset {offset}"
            if key is None or value is None or len(key) != _PART.size:
                raise _none(where)
            number, count = _PART.unpack(key)
            if number == 0:
                parts, start = [], offset
            if number != len(parts):
                raise _none(where)
            parts.append(value)
            if len(parts) == count:
                try:
                    yield Found(start, _decode(b"".join(parts)))
                except msgspec.MsgspecError as problem:
                    raise _none(f"{where} ({problem})") from problem
                parts = []


def _none(where: str) -> SinkError:
    return SinkError(
        f"{where} is no entry of a journal: another program writes to this topic, or another version; name another "
        "journal, and start over with --fresh"
    )
