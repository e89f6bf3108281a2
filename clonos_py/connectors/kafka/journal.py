"""The journal of a causal sink: a topic with a partition for each task, which says what is out and what it depends on.

An entry is written in the transaction of its rows, so that both are visible or neither. A large one lies in several
messages that follow each other; the key of each says which of how many it is.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable

import msgspec

from clonos_py.connectors.kafka.port import (
    Failure,
    KafkaFailure,
    Message,
    MessageReader,
    Messages,
    TopicPartition,
)
from clonos_py.connectors.kafka.timing import ANSWER_S
from clonos_py.model.errors import SinkError
from clonos_py.model.ids import Attempt
from clonos_py.model.segments import LogSegment

_MESSAGE_BYTES = 500_000
_FETCH_S = 0.2
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


class JournalReader:
    """Reads a partition of the journal once, from its beginning on. ``entries``: what was read so far."""

    def __init__(self, reader: MessageReader, partition: TopicPartition, start: int) -> None:
        """``start``: the offset of the first message. Raises KafkaFailure."""
        self._reader, self._partition = reader, partition
        self._parts: list[bytes] = []
        self._start = 0
        self.entries: list[Found] = []
        reader.assign({partition: start})

    def read_to(self, offset: int) -> None:
        """All before an offset. Raises KafkaFailure, SinkError."""
        self._read_while(lambda: self._reader.position(self._partition) < offset)

    def read_until(self, claim: str) -> None:
        """All up to a claim. Raises KafkaFailure, SinkError."""
        self._read_while(lambda: not self.entries or self.entries[-1].entry.claim != claim)

    def _read_while(self, wanted: Callable[[], bool]) -> None:
        until = time.monotonic() + ANSWER_S
        while wanted():
            if time.monotonic() > until:
                text = f"{self._partition} was not read within {ANSWER_S:g} s"
                raise KafkaFailure(Failure.AWAY, text, self._partition)
            if pieces := self._reader.fetch(_FETCH_S):
                for messages in pieces:
                    self._take(messages)
                until = time.monotonic() + ANSWER_S

    def _take(self, messages: Messages) -> None:
        for offset, key, value in zip(messages.offsets, messages.keys, messages.values, strict=True):
            where = f"Kafka message {messages.partition} offset {offset}"
            if key is None or value is None or len(key) != _PART.size:
                raise _none(where)
            number, count = _PART.unpack(key)
            if number == 0:
                self._parts, self._start = [], offset
            if number != len(self._parts):
                raise _none(where)
            self._parts.append(value)
            if len(self._parts) == count:
                try:
                    self.entries.append(Found(self._start, _decode(b"".join(self._parts))))
                except msgspec.MsgspecError as problem:
                    raise _none(f"{where} ({problem})") from problem
                self._parts = []

    def close(self) -> None:
        self._reader.close()


def _none(where: str) -> SinkError:
    return SinkError(
        f"{where} is no entry of a journal: another program writes to this topic, or another version; name another "
        "journal, and start over with --fresh"
    )
