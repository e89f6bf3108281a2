"""What the connectors ask of a Kafka client library.

Clients raise ``KafkaFailure`` and nothing else. All calls of one object come from one thread.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple, Protocol

from clonos_py.connectors.kafka.timing import HOLD_MS, TRANSACTION_S

Headers = Sequence[tuple[str, bytes | None]]


class TopicPartition(NamedTuple):
    """Names a partition of the cluster."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}[{self.partition}]"


class Failure(Enum):
    """What a failed request means to the caller."""

    AWAY = "the broker does not answer"
    """Brokers cannot be reached, or are about to change leaders: the same request may succeed later. Nothing of it
    has happened."""
    UNKNOWN_OUTCOME = "the transaction may have been committed or not"
    FENCED = "another producer has the same transactional id"
    EXPIRED = "the offset is not there any more"
    REFUSED = "the broker refuses"
    """Whatever else: the same request will fail again."""


class KafkaFailure(Exception):
    """``kind``: what the caller can do about it. The text is the client's, in one line, without secrets."""

    def __init__(self, kind: Failure, text: str, partition: TopicPartition | None = None) -> None:
        super().__init__(text)
        self.kind, self.partition = kind, partition

    def about(self, what: str) -> KafkaFailure:
        """The same, which says what it is about."""
        return KafkaFailure(self.kind, f"{what}: {self}", self.partition)


@dataclass(frozen=True)
class Security:
    """As Kafka's settings of these names: ``protocol`` is PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL, ``mechanism``
    PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512. Secrets never appear in texts."""

    protocol: str = "PLAINTEXT"
    mechanism: str | None = None
    username: str | None = field(default=None, repr=False)
    password: str | None = field(default=None, repr=False)
    ca_file: str | None = None
    certificate_file: str | None = None
    key_file: str | None = None
    key_password: str | None = field(default=None, repr=False)


@dataclass(frozen=True)
class ClusterConnection:
    """How to reach a cluster. ``bootstrap``: ``HOST:PORT[,HOST:PORT...]``."""

    bootstrap: str
    security: Security = Security()


class Messages(NamedTuple):
    """Messages of one partition, in the order of their offsets, as parallel columns. Between neighbours there may be
    gaps: of control records, of aborted transactions, and where the topic was compacted."""

    partition: TopicPartition
    offsets: Sequence[int]
    timestamps_ms: Sequence[int]
    keys: Sequence[bytes | None]
    values: Sequence[bytes | None]
    headers: Sequence[Headers]

    def each(self, change: Callable[[Sequence[Any]], Sequence[Any]]) -> Messages:
        """With every column that is filled changed alike."""
        columns: list[Any] = [change(column) if len(column) else column for column in self[1:]]
        return Messages(self.partition, *columns)

    def and_then(self, later: Messages) -> Messages:
        """These and those that come after them in the same partition."""
        columns: list[Any] = [[*column, *more] for column, more in zip(self[1:], later[1:], strict=True)]
        return Messages(self.partition, *columns)


class Fields(NamedTuple):
    """Which columns of ``Messages`` a reader fills, besides offsets and values; others are empty."""

    keys: bool = False
    timestamps: bool = False
    headers: bool = False


class Message(NamedTuple):
    """To be written. ``partition`` None: by the key as Java's producer does (murmur2), without a key any."""

    topic: str
    value: bytes | None
    key: bytes | None = None
    partition: int | None = None
    timestamp_ms: int | None = None
    headers: Headers = ()


class MessageReader(Protocol):
    """Reads committed messages of assigned partitions; no consumer group takes part."""

    def assign(self, offsets: Mapping[TopicPartition, int]) -> None:
        """From now on these partitions, each from its offset on."""
        ...

    def pause(self, partitions: Sequence[TopicPartition]) -> None:
        """Fetches nothing more of them until ``resume``. Some that was fetched may still be given."""
        ...

    def resume(self, partitions: Sequence[TopicPartition]) -> None: ...

    def fetch(self, wait_s: float) -> Sequence[Messages]:
        """What has come, waiting so long for the first of it."""
        ...

    def position(self, partition: TopicPartition) -> int:
        """The offset that is fetched next: behind the last message that was given, and behind what it was followed by
        and is never given, as far as the client has seen it."""
        ...

    def close(self) -> None: ...


class MessageWriter(Protocol):
    """Writes messages with all guarantees of an idempotent producer (``acks=all``, no duplicates, in order)."""

    def write(self, messages: Sequence[Message]) -> None:
        """Hands messages over; they are sent soon. Blocks while the client has as much as it may hold."""
        ...

    def flush(self) -> None:
        """Until the broker has all."""
        ...

    def close(self) -> None:
        """Does not wait, and raises nothing."""
        ...


class TransactionalWriter(MessageWriter, Protocol):
    """Writes in transactions under a stable id."""

    def claim(self) -> None:
        """Takes the id over: an earlier producer can commit nothing more, and what it left open is aborted, or
        committed if it had begun to be."""
        ...

    def begin(self) -> None: ...

    def commit(self) -> None:
        """All that was written since ``begin`` becomes visible. After ``UNKNOWN_OUTCOME`` and ``FENCED`` this writer
        is of no more use; after other failures ``abort``."""
        ...

    def abort(self) -> None: ...


class Topic(NamedTuple):
    """``id`` changes when a topic is deleted and made again."""

    id: str
    partitions: int


class Place(Enum):
    """Where in a partition; a time in milliseconds is one, too: the first message that is not older."""

    EARLIEST = "earliest"
    LATEST = "latest"


class Admin(Protocol):
    """Asks and changes what is not messages."""

    def topics(self, names: Sequence[str]) -> Mapping[str, Topic]:
        """Those of ``names`` that there are."""
        ...

    def settings(self, topic: str) -> Mapping[str, str]:
        """Those of a topic, as ``cleanup.policy``."""
        ...

    def create(self, topic: str, partitions: int, settings: Mapping[str, str]) -> None:
        """With as many replicas as the cluster's default. Nothing if there is one already."""
        ...

    def add_partitions(self, topic: str, partitions: int) -> None:
        """Until there are so many; where there are, nothing is done."""
        ...

    def offsets(self, partitions: Sequence[TopicPartition], place: Place | int) -> Mapping[TopicPartition, int]:
        """``LATEST`` is behind the last message that is committed. For a time behind all messages: the same."""
        ...

    def committed(self, group: str, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Those of the partitions that the consumer group has committed."""
        ...

    def commit(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Stores offsets under the name of a group that has no members."""
        ...

    def delete_before(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Deletes the records of each partition before its offset."""
        ...

    def close(self) -> None: ...


class Client(Protocol):
    """A client library, connected to one cluster."""

    def reader(self, fields: Fields, hold_ms: int = HOLD_MS) -> MessageReader:
        """``hold_ms``: so long a broker holds its answer back while it has nothing."""
        ...

    def writer(self) -> MessageWriter: ...

    def transactional_writer(self, transactional_id: str, timeout_s: float = TRANSACTION_S) -> TransactionalWriter:
        """``timeout_s``: after so long the broker aborts a transaction that was not ended."""
        ...

    def admin(self) -> Admin: ...
