"""The journal of a sink: a topic with a partition for each task, which records what is visible and what it depends on.

An entry is written in the transaction of its rows, so that both are visible or neither. A large entry is split over
consecutive messages; the key of each has its number and their count.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Sequence
from typing import Generic, NamedTuple, TypeVar

import msgspec

from clonos_py.connectors.kafka.client import (
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


class Entry(msgspec.Struct, frozen=True, array_like=True, tag="causal-2"):
    """The record of one transaction of ``attempt`` of ``operator``, in a job of this ``lineage`` and ``shape``.
    ``pieces``: sequence numbers and checksums of rows; ``log``: the new log segments that they depend on. ``fence``:
    the random name of a fence, which an attempt writes alone when it acquires the output; otherwise empty. Of two
    lineages the one with the higher ``era`` is later. The tag has the version of the form: version 1 named logs by the
    order of tasks."""

    fence: str
    era: int
    operator: str
    lineage: str
    shape: str
    attempt: Attempt
    epoch: int
    log: list[LogSegment]
    pieces: list[tuple[int, int]]


class PartKey(NamedTuple):
    """Identifies a part of the rows that a task (see the journal's partition) has prepared for a checkpoint."""

    lineage: str
    checkpoint: int
    number: int


class WrittenPart(msgspec.Struct, frozen=True, array_like=True, tag="transactional"):
    """A part that is visible, and the checksum of its rows. ``fence``: as in ``Entry``."""

    fence: str
    operator: str
    key: PartKey
    checksum: int


E = TypeVar("E")


class Found(NamedTuple, Generic[E]):
    """An entry and the offset of its first message."""

    offset: int
    entry: E


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Entry | WrittenPart).decode


def messages_of(entry: Entry | WrittenPart, partition: TopicPartition) -> list[Message]:
    """The messages of an entry."""
    content = _encode(entry)
    parts = [content[at : at + _MESSAGE_BYTES] for at in range(0, len(content), _MESSAGE_BYTES)]
    return [
        Message(partition.topic, part, _PART.pack(number, len(parts)), partition.partition)
        for number, part in enumerate(parts)
    ]


class JournalReader:
    """Reads a partition of the journal once, from its beginning, into ``entries`` and ``parts``."""

    def __init__(self, reader: MessageReader, partition: TopicPartition, operator: str, start: int) -> None:
        """``operator``: the only operator whose entries may be in the journal. ``start``: the offset of the first
        message. Raises KafkaFailure."""
        self._reader, self._partition, self._operator = reader, partition, operator
        self._pending: list[bytes] = []
        self._start = 0
        self._last_fence = ""
        self.entries: list[Found[Entry]] = []
        self.parts: list[Found[WrittenPart]] = []
        reader.assign({partition: start})

    def read_to(self, offset: int) -> None:
        """Reads all entries before an offset. Raises KafkaFailure, SinkError."""
        self._read_while(lambda: self._reader.position(self._partition) < offset)

    def read_until(self, fence: str) -> None:
        """Reads all entries up to a fence. Raises KafkaFailure, SinkError."""
        self._read_while(lambda: self._last_fence != fence)

    def _read_while(self, reading: Callable[[], bool]) -> None:
        until = time.monotonic() + ANSWER_S
        while reading():
            if time.monotonic() > until:
                text = f"{self._partition} was not read within {ANSWER_S:g} s"
                raise KafkaFailure(Failure.AWAY, text, self._partition)
            if pieces := self._fetched():
                for messages in pieces:
                    self._take(messages)
                until = time.monotonic() + ANSWER_S

    def _fetched(self) -> Sequence[Messages]:
        try:
            return self._reader.fetch(_FETCH_S)
        except KafkaFailure as failure:
            raise failure.about(f"journal {self._partition}") from None

    def _take(self, messages: Messages) -> None:
        for offset, key, value in zip(messages.offsets, messages.keys, messages.values, strict=True):
            where = f"Kafka message {messages.partition} offset {offset}"
            if key is None or value is None or len(key) != _PART.size:
                raise _none(where)
            number, count = _PART.unpack(key)
            if number == 0:
                self._pending, self._start = [], offset
            if number != len(self._pending):
                raise _none(where)
            self._pending.append(value)
            if len(self._pending) == count:
                self._add(b"".join(self._pending), where)
                self._pending = []

    def _add(self, content: bytes, where: str) -> None:
        try:
            entry = _decode(content)
        except msgspec.MsgspecError as problem:
            raise _none(f"{where} ({problem})") from problem
        if entry.operator != self._operator:
            raise SinkError(
                f"the journal {self._partition.topic!r} is that of operator {entry.operator!r}, too: give each sink "
                "another"
            )
        self._last_fence = entry.fence or self._last_fence
        if isinstance(entry, Entry):
            self.entries.append(Found(self._start, entry))
        elif not entry.fence:
            self.parts.append(Found(self._start, entry))

    def close(self) -> None:
        self._reader.close()


def _none(where: str) -> SinkError:
    return SinkError(
        f"{where} is not a journal entry: another program writes to this topic, or another version; name another "
        "journal, and start over with --fresh"
    )
