"""The client that uses confluent-kafka, a binding of librdkafka."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import AbstractContextManager, contextmanager, suppress
from operator import attrgetter, methodcaller
from typing import Any, TypeVar

from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Producer,
    TopicCollection,
)
from confluent_kafka import TopicPartition as Assigned
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    ConfigResource,  # pyright: ignore[reportPrivateImportUsage]
    NewPartitions,  # pyright: ignore[reportPrivateImportUsage]
    NewTopic,  # pyright: ignore[reportPrivateImportUsage]
    OffsetSpec,  # pyright: ignore[reportPrivateImportUsage]
)

from clonos_py.connectors.kafka.client import (
    Admin,
    ClusterConnection,
    Failure,
    Fields,
    KafkaFailure,
    Message,
    MessageReader,
    Messages,
    MessageWriter,
    Place,
    Topic,
    TopicPartition,
    TransactionalWriter,
)
from clonos_py.connectors.kafka.library import (
    FETCHED,
    REFUSALS_MAX,
    Cause,
    Failures,
    LibraryWriter,
    security_settings,
)
from clonos_py.connectors.kafka.timing import ANSWER_S, HOLD_MS, LINGER_MS, RETRY_MS, TRANSACTION_S
from clonos_py.model.errors import one_line

T = TypeVar("T")

_BUFFERED_KIB = 16 << 10
_POLL_S = 0.02
_LEADER_CHANGES = {
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.UNKNOWN_LEADER_EPOCH,
}
"""What a broker answers about a partition that has just been created or moved, until the cluster's metadata agree. The
library retries then when it reads and writes, but not when it lists offsets."""
_CONNECTED_S = 2.0
"""How long to wait for the first connection of a writer that has no messages yet."""
_TRIES, _TRY_S = 4, 0.1
"""How often to acquire a transactional id with a new client, and how long to wait for an answer. The broker refuses
until it has ended the transaction that an earlier attempt has left open, which takes some milliseconds. The library
retries after half a second, or gives up; a new client tries at once. After these, the last client goes on."""
_RETRIABLE = {
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._TRANSPORT,
    KafkaError._RESOLVE,
    KafkaError._TIMED_OUT,
    KafkaError._NOENT,  # no leader is known yet
    KafkaError._TIMED_OUT_QUEUE,
    KafkaError._MSG_TIMED_OUT,
    KafkaError.UNKNOWN,  # a broker failed internally; the outcome of the request is unknown
    KafkaError.REQUEST_TIMED_OUT,
    KafkaError.BROKER_NOT_AVAILABLE,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.OFFSET_NOT_AVAILABLE,
    KafkaError.KAFKA_STORAGE_ERROR,
    KafkaError.CONCURRENT_TRANSACTIONS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.NOT_COORDINATOR,
    KafkaError.NETWORK_EXCEPTION,
    KafkaError.NOT_ENOUGH_REPLICAS,
    KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
}
_NOT_ACCEPTED = {KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED, KafkaError._SSL}
_ALERT = "SSL alert number"
"""A broker that does not accept the client's certificate says so after the handshake of TLS 1.3. The library reports it
with the code of any lost connection, so the text of OpenSSL is all there is."""
_QUEUED_MAX = 100_000
"""The most messages in the queue of a writer."""
_QUEUED_BYTES_MAX, _MESSAGE_BYTES = 512 << 20, 512
"""Half of the most bytes in that queue, which messages that are written together stay below; and about what the library
adds to each."""
_TOGETHER = 10_000
"""The most messages of one call."""
_PURGED = {KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT}
"""The errors of the remaining messages of a failed transaction."""
_FENCED = {KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH, KafkaError._FATAL}
"""_FATAL comes from a writer that had a fatal error before; only a new writer recovers from it."""
_EXPIRED = {KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE}


_SECURITY = {
    "protocol": "security.protocol",
    "mechanism": "sasl.mechanism",
    "username": "sasl.username",
    "password": "sasl.password",
    "ca_file": "ssl.ca.location",
    "certificate_file": "ssl.certificate.location",
    "key_file": "ssl.key.location",
    "key_password": "ssl.key.password",
}


def failure(error: KafkaError, partition: TopicPartition | None = None) -> KafkaFailure:
    """Maps an error of the library to a ``KafkaFailure``."""
    code = error.code()
    if code in _FENCED:
        kind = Failure.FENCED
    elif code in _EXPIRED:
        kind = Failure.EXPIRED
    elif code in _RETRIABLE or error.retriable():
        kind = Failure.AWAY
    else:
        kind = Failure.REFUSED
    return KafkaFailure(kind, one_line(f"{error.str()} [{error.code()} {error.name()}]"), partition)


def _with_a_leader(request: Callable[[], T]) -> T:
    """Repeats a request while a partition has no known leader. Raises KafkaException."""
    until = time.monotonic() + ANSWER_S
    while True:
        try:
            return request()
        except KafkaException as problem:
            if problem.args[0].code() not in _LEADER_CHANGES or time.monotonic() > until:
                raise
        time.sleep(_POLL_S)


class FastClient:
    """Implements ``client.Client``."""

    def __init__(self, connection: ClusterConnection) -> None:
        self._failures = Failures(KafkaException, lambda problem: failure(problem.args[0]))
        self._settings: dict[str, Any] = {
            "error_cb": self._on_error,
            "bootstrap.servers": connection.bootstrap,
            "log_level": 0,
            "socket.nagle.disable": True,
            "topic.metadata.propagation.max.ms": 2_000,
            "retry.backoff.ms": RETRY_MS,
            "retry.backoff.max.ms": RETRY_MS,
            "reconnect.backoff.ms": RETRY_MS * 50,
            "reconnect.backoff.max.ms": 1_000,
            **security_settings(connection, _SECURITY),
        }

    def _on_error(self, error: KafkaError) -> None:
        """The library calls this for errors in the background, while a part of the client waits."""
        if error.code() in _NOT_ACCEPTED or (error.code() == KafkaError._TRANSPORT and _ALERT in error.str()):
            cause = Cause.REFUSED
        else:
            late = error.code() in (KafkaError._ALL_BROKERS_DOWN, KafkaError._TIMED_OUT)
            cause = Cause.TIMED_OUT if late else Cause.LOST
        self._failures.note(cause, error.str())

    def reader(self, fields: Fields, hold_ms: int = HOLD_MS) -> MessageReader:
        return _FastReader(self._settings, self._failures, fields, hold_ms)

    def writer(self) -> MessageWriter:
        return _FastWriter(self._settings, self._failures)

    def transactional_writer(self, transactional_id: str, timeout_s: float = TRANSACTION_S) -> TransactionalWriter:
        return _FastTransactionalWriter(self._settings, self._failures, transactional_id, timeout_s)

    def admin(self) -> Admin:
        return _FastAdmin(self._settings, self._failures)


# ---- reading


class _FastReader:
    def __init__(self, settings: Mapping[str, Any], failures: Failures, fields: Fields, hold_ms: int) -> None:
        self._failures, self._fields = failures, fields
        self._positions: dict[TopicPartition, int] = {}
        with self._failures.raised():
            self._consumer = Consumer(
                {
                    **settings,
                    "group.id": "clonos",  # the library requires one; no group is joined
                    "enable.auto.commit": False,
                    "enable.auto.offset.store": False,
                    "enable.partition.eof": True,
                    "auto.offset.reset": "error",
                    "isolation.level": "read_committed",
                    "fetch.wait.max.ms": hold_ms,
                    "fetch.queue.backoff.ms": 5,
                    "queued.max.messages.kbytes": _BUFFERED_KIB,
                }
            )

    def assign(self, offsets: Mapping[TopicPartition, int]) -> None:
        self._positions = dict(offsets)
        with self._failures.raised():
            self._consumer.assign([Assigned(*partition, offset) for partition, offset in offsets.items()])

    def pause(self, partitions: Sequence[TopicPartition]) -> None:
        with self._failures.raised():
            self._consumer.pause([Assigned(*partition) for partition in partitions])

    def resume(self, partitions: Sequence[TopicPartition]) -> None:
        with self._failures.raised():
            self._consumer.resume([Assigned(*partition) for partition in partitions])

    def fetch(self, wait_s: float) -> Sequence[Messages]:
        with self._failures.raised():
            first = self._consumer.poll(wait_s)
            if first is None:
                return []
            found = [first, *self._consumer.consume(FETCHED, 0)]
        errors = [message for message in found if message.error()]
        if errors:
            found = [message for message in found if not message.error()]
        batches = [self._columns(partition, run) for partition, run in self._runs(found)]
        for message in errors:
            self._note(message)
        return batches

    def _note(self, message: Any) -> None:
        """Records the end of a partition; raises KafkaFailure for other errors. Messages fetched with it are lost: the
        caller must assign again or give up."""
        code = message.error().code()
        if code == KafkaError.GROUP_AUTHORIZATION_FAILED:
            return  # the library asks for the group whose name it requires
        partition = TopicPartition(message.topic(), message.partition())
        if code != KafkaError._PARTITION_EOF:
            raise failure(message.error(), partition)
        if partition in self._positions:
            self._positions[partition] = max(self._positions[partition], message.offset())

    def _columns(self, partition: TopicPartition, run: Sequence[Any]) -> Messages:
        fields = self._fields
        offsets = [message.offset() for message in run]
        self._positions[partition] = offsets[-1] + 1
        return Messages(
            partition,
            offsets,
            [message.timestamp()[1] for message in run] if fields.timestamps else (),
            [message.key() for message in run] if fields.keys else (),
            [message.value() for message in run],
            [message.headers() or () for message in run] if fields.headers else (),
        )

    def _runs(self, messages: Sequence[Any]) -> Iterator[tuple[TopicPartition, list[Any]]]:
        """Groups consecutive messages of one partition. The library makes a text of the topic at each request, so only
        a reader of several topics asks each message for it."""
        if len(topics := {partition.topic for partition in self._positions}) == 1:
            (topic,) = topics
            for number, run in itertools.groupby(messages, methodcaller("partition")):
                yield TopicPartition(topic, number), list(run)
        else:
            for place, run in itertools.groupby(messages, lambda m: (m.topic(), m.partition())):
                yield TopicPartition(*place), list(run)

    def position(self, partition: TopicPartition) -> int:
        return self._positions[partition]

    def close(self) -> None:
        self._consumer.close()


# ---- writing


class _FastWriter(LibraryWriter):
    def __init__(self, settings: Mapping[str, Any], failures: Failures, **more: Any) -> None:
        super().__init__(failures)
        self._options: dict[str, Any] = {
            **settings,
            "enable.idempotence": True,
            "partitioner": "murmur2_random",
            "linger.ms": LINGER_MS,
            "compression.type": "lz4",
            "message.timeout.ms": 0,
            "delivery.report.only.error": True,
            "queue.buffering.max.messages": _QUEUED_MAX,
            **{name.replace("_", "."): value for name, value in more.items()},
        }
        self._queued_bytes = 0
        """At most so many bytes of messages are in the library's queue."""
        with failures.raised():
            self._producer = Producer(self._options)

    def write(self, messages: Sequence[Message]) -> None:
        for (topic, partition), run in itertools.groupby(messages, attrgetter("topic", "partition")):
            while some := list(itertools.islice(run, _TOGETHER)):
                size = sum([len(m.value or b"") + len(m.key or b"") + _MESSAGE_BYTES for m in some])
                self._queued_bytes = self._queued_bytes + size if len(self._producer) else size
                plain = all(m.timestamp_ms is None and not m.headers for m in some)
                if plain and self._queued_bytes < _QUEUED_BYTES_MAX:
                    self._write_together(topic, partition, some)
                else:
                    self._write_each(some)
        self._check()

    def _write_together(self, topic: str, partition: int | None, messages: Sequence[Message]) -> None:
        """Writes messages by one call, which takes neither times nor headers, and ignores partitions of single
        messages. The queue must have room for all of them: the library would refuse one and take the next."""
        waited = self._waits_for_room()
        while len(self._producer) + len(messages) > _QUEUED_MAX:
            next(waited)
        made: list[dict[str, Any]] = [{"value": message.value, "key": message.key} for message in messages]
        to = -1 if partition is None else partition
        if self._producer.produce_batch(topic, made, partition=to, on_delivery=self._delivered) < len(made):
            refused = next(message["_error"] for message in made if "_error" in message)
            raise failure(refused).about(f"topic {topic!r}")

    def _write_each(self, messages: Sequence[Message]) -> None:
        produce, delivered = self._producer.produce, self._delivered
        for topic, value, key, partition, timestamp_ms, headers in messages:
            more: dict[str, Any] = {} if timestamp_ms is None else {"timestamp": timestamp_ms}
            if headers:
                more["headers"] = list(headers)
            waited = self._waits_for_room()
            while True:
                try:
                    produce(topic, value, key, -1 if partition is None else partition, delivered, **more)
                    break
                except BufferError:
                    next(waited)
                except KafkaException as problem:
                    raise failure(problem.args[0]).about(f"topic {topic!r}") from None

    def _waits_for_room(self) -> Iterator[None]:
        """Each step waits a moment for the queue to become shorter. Raises KafkaFailure if it does not for too long."""
        until, before = time.monotonic() + ANSWER_S, len(self._producer)
        while True:
            self._producer.poll(0.1)
            if (left := len(self._producer)) < before:
                until, before = time.monotonic() + ANSWER_S, left
            elif time.monotonic() > until:
                raise KafkaFailure(Failure.AWAY, f"nothing was sent for {ANSWER_S:g} s")
            yield

    def _delivered(self, error: KafkaError | None, message: Any) -> None:
        if error is not None and error.code() not in _PURGED:
            self._fail(failure(error).about(f"topic {message.topic()!r}"))

    def _take_answers(self) -> None:
        with self._failures.raised():
            self._producer.poll(0)

    def flush(self) -> None:
        with self._failures.raised():
            left = self._producer.flush(ANSWER_S)
            self._check()
            if left:
                raise KafkaFailure(Failure.AWAY, f"{left} messages were not acknowledged within {ANSWER_S:g} s")

    def _end(self, end: Callable[[float], None]) -> None:
        try:
            end(ANSWER_S)
        except KafkaException as problem:
            found = failure(problem.args[0])
            if problem.args[0].txn_requires_abort():
                self._fail(found)  # not committed, even if the broker does not answer
            raise found from None

    def close(self) -> None:
        with suppress(KafkaException):
            self._producer.purge()
            self._producer.flush(0)


class _FastTransactionalWriter(_FastWriter):
    def __init__(
        self, settings: Mapping[str, Any], failures: Failures, transactional_id: str, timeout_s: float
    ) -> None:
        timeout_ms = round(timeout_s * 1_000)
        super().__init__(settings, failures, transactional_id=transactional_id, transaction_timeout_ms=timeout_ms)

    def connect(self, topic: str) -> None:
        with self._failures.raised():
            self._producer.list_topics(topic, timeout=_CONNECTED_S)

    def acquire(self) -> None:
        refused, until = self._failures.refusals + REFUSALS_MAX, time.monotonic() + ANSWER_S
        attempts = itertools.count(1)
        with self._failures.raised():
            while not self._acquired(lambda: self._failures.refusals >= refused or time.monotonic() > until):
                if next(attempts) <= _TRIES:
                    time.sleep(_POLL_S)
                    self._producer = Producer(self._options)

    def _acquired(self, is_last: Callable[[], bool]) -> bool:
        """Tries to acquire the id. Raises KafkaException if it is the last attempt, or others would fail, too."""
        try:
            self._producer.init_transactions(_TRY_S)
        except KafkaException as problem:
            if is_last() or failure(problem.args[0]).kind is not Failure.AWAY:
                raise
            problem.__traceback__ = None  # see Failures.raised
            return False
        return True


# ---- administration


class _FastAdmin:
    def __init__(self, settings: Mapping[str, Any], failures: Failures) -> None:
        self._failures = failures
        with failures.raised():
            self._client: Any = AdminClient(dict(settings))

    def _raised(self, about: str | None = None) -> AbstractContextManager[None]:
        return self._failures.raised(about, self._client.poll)

    def _result(self, answer: Future[T]) -> T:
        """Waits for an answer, no longer once connections are refused again and again: the library would go on to try
        until the request times out. Raises KafkaException."""
        refused = self._failures.refusals + REFUSALS_MAX
        while not answer.done() and self._failures.refusals < refused:
            wait([answer], _POLL_S)
            self._client.poll(0)
        if not answer.done():
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        return answer.result()

    def _only(self, answers: Mapping[Any, Future[T]]) -> T:
        """The answer to a request about one thing. Raises KafkaException."""
        (answer,) = answers.values()
        return self._result(answer)

    def topics(self, names: Sequence[str]) -> Mapping[str, Topic]:
        with self._raised():
            asked = self._client.describe_topics(TopicCollection(list(names)), request_timeout=ANSWER_S)
        found = {}
        for name, answer in asked.items():
            with self._raised(f"topic {name!r}"), _ignored(KafkaError.UNKNOWN_TOPIC_OR_PART):
                described = self._result(answer)
                found[name] = Topic(str(described.topic_id), len(described.partitions))
        return found

    def settings(self, topic: str) -> Mapping[str, str]:
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
        with self._raised():
            found = self._only(self._client.describe_configs([resource], request_timeout=ANSWER_S))
        return {name: str(entry.value) for name, entry in found.items()}

    def create(self, topic: str, partitions: int, settings: Mapping[str, str]) -> None:
        requested = NewTopic(topic, num_partitions=partitions, config=dict(settings))
        about = f"topic {topic!r} cannot be created"
        with self._raised(about), _ignored(KafkaError.TOPIC_ALREADY_EXISTS):
            self._only(self._client.create_topics([requested], request_timeout=ANSWER_S))
        until = time.monotonic() + ANSWER_S
        while topic not in self.topics([topic]):  # a new topic is not listed at once
            if time.monotonic() > until:
                raise KafkaFailure(Failure.AWAY, f"topic {topic!r} was created but is not yet listed")
            time.sleep(_POLL_S)

    def add_partitions(self, topic: str, partitions: int) -> None:
        requested = NewPartitions(topic, partitions)
        about = f"topic {topic!r} cannot get more partitions"
        with self._raised(about), _ignored(KafkaError.INVALID_PARTITIONS):
            self._only(self._client.create_partitions([requested], request_timeout=ANSWER_S))

    def offsets(self, partitions: Sequence[TopicPartition], place: Place | int) -> Mapping[TopicPartition, int]:
        with self._raised():
            found = _with_a_leader(lambda: self._listed(partitions, place))
        behind = [partition for partition, offset in found.items() if offset < 0]
        return {**found, **(self.offsets(behind, Place.LATEST) if behind else {})}

    def _listed(self, partitions: Sequence[TopicPartition], place: Place | int) -> dict[TopicPartition, int]:
        spec: Any = OffsetSpec
        places = {Place.EARLIEST: spec.earliest(), Place.LATEST: spec.latest()}
        at = places[place] if isinstance(place, Place) else spec.for_timestamp(place)
        asked = self._client.list_offsets(
            {Assigned(*partition): at for partition in partitions},
            isolation_level=IsolationLevel.READ_COMMITTED,
            request_timeout=ANSWER_S,
        )
        return {TopicPartition(to.topic, to.partition): self._result(answer).offset for to, answer in asked.items()}

    def committed(self, group: str, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        asked = ConsumerGroupTopicPartitions(group, [Assigned(*partition) for partition in partitions])
        with self._raised():
            found = self._only(self._client.list_consumer_group_offsets([asked], request_timeout=ANSWER_S))
        return {TopicPartition(at.topic, at.partition): at.offset for at in found.topic_partitions if at.offset >= 0}

    def commit(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        requested = ConsumerGroupTopicPartitions(group, [Assigned(*each, offset) for each, offset in offsets.items()])
        with self._raised():
            found = self._only(self._client.alter_consumer_group_offsets([requested], request_timeout=ANSWER_S))
        for at in found.topic_partitions:
            if at.error:
                raise failure(at.error, TopicPartition(at.topic, at.partition))

    def delete_before(self, offsets: Mapping[TopicPartition, int]) -> None:
        requested = [Assigned(*partition, offset) for partition, offset in offsets.items()]
        with self._raised():
            for answer in self._client.delete_records(requested, request_timeout=ANSWER_S).values():
                self._result(answer)

    def close(self) -> None:
        """Does nothing: the library closes the client in its destructor."""


@contextmanager
def _ignored(code: int) -> Iterator[None]:
    """Ignores one error of the library: what was asked for is there already, or it is not there."""
    try:
        yield
    except KafkaException as problem:
        if problem.args[0].code() != code:
            raise
