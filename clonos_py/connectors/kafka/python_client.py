"""The client that uses kafka-python, which needs no compiled library."""

from __future__ import annotations

import logging
import re
import ssl
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import suppress
from importlib import import_module
from typing import Any

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

kafka: Any = import_module("kafka")  # the published types are those of an older version
admin: Any = import_module("kafka.admin")
compat: Any = import_module("kafka.net.compat")
errors: Any = import_module("kafka.errors")
manager: Any = import_module("kafka.net.manager")

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
_REFUSED_USERS = (errors.SaslAuthenticationFailedError, errors.UnsupportedSaslMechanismError)
_ENDED = (ssl.SSLEOFError, ssl.SSLZeroReturnError)
"""The broker has closed a connection with TLS, for whatever reason."""
_SECURITY = {
    "protocol": "security_protocol",
    "mechanism": "sasl_mechanism",
    "username": "sasl_plain_username",
    "password": "sasl_plain_password",
    "ca_file": "ssl_cafile",
    "certificate_file": "ssl_certfile",
    "key_file": "ssl_keyfile",
    "key_password": "ssl_password",
}

_logger = logging.getLogger("kafka")
_logger.setLevel(logging.WARNING)
_logger.addHandler(logging.NullHandler())
_logger.propagate = False  # errors are raised


def failure(error: Exception, partition: TopicPartition | None = None) -> KafkaFailure:
    """Maps an error of the library to a ``KafkaFailure``."""
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
    return KafkaFailure(kind, one_line(error), partition)


def _named_in(error: Exception) -> TopicPartition | None:
    """The first partition that an error names."""
    named = error.args[0] if error.args else None
    return next((TopicPartition(*partition) for partition in named), None) if isinstance(named, dict) else None


def _topic_in(error: Exception) -> str | None:
    """The first topic that an error names: all messages of a transaction fail with the first one."""
    named = error.args[0] if error.args else None
    return next(iter(map(str, named)), None) if isinstance(named, set | frozenset) else None


class PythonClient:
    """Implements ``client.Client``."""

    def __init__(self, connection: ClusterConnection) -> None:
        self._failures = Failures(errors.KafkaError, failure)
        self._settings: dict[str, Any] = {
            "bootstrap_servers": connection.bootstrap.split(","),
            "retry_backoff_ms": RETRY_MS,
            "reconnect_backoff_ms": RETRY_MS * 50,
            "reconnect_backoff_max_ms": 1_000,
            "bootstrap_timeout_ms": round(ANSWER_S * 1_000),
            "request_timeout_ms": round(ANSWER_S * 1_000),
            **security_settings(connection, _SECURITY),
        }

    def reader(self, fields: Fields, hold_ms: int = HOLD_MS) -> MessageReader:
        return _PythonReader(self._settings, self._failures, fields, hold_ms)

    def writer(self) -> MessageWriter:
        return _PythonWriter(self._settings, self._failures)

    def transactional_writer(self, transactional_id: str, timeout_s: float = TRANSACTION_S) -> TransactionalWriter:
        return _PythonTransactionalWriter(self._settings, self._failures, transactional_id, timeout_s)

    def admin(self) -> Admin:
        return _PythonAdmin(self._settings, self._failures)


def _connected(part: Callable[..., Any], failures: Failures, **settings: Any) -> Any:
    """Makes a part of the library, which connects. Raises KafkaFailure, after the connections are closed: the library
    would leave a thread."""
    opened: list[Any] = []

    def connections(**given: Any) -> Any:
        net = compat.NetworkSelector(**given)
        opened.append(compat.KafkaNetClient(net, _Connections(net, failures, **given)))
        return opened[-1]

    try:
        with failures.raised():
            return part(kafka_client=connections, **settings)
    except KafkaFailure:
        for connected in opened:
            connected.close()
        raise


class _Connections(manager.KafkaConnectionManager):  # type: ignore[misc]
    """The connections of a part. Each failure is noted in the client.

    The library tries to reach the first servers until a timeout, whatever the reason, and then raises an error without
    it. Here that ends with the reason as soon as connections are refused again and again.
    """

    def __init__(self, net: Any, failures: Failures, **settings: Any) -> None:
        super().__init__(net, **settings)
        self._failures = failures
        self._refusals: list[Exception] = []
        """Since a connection succeeded."""

    def get_connection(self, node_id: Any, *more: Any, **named: Any) -> Any:
        if len(self._refusals) >= REFUSALS_MAX and self.cluster.is_bootstrap(node_id):
            raise self._refusals.pop()
        known = self._conns.get(node_id)
        connection = super().get_connection(node_id, *more, **named)
        if connection is not known:
            connection.init_future.add_callback(lambda _: self._refusals.clear())
            connection.close_future.add_errback(self._failed)
        return connection

    def _failed(self, problem: Exception) -> None:
        cause, text = _cause(problem)
        self._failures.note(cause, text)
        if cause is Cause.REFUSED:
            self._refusals.append(problem)

    async def _build_transport(self, *given: Any, **named: Any) -> Any:
        """A broker closes a connection soon after it has refused the user. The library drops what it receives together
        with the end of a connection, so the reason would be lost if the client is slow."""
        transport = await super()._build_transport(*given, **named)
        receive = transport._sock_recv

        def received() -> tuple[bytes, Exception | None]:
            data, problem = receive()
            return data, None if data else problem

        transport._sock_recv = received
        return transport


def _cause(problem: Exception) -> tuple[Cause, str]:
    """Why a connection failed. Errors of TLS are the argument or the context of an error of the library."""
    inner = problem.args[0] if problem.args and isinstance(problem.args[0], Exception) else problem.__context__
    if isinstance(problem, _REFUSED_USERS) or (isinstance(inner, ssl.SSLError) and not isinstance(inner, _ENDED)):
        return Cause.REFUSED, str(problem)
    if isinstance(problem, errors.RequestTimedOutError | errors.KafkaTimeoutError):
        return Cause.TIMED_OUT, str(problem)
    # A broker may close the connection of a user that it does not accept without an answer.
    hint = " (or the broker does not accept this user)" if "disconnected" in str(problem) else ""
    return Cause.LOST, f"{problem}{hint}"


# ---- reading


def _plain(partition: TopicPartition) -> Any:
    return kafka.TopicPartition(*partition)


class _PythonReader:
    def __init__(self, settings: Mapping[str, Any], failures: Failures, fields: Fields, hold_ms: int) -> None:
        self._failures, self._fields = failures, fields
        self._consumer = _connected(
            kafka.KafkaConsumer,
            failures,
            **settings,
            group_id=None,
            enable_auto_commit=False,
            auto_offset_reset="none",
            isolation_level="read_committed",
            max_poll_records=FETCHED,
            fetch_max_wait_ms=hold_ms,
            metrics_enabled=False,
        )

    def assign(self, offsets: Mapping[TopicPartition, int]) -> None:
        with self._failures.raised():
            self._consumer.assign([_plain(partition) for partition in offsets])
            for partition, offset in offsets.items():
                self._consumer.seek(_plain(partition), offset)

    def pause(self, partitions: Sequence[TopicPartition]) -> None:
        self._consumer.pause(*map(_plain, partitions))

    def resume(self, partitions: Sequence[TopicPartition]) -> None:
        self._consumer.resume(*map(_plain, partitions))

    def fetch(self, wait_s: float) -> Sequence[Messages]:
        with self._failures.raised():
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
        with self._failures.raised():
            return int(self._consumer.position(_plain(partition)))

    def close(self) -> None:
        self._consumer.close(autocommit=False)


# ---- writing


class _PythonWriter(LibraryWriter):
    def __init__(self, settings: Mapping[str, Any], failures: Failures, **more: Any) -> None:
        super().__init__(failures)
        self._unanswered: deque[tuple[str, Any]] = deque()
        """Sent messages without an answer: topic and future."""
        self._turn = 0
        self._producer = _connected(
            kafka.KafkaProducer,
            failures,
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
        with self._failures.raised():
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

    def _take_answers(self) -> None:
        while self._unanswered and self._unanswered[0][1].is_done:
            topic, answer = self._unanswered.popleft()
            if answer.failed():
                self._fail(failure(answer.exception).about(f"topic {_topic_in(answer.exception) or topic!r}"))

    def flush(self) -> None:
        with self._failures.raised():
            self._producer.flush(ANSWER_S)
            self._check()

    def begin(self) -> None:
        self._unanswered.clear()
        super().begin()

    def _end(self, end: Callable[[], None]) -> None:
        """Ends the transaction in a thread, as the library may block for any time. A refused message is seen before."""
        ended = _in_thread(end)
        until = time.monotonic() + ANSWER_S
        while not wait([ended], _POLL_S).done:
            self._check()
            if time.monotonic() > until:
                raise KafkaFailure(Failure.AWAY, f"no answer within {ANSWER_S:g} s")
        try:
            ended.result()
        except Exception as problem:  # noqa: BLE001 - whatever the thread has met
            raise failure(problem) from None

    def close(self) -> None:
        with suppress(errors.KafkaError):
            self._producer.close(0)


class _PythonTransactionalWriter(_PythonWriter):
    def __init__(
        self, settings: Mapping[str, Any], failures: Failures, transactional_id: str, timeout_s: float
    ) -> None:
        timeout_ms = round(timeout_s * 1_000)
        super().__init__(settings, failures, transactional_id=transactional_id, transaction_timeout_ms=timeout_ms)

    def connect(self, topic: str) -> None:
        """The library has connected when it was created."""

    def acquire(self) -> None:
        with self._failures.raised():
            self._producer.init_transactions()


def _in_thread(call: Callable[[], None]) -> Future[None]:
    """Calls in a daemon thread, which does not delay the end of the process."""
    ended: Future[None] = Future()

    def run() -> None:
        try:
            call()
            ended.set_result(None)
        except Exception as problem:  # noqa: BLE001 - raised by the thread that waits
            ended.set_exception(problem)

    threading.Thread(target=run, name="kafka transaction", daemon=True).start()
    return ended


# ---- administration


class _PythonAdmin:
    def __init__(self, settings: Mapping[str, Any], failures: Failures) -> None:
        self._failures = failures
        self._client = _connected(kafka.KafkaAdminClient, failures, **settings)

    def topics(self, names: Sequence[str]) -> Mapping[str, Topic]:
        with self._failures.raised():
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
        with self._failures.raised():
            found = self._client.describe_configs(
                [admin.ConfigResource(admin.ConfigResourceType.TOPIC, topic)], config_filter="all"
            )
        return {name: str(entry["value"]) for name, entry in found["topic"][topic].items()}

    def create(self, topic: str, partitions: int, settings: Mapping[str, str]) -> None:
        requested = {topic: {"num_partitions": partitions, "configs": dict(settings)}}
        with self._failures.raised(f"topic {topic!r} cannot be created"), suppress(errors.TopicAlreadyExistsError):
            self._client.create_topics(requested, wait_for_metadata=True)

    def add_partitions(self, topic: str, partitions: int) -> None:
        about = f"topic {topic!r} cannot get more partitions"
        with self._failures.raised(about), suppress(errors.InvalidPartitionsError):
            self._client.create_partitions({topic: partitions})

    def offsets(self, partitions: Sequence[TopicPartition], place: Place | int) -> Mapping[TopicPartition, int]:
        spec = {Place.EARLIEST: kafka.OffsetSpec.EARLIEST, Place.LATEST: kafka.OffsetSpec.LATEST}
        at = spec[place] if isinstance(place, Place) else place
        with self._failures.raised():
            asked = self._client.list_partition_offsets(
                {_plain(partition): at for partition in partitions}, kafka.IsolationLevel.READ_COMMITTED
            )
        found = {TopicPartition(*partition): answer.offset for partition, answer in asked.items()}
        behind = [partition for partition, offset in found.items() if offset < 0]
        return {**found, **(self.offsets(behind, Place.LATEST) if behind else {})}

    def committed(self, group: str, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        with self._failures.raised():
            found = self._client.list_group_offsets({group: [_plain(partition) for partition in partitions]})
        return {TopicPartition(*partition): at.offset for partition, at in found[group].items() if at.offset >= 0}

    def commit(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        requested = {_plain(partition): kafka.OffsetAndMetadata(offset) for partition, offset in offsets.items()}
        with self._failures.raised():
            answers = self._client.alter_group_offsets(group, requested)
        for partition, error in answers.items():
            if error is not errors.NoError:
                raise failure(error(), TopicPartition(*partition))

    def delete_before(self, offsets: Mapping[TopicPartition, int]) -> None:
        with self._failures.raised():
            self._client.delete_records({_plain(partition): offset for partition, offset in offsets.items()})

    def close(self) -> None:
        self._client.close()
