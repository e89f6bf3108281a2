"""The interface of the connectors to a Kafka client library.

Clients raise no errors other than ``KafkaFailure``. All calls of one object come from one thread.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple, Protocol

from clonos_py.connectors.kafka.timing import HOLD_MS, TRANSACTION_S

Headers = Sequence[tuple[str, bytes | None]]


class TopicPartition(NamedTuple):
    """A partition of a topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}[{self.partition}]"


class Failure(Enum):
    """What a failed request means for the caller."""

    AWAY = "the broker does not answer"
    """Brokers are unreachable, or change leaders: the same request may succeed later. It has had no effect."""
    UNKNOWN_OUTCOME = "the transaction may have been committed or not"
    FENCED = "another producer has the same transactional id"
    EXPIRED = "the offset no longer exists"
    REFUSED = "the broker refuses"
    """Any other error: the same request will fail again."""


class KafkaFailure(Exception):
    """A failed request. ``kind``: how the caller can react. The text is the client's, in one line, without secrets."""

    def __init__(self, kind: Failure, text: str, partition: TopicPartition | None = None) -> None:
        super().__init__(text)
        self.kind, self.partition = kind, partition

    def about(self, what: str) -> KafkaFailure:
        """The same failure with ``what`` before its text."""
        return KafkaFailure(self.kind, f"{what}: {self}", self.partition)


@dataclass(frozen=True)
class Security:
    """Kafka's security settings: ``protocol`` is PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL, ``mechanism`` PLAIN,
    SCRAM-SHA-256 or SCRAM-SHA-512. Secrets never appear in texts."""

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
    """Messages of one partition, in the order of their offsets, as parallel columns. Offsets may have gaps: control
    records, aborted transactions and compaction."""

    partition: TopicPartition
    offsets: Sequence[int]
    timestamps_ms: Sequence[int]
    keys: Sequence[bytes | None]
    values: Sequence[bytes | None]
    headers: Sequence[Headers]

    def each(self, change: Callable[[Sequence[Any]], Sequence[Any]]) -> Messages:
        """The messages with ``change`` applied to every column that is filled."""
        columns: list[Any] = [change(column) if len(column) else column for column in self[1:]]
        return Messages(self.partition, *columns)

    def and_then(self, later: Messages) -> Messages:
        """These messages, followed by later ones of the same partition."""
        columns: list[Any] = [[*column, *more] for column, more in zip(self[1:], later[1:], strict=True)]
        return Messages(self.partition, *columns)


class Fields(NamedTuple):
    """The columns of ``Messages`` that a reader fills besides offsets and values; the others are empty."""

    keys: bool = False
    timestamps: bool = False
    headers: bool = False


class Message(NamedTuple):
    """A message to write. With ``partition`` None, the key selects the partition as in Java's producer (murmur2);
    without a key it is any partition."""

    topic: str
    value: bytes | None
    key: bytes | None = None
    partition: int | None = None
    timestamp_ms: int | None = None
    headers: Headers = ()


class MessageReader(Protocol):
    """Reads committed messages of assigned partitions, without a consumer group."""

    def assign(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Replaces the assigned partitions; each is read from its offset."""
        ...

    def pause(self, partitions: Sequence[TopicPartition]) -> None:
        """Stops fetching these partitions until ``resume``. Messages that were fetched before may still be returned."""
        ...

    def resume(self, partitions: Sequence[TopicPartition]) -> None: ...

    def fetch(self, wait_s: float) -> Sequence[Messages]:
        """The messages that have arrived; waits up to ``wait_s`` for the first one."""
        ...

    def position(self, partition: TopicPartition) -> int:
        """The offset to fetch next. It is past the last returned message, and past any following records that are never
        returned, as far as the client has seen them."""
        ...

    def close(self) -> None: ...


class MessageWriter(Protocol):
    """Writes messages with the guarantees of an idempotent producer (``acks=all``, no duplicates, in order)."""

    def write(self, messages: Sequence[Message]) -> None:
        """Queues messages to be sent soon. Blocks while the client's buffer is full."""
        ...

    def flush(self) -> None:
        """Waits until the broker has acknowledged all messages."""
        ...

    def close(self) -> None:
        """Closes without waiting; raises nothing."""
        ...


class TransactionalWriter(MessageWriter, Protocol):
    """Writes in transactions under a stable id."""

    def connect(self, topic: str) -> None:
        """Connects to the cluster within a few seconds: later calls take less time. The id remains with its owner."""
        ...

    def acquire(self) -> None:
        """Takes over the id. An earlier producer can commit nothing more. Its open transaction is aborted, or committed
        if its commit had begun."""
        ...

    def begin(self) -> None: ...

    def commit(self) -> None:
        """Makes all messages since ``begin`` visible. After ``UNKNOWN_OUTCOME`` and ``FENCED`` this writer cannot be
        used any more; after other failures call ``abort``."""
        ...

    def abort(self) -> None: ...


class Topic(NamedTuple):
    """A topic. ``id`` changes if it is deleted and created again."""

    id: str
    partitions: int


class Place(Enum):
    """A place in a partition. Where a place is expected, a time in milliseconds also stands for one: the first message
    that is not older."""

    EARLIEST = "earliest"
    LATEST = "latest"


class Admin(Protocol):
    """Administrative requests: topics, settings and offsets."""

    def topics(self, names: Sequence[str]) -> Mapping[str, Topic]:
        """Those of the topics that exist."""
        ...

    def settings(self, topic: str) -> Mapping[str, str]:
        """The settings of a topic, such as ``cleanup.policy``."""
        ...

    def create(self, topic: str, partitions: int, settings: Mapping[str, str]) -> None:
        """Creates a topic with the cluster's default number of replicas, unless it exists."""
        ...

    def add_partitions(self, topic: str, partitions: int) -> None:
        """Adds partitions up to this number, if there are fewer."""
        ...

    def offsets(self, partitions: Sequence[TopicPartition], place: Place | int) -> Mapping[TopicPartition, int]:
        """The offsets of a place. ``LATEST`` is after the last committed message; so is a time after all messages."""
        ...

    def committed(self, group: str, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        """The offsets that the consumer group has committed for these partitions."""
        ...

    def commit(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Commits offsets for a consumer group without members."""
        ...

    def delete_before(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Deletes the records of each partition before its offset."""
        ...

    def close(self) -> None: ...


class Client(Protocol):
    """A client library, connected to one cluster."""

    def reader(self, fields: Fields, hold_ms: int = HOLD_MS) -> MessageReader:
        """``hold_ms``: how long a broker delays its answer while it has no messages."""
        ...

    def writer(self) -> MessageWriter: ...

    def transactional_writer(self, transactional_id: str, timeout_s: float = TRANSACTION_S) -> TransactionalWriter:
        """``timeout_s``: the broker aborts a transaction that is open for longer."""
        ...

    def admin(self) -> Admin: ...
