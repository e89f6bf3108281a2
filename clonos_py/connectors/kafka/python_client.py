"""The client that uses kafka-python, which needs no compiled library."""

from __future__ import annotations

import logging
import re
import ssl
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import Any

from clonos_py.connectors.kafka.port import (
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
from clonos_py.connectors.kafka.timing import ANSWER_S, HOLD_MS, LINGER_MS, RETRY_MS, TRANSACTION_S
from clonos_py.model.errors import one_line

kafka: Any = import_module("kafka")  # the published types are those of an older version
admin: Any = import_module("kafka.admin")
errors: Any = import_module("kafka.errors")

_FETCHED = 10_000
"""The limit of messages per fetch."""
_IN_A_ROW = 1_000
"""The number of messages without a key that go to one partition in a row."""
_BATCH_BYTES = 256 << 10
"""The size of a batch of messages. With the default, 16 KiB, a message takes a third more time."""
_POLL_S = 0.1
_FENCED = (errors.ProducerFencedError, errors.InvalidProducerEpochError)
_RETRIABLE = (errors.RetriableError, errors.KafkaConnectionError, errors.UnknownError)
_FENCED_NAMES = {kind.__name__ for kind in _FENCED}
_RETRIABLE_NAMES = {
    kind.__name__ for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, _RETRIABLE)
}
_NAMES = re.compile(r"\w+Error")
"""A failed transaction raises an error without a specific class; its text names the class."""
_AUTHENTICATION_ERRORS = (errors.SaslAuthenticationFailedError, errors.UnsupportedSaslMechanismError, ssl.SSLError)


class _BackgroundErrors(logging.Handler):
    """Recent errors that the library logged in the background. They have the cause of a failed connection; the
    request's own error does not."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._reasons: dict[int, tuple[float, Exception]] = {}
        """The last reason of each rank, and its time."""

    def emit(self, record: logging.LogRecord) -> None:
        given = record.args if isinstance(record.args, tuple) else ()
        for reason in given:
            if isinstance(reason, Exception) and not isinstance(reason, errors.KafkaTimeoutError):
                self._reasons[_rank(reason)] = time.monotonic(), reason

    @property
    def last(self) -> Exception | None:
        """The most specific recent reason. A broker may close a connection before the client has read why, and the last
        of many retries may time out instead of failing as the others did."""
        lately = time.monotonic() - 2 * ANSWER_S
        return next((reason for _, (at, reason) in sorted(self._reasons.items()) if at > lately), None)


def _rank(reason: Exception) -> int:
    """The rank of a reason: lower is more specific."""
    if isinstance(reason, _AUTHENTICATION_ERRORS):
        return 0
    return 2 if isinstance(reason, errors.RequestTimedOutError) else 1


_background_errors = _BackgroundErrors()
_logger = logging.getLogger("kafka")
_logger.setLevel(logging.WARNING)
_logger.addHandler(_background_errors)
_logger.propagate = False  # errors are raised


def failure(error: Exception, partition: TopicPartition | None = None) -> KafkaFailure:
    """Maps an error of the library to a failure of the port."""
    named = set(_NAMES.findall(str(error)))
    if isinstance(error, _FENCED) or named & _FENCED_NAMES:
        kind = Failure.FENCED
    elif isinstance(error, errors.OffsetOutOfRangeError | errors.NoOffsetForPartitionError):
        kind = Failure.EXPIRED
        partition = partition or _named_in(error)
    elif isinstance(error, _RETRIABLE) or (type(error) is errors.KafkaError and named & _RETRIABLE_NAMES):
        kind = Failure.AWAY
    else:
        kind = Failure.REFUSED
    if kind is Failure.AWAY and (reason := _background_errors.last) is not None:
        kind = Failure.REFUSED if isinstance(reason, _AUTHENTICATION_ERRORS) else kind
        hint = " (or the broker does not accept this user)" if "disconnected" in str(reason) else ""
        return KafkaFailure(kind, f"{one_line(error)}: {one_line(reason)}{hint}", partition)
    return KafkaFailure(kind, one_line(error), partition)


def _named_in(error: Exception) -> TopicPartition | None:
    """The first partition that an error names."""
    named = error.args[0] if error.args else None
    return next((TopicPartition(*partition) for partition in named), None) if isinstance(named, dict) else None


def _topic_in(error: Exception) -> str | None:
    """The first topic that an error names: all messages of a transaction fail with the first one."""
    named = error.args[0] if error.args else None
    return next(iter(map(str, named)), None) if isinstance(named, set | frozenset) else None


@contextmanager
def _failures() -> Iterator[None]:
    try:
        yield
    except errors.KafkaError as problem:
        raise failure(problem) from None


class PythonClient:
    """Implements ``port.Client``."""

    def __init__(self, connection: ClusterConnection) -> None:
        self._settings: dict[str, Any] = {
            "bootstrap_servers": connection.bootstrap.split(","),
            "retry_backoff_ms": RETRY_MS,
            "reconnect_backoff_ms": RETRY_MS * 50,
            "reconnect_backoff_max_ms": 1_000,
            "bootstrap_timeout_ms": round(ANSWER_S * 1_000),
            "request_timeout_ms": round(ANSWER_S * 1_000),
            **_security(connection),
        }

    def reader(self, fields: Fields, hold_ms: int = HOLD_MS) -> MessageReader:
        return _PythonReader(self._settings, fields, hold_ms)

    def writer(self) -> MessageWriter:
        return _PythonWriter(self._settings)

    def transactional_writer(self, transactional_id: str, timeout_s: float = TRANSACTION_S) -> TransactionalWriter:
        return _PythonTransactionalWriter(self._settings, transactional_id, timeout_s)

    def admin(self) -> Admin:
        return _PythonAdmin(self._settings)


def _security(connection: ClusterConnection) -> dict[str, str]:
    security = connection.security
    given = {
        "security_protocol": security.protocol,
        "sasl_mechanism": security.mechanism,
        "sasl_plain_username": security.username,
        "sasl_plain_password": security.password,
        "ssl_cafile": security.ca_file,
        "ssl_certfile": security.certificate_file,
        "ssl_keyfile": security.key_file,
        "ssl_password": security.key_password,
    }
    return {name: value for name, value in given.items() if value is not None}


def _plain(partition: TopicPartition) -> Any:
    return kafka.TopicPartition(*partition)


# ---- reading


class _PythonReader:
    def __init__(self, settings: Mapping[str, Any], fields: Fields, hold_ms: int) -> None:
        self._fields = fields
        with _failures():
            self._consumer = kafka.KafkaConsumer(
                **settings,
                group_id=None,
                enable_auto_commit=False,
                auto_offset_reset="none",
                isolation_level="read_committed",
                max_poll_records=_FETCHED,
                fetch_max_wait_ms=hold_ms,
                metrics_enabled=False,
            )

    def assign(self, offsets: Mapping[TopicPartition, int]) -> None:
        with _failures():
            self._consumer.assign([_plain(partition) for partition in offsets])
            for partition, offset in offsets.items():
                self._consumer.seek(_plain(partition), offset)

    def pause(self, partitions: Sequence[TopicPartition]) -> None:
        self._consumer.pause(*map(_plain, partitions))

    def resume(self, partitions: Sequence[TopicPartition]) -> None:
        self._consumer.resume(*map(_plain, partitions))

    def fetch(self, wait_s: float) -> Sequence[Messages]:
        with _failures():
            found = self._consumer.poll(round(wait_s * 1_000))
        return [self._columns(TopicPartition(*partition), run) for partition, run in found.items()]

    def _columns(self, partition: TopicPartition, run: Sequence[Any]) -> Messages:
        fields = self._fields
        return Messages(
            partition,
            [message.offset for message in run],
            [message.timestamp for message in run] if fields.timestamps else (),
            [message.key for message in run] if fields.keys else (),
            [message.value for message in run],
            [message.headers for message in run] if fields.headers else (),
        )

    def position(self, partition: TopicPartition) -> int:
        with _failures():
            return int(self._consumer.position(_plain(partition)))

    def close(self) -> None:
        self._consumer.close(autocommit=False)


# ---- writing


class _PythonWriter:
    def __init__(self, settings: Mapping[str, Any], **more: Any) -> None:
        self._unanswered: deque[tuple[str, Any]] = deque()
        """Sent messages without an answer: topic and future."""
        self._turn = 0
        with _failures():
            self._producer = kafka.KafkaProducer(
                **settings,
                enable_idempotence=True,
                acks="all",
                linger_ms=LINGER_MS,
                batch_size=_BATCH_BYTES,
                max_block_ms=round(ANSWER_S * 1_000),
                metrics_enabled=False,
                **more,
            )

    def write(self, messages: Sequence[Message]) -> None:
        """Writes messages. Many consecutive messages without a key go to one partition, as with Java's producer; the
        library would choose one for each."""
        send = self._producer.send
        spread = {m.topic for m in messages if m.key is None and m.partition is None}
        with _failures():
            for start in range(0, len(messages), _IN_A_ROW):
                chosen = {topic: self._next_partition(topic) for topic in spread}
                self._unanswered.extend(
                    (
                        topic,
                        send(
                            topic,
                            value,
                            key,
                            list(headers),
                            chosen[topic] if key is None and partition is None else partition,
                            timestamp_ms,
                        ),
                    )
                    for topic, value, key, partition, timestamp_ms, headers in messages[start : start + _IN_A_ROW]
                )
        self._check()

    def _next_partition(self, topic: str) -> int:
        numbers = sorted(self._producer.partitions_for(topic))
        self._turn += 1
        chosen: int = numbers[self._turn % len(numbers)]
        return chosen

    def _check(self) -> None:
        """Raises the failure of an earlier message."""
        while self._unanswered and self._unanswered[0][1].is_done:
            topic, answer = self._unanswered.popleft()
            if answer.failed():
                raise failure(answer.exception).about(f"topic {_topic_in(answer.exception) or topic!r}")

    def flush(self) -> None:
        with _failures():
            self._producer.flush(ANSWER_S)
        self._check()

    def close(self) -> None:
        with suppress(errors.KafkaError):
            self._producer.close(0)


class _PythonTransactionalWriter(_PythonWriter):
    """Transactions end in a thread, as the library may block for any time."""

    def __init__(self, settings: Mapping[str, Any], transactional_id: str, timeout_s: float) -> None:
        super().__init__(settings, transactional_id=transactional_id, transaction_timeout_ms=round(timeout_s * 1_000))

    def claim(self) -> None:
        with _failures():
            self._producer.init_transactions()

    def begin(self) -> None:
        self._unanswered.clear()
        with _failures():
            self._producer.begin_transaction()

    def commit(self) -> None:
        try:
            self._bounded(self._producer.commit_transaction)
        except KafkaFailure as found:
            self._check()  # the error of a refused message is more specific
            if found.kind is Failure.AWAY:
                raise KafkaFailure(Failure.UNKNOWN_OUTCOME, str(found)) from None
            raise

    def abort(self) -> None:
        self._bounded(self._producer.abort_transaction)

    def _bounded(self, call: Callable[[], None]) -> None:
        """Runs a call with a time limit. A refused message ends it early."""
        waiting = _Waiting(call)
        until = time.monotonic() + ANSWER_S
        while not waiting.done.wait(_POLL_S):
            self._check()
            if time.monotonic() > until:
                raise KafkaFailure(Failure.AWAY, f"no answer within {ANSWER_S:g} s")
        if waiting.problem is not None:
            raise failure(waiting.problem) from None


class _Waiting:
    """A call in a daemon thread, which does not delay the end of the process."""

    def __init__(self, call: Callable[[], None]) -> None:
        self._call, self.done = call, threading.Event()
        self.problem: Exception | None = None
        threading.Thread(target=self._run, name="kafka transaction", daemon=True).start()

    def _run(self) -> None:
        try:
            self._call()
        except Exception as problem:  # noqa: BLE001 - raised by the thread that waits
            self.problem = problem
        self.done.set()


# ---- administration


class _PythonAdmin:
    def __init__(self, settings: Mapping[str, Any]) -> None:
        with _failures():
            self._client = kafka.KafkaAdminClient(**settings)

    def topics(self, names: Sequence[str]) -> Mapping[str, Topic]:
        with _failures():
            described = self._client.describe_topics(list(names))
        found = {}
        for topic in described:
            error = errors.for_code(topic["error_code"])
            if error is errors.UnknownTopicOrPartitionError:
                continue
            if error is not errors.NoError:
                raise failure(error()).about(f"topic {topic['name']!r}")
            found[topic["name"]] = Topic(str(topic["topic_id"]), len(topic["partitions"]))
        return found

    def settings(self, topic: str) -> Mapping[str, str]:
        with _failures():
            found = self._client.describe_configs(
                [admin.ConfigResource(admin.ConfigResourceType.TOPIC, topic)], config_filter="all"
            )
        return {name: str(entry["value"]) for name, entry in found["topic"][topic].items()}

    def create(self, topic: str, partitions: int, settings: Mapping[str, str]) -> None:
        wanted = {topic: {"num_partitions": partitions, "configs": dict(settings)}}
        try:
            with suppress(errors.TopicAlreadyExistsError):
                self._client.create_topics(wanted, wait_for_metadata=True)
        except errors.KafkaError as problem:
            raise failure(problem).about(f"topic {topic!r} cannot be created") from None

    def add_partitions(self, topic: str, partitions: int) -> None:
        with _failures(), suppress(errors.InvalidPartitionsError):
            self._client.create_partitions({topic: partitions})

    def offsets(self, partitions: Sequence[TopicPartition], place: Place | int) -> Mapping[TopicPartition, int]:
        spec = {Place.EARLIEST: kafka.OffsetSpec.EARLIEST, Place.LATEST: kafka.OffsetSpec.LATEST}
        at = spec[place] if isinstance(place, Place) else place
        with _failures():
            asked = self._client.list_partition_offsets(
                {_plain(partition): at for partition in partitions}, kafka.IsolationLevel.READ_COMMITTED
            )
        found = {TopicPartition(*partition): answer.offset for partition, answer in asked.items()}
        behind = [partition for partition, offset in found.items() if offset < 0]
        return {**found, **(self.offsets(behind, Place.LATEST) if behind else {})}

    def committed(self, group: str, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        with _failures():
            found = self._client.list_group_offsets({group: [_plain(partition) for partition in partitions]})
        return {TopicPartition(*partition): at.offset for partition, at in found[group].items() if at.offset >= 0}

    def commit(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        wanted = {_plain(partition): kafka.OffsetAndMetadata(offset) for partition, offset in offsets.items()}
        with _failures():
            answers = self._client.alter_group_offsets(group, wanted)
        for partition, error in answers.items():
            if error is not errors.NoError:
                raise failure(error(), TopicPartition(*partition))

    def delete_before(self, offsets: Mapping[TopicPartition, int]) -> None:
        with _failures():
            self._client.delete_records({_plain(partition): offset for partition, offset in offsets.items()})

    def close(self) -> None:
        self._client.close()
