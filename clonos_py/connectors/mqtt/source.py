"""Rows of messages of an MQTT broker.

A broker has no positions to go back to. So the rows are written to the causal log, like those of other sources that
cannot be read again, and a message is acknowledged when a completed checkpoint covers it. The broker delivers the
others again to the next connection of the session, those of the log among them: these are known by their packet
identifiers, which the log and the checkpoints have, and are dropped.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from typing_extensions import TypeVar

from clonos_py.connectors.extras import need
from clonos_py.connectors.line_formats import JsonLines, input_schema
from clonos_py.connectors.malformed import REMEDY, CatchingSource, OnError, OnErrorWord, RequestedColumns, parsed
from clonos_py.connectors.names import names_of
from clonos_py.connectors.pushed_rows import WAIT_US, PushedRowsReader, check_port
from clonos_py.connectors.secrets import Secret, refuse_plain_secrets
from clonos_py.model.errors import GraphError, SourceError
from clonos_py.model.operators import End, Read, Source, Wait
from clonos_py.model.record import ArrowSchema, Record
from clonos_py.model.times import Duration, micros

if TYPE_CHECKING:
    from clonos_py.connectors.mqtt.broker import MqttMessage, MqttSession

R = TypeVar("R", bound=Record, default=Any)

_MESSAGES_MAX = 1_000
_LOOK_US = 20_000


class MqttDeadLetter(Record):
    """A malformed message: its topic, its payload and the reason."""

    topic: str
    value: bytes
    reason: str


class MqttSource(CatchingSource[R]):
    """Reads the messages of ``topics``, such as "sensors/+/temperature", of an MQTT broker (version 5), in one task. It
    needs the extra ``mqtt``.

    Each message is a JSON object; ``schema`` is the class of the rows or their columns. ``topic``, if given, names the
    text column that gets the topic of the message. ``client_id`` names the session: each job has its own, and the same
    one in all its runs. The broker keeps the session, and what comes meanwhile, for ``session`` after the last
    connection.

    A message is acknowledged when a completed checkpoint covers it, and those that the broker delivers again are
    recognised. So each message that a publisher sends with QoS 1 counts once, as long as the broker keeps the session.
    Brokers limit how many messages wait for an acknowledgement (mosquitto: ``max_inflight_messages``, 20): set this to
    more than come between two checkpoints. Messages with QoS 0 can be lost. A broker that is away for longer than
    ``away`` ends the job.

    ``tls`` encrypts; a file in its place has the certificates of those who may vouch for the broker, if not those that
    the system trusts.

    ``on_error`` decides what happens to a malformed message: see ``FileSource``; dead letters are rows of
    ``MqttDeadLetter``. "fail" leaves it at the broker, so that the next run meets it again.
    """

    letter = MqttDeadLetter
    commits = True

    def __init__(
        self,
        host: str,
        topics: str | Sequence[str],
        schema: type[R] | ArrowSchema,
        *,
        client_id: str,
        port: int = 1883,
        topic: str | None = None,
        session: Duration = "1h",
        away: Duration = "1m",
        user: str | None = None,
        password: Secret | None = None,
        tls: bool | str = False,
        on_error: OnErrorWord = "fail",
    ) -> None:
        need("MqttSource", "paho", "mqtt")
        check_port("MqttSource", port)
        refuse_plain_secrets("MqttSource", password=password)
        self._broker = host, port, user, password, tls
        self._topics = names_of(topics)
        self._client_id, self._topic = client_id, topic
        self._session_s, self._away_us = micros(session) // 1_000_000, micros(away)
        if not client_id or not self._topics:
            raise GraphError("MqttSource: name a client_id, which the job has in all its runs, and a topic")
        columns = input_schema("MqttSource", "json", schema, others="json")
        if topic is not None and (topic not in columns.names or not pa.types.is_string(columns.field(topic).type)):
            raise GraphError(f"MqttSource: topic={topic!r} is no text column of the rows")
        self.declare(columns, schema if isinstance(schema, type) else None, on_error)

    def reader(self, requested: RequestedColumns, read_rows: int | None) -> Source:
        return _MqttReader(self._session, self._what, self._topic, self._away_us, requested, read_rows)

    @property
    def _what(self) -> str:
        return f"{self._broker[0]}:{self._broker[1]}"

    def _session(self, wake: Callable[[], None]) -> MqttSession:
        from clonos_py.connectors.mqtt.broker import MqttBroker, MqttSession

        return MqttSession(MqttBroker(*self._broker), self._client_id, self._topics, self._session_s, wake)


class _MqttReader(PushedRowsReader):
    """The reader of one task. Offsets count messages."""

    def __init__(
        self,
        connect: Callable[[Callable[[], None]], MqttSession],
        what: str,
        topic: str | None,
        away_us: int,
        requested: RequestedColumns,
        read_rows: int | None,
    ) -> None:
        super().__init__(requested, read_rows)
        self._connect, self._what, self._topic, self._away_us = connect, what, topic, away_us
        stored: list[Any] = [field for field in requested.parsed if field.name != topic]
        self._format = JsonLines(pa.schema(stored))
        self._wake: Callable[[], None] = lambda: None
        self._session: MqttSession | None = None
        self._position = 0
        self._taken = _Unacknowledged()
        self._away_since_us: int | None = None

    def close(self) -> None:
        self._disconnect()

    def notify(self, wake: Callable[[], None]) -> None:
        self._wake = wake

    def rows_waiting(self) -> int | None:
        return 0 if self._session is None else self._session.waiting

    # ---- positions

    def snapshot(self) -> Any:
        return self._taken.entries() if self.reads else None

    def restore(self, saved: Any) -> None:
        self._taken.load(saved or ())

    def passed(self, read: Read) -> None:
        self._position = read.stop
        for position, packet, digest in read.note or ():
            self._taken.add(position, packet, digest)

    def seek(self, positions: Mapping[int, int]) -> None:
        """What was taken behind the position is delivered again, to a new connection."""
        self._disconnect()
        self._position = positions.get(0, 0)
        self._taken.withdraw_after(self._position)

    def commit(self, positions: Mapping[int, int]) -> None:
        packets = self._taken.settle(positions.get(0, 0))
        if self._session is not None:
            self._session.acknowledge(packets)

    # ---- reading

    def poll(self, now: int) -> Read | Wait | End:
        if not self.reads:
            return End()
        if self._session is None:
            self._session = self._connect(self._wake)
        self._check(self._session, now)
        most = _MESSAGES_MAX if self.rows_max is None else min(_MESSAGES_MAX, self.rows_max)
        messages = [message for message, again in self._session.take(most) if self._is_new(message, again)]
        if messages:
            return self._read(messages)
        return Wait(now + (_LOOK_US if self._session.waiting else WAIT_US))

    def reread(self, partition: int, start: int, stop: int) -> Read:
        """The log ended before the rows of this read: no task depends on them, and they are delivered again."""
        return Read(0, start, stop, self.no_rows, 0, 0)

    def _is_new(self, message: MqttMessage, again: bool) -> bool:
        """Whether a message was not taken before. One that was settled before is acknowledged again."""
        assert self._session is not None
        if not again or not message.packet:
            return True
        if self._taken.has(message.packet, message.digest):
            return False
        if self._taken.has_settled(message.packet, message.digest):
            self._session.acknowledge([message.packet])
            return False
        return True

    def _read(self, messages: Sequence[MqttMessage]) -> Read:
        content = b"".join(message.payload.replace(b"\n", b" ") + b"\n" for message in messages)
        fails = self.requested.on_error is OnError.FAIL
        found = parsed(self._format, content, self._format.records(content, whole=True), 0 if fails else None)
        refused = {one.record: one.reason for one in found.refused}
        refused |= {n: "an empty message" for n, one in enumerate(messages) if not one.payload.strip()}
        if refused and fails:
            first = min(refused)
            raise SourceError(
                f"{self._what}, topic {messages[first].topic}: malformed message: {refused[first]}; {REMEDY}"
            )
        start, self._position = self._position, self._position + len(messages)
        notes = [
            [start + number + 1, message.packet, message.digest]
            for number, message in enumerate(messages)
            if message.packet
        ]
        for note in notes:
            self._taken.add(*note)
        topics = [message.topic for number, message in enumerate(messages) if number not in refused]
        rows = self.requested.delivered(self._with_topics(found.rows, topics))
        letters = [
            {"topic": messages[number].topic, "value": messages[number].payload, "reason": reason}
            for number, reason in sorted(refused.items())
        ]
        ports = (rows if rows.num_rows else None, self.requested.letter_rows(letters))[: self.requested.count]
        counts = self.requested.counted(len(refused))
        return Read(0, start, self._position, ports, 0, len(messages), counts=counts, note=notes)

    def _with_topics(self, rows: pa.RecordBatch, topics: Sequence[str]) -> pa.RecordBatch:
        schema = self.requested.parsed
        if self._topic not in schema.names:
            return rows
        columns = [
            pa.array(topics, field.type) if field.name == self._topic else rows.column(field.name) for field in schema
        ]
        return pa.RecordBatch.from_arrays(columns, schema=schema)

    def _check(self, session: MqttSession, now: int) -> None:
        """Raises SourceError for a broker that refuses the session, or is away for too long."""
        if session.problem is not None:
            raise SourceError(f"{self._what}: {session.problem}")
        if session.connected:
            self._away_since_us = None
            return
        self._away_since_us = now if self._away_since_us is None else self._away_since_us
        if now - self._away_since_us > self._away_us:
            raise SourceError(
                f"{self._what}: the broker is away for longer than {self._away_us / 1e6:g} s: start it, and run the "
                "job again, which goes on from its last checkpoint"
            )

    def _disconnect(self) -> None:
        if self._session is not None:
            self._session.close()
            self._session = None


class _Unacknowledged:
    """Messages that were taken, by packet identifier. The committing thread settles them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._taken: dict[int, tuple[int, int]] = {}
        """By packet: the position behind the message, and its digest."""
        self._settled: dict[int, int] = {}
        """By packet: the digest of a message that is acknowledged. Identifiers are used again."""

    def add(self, position: int, packet: int, digest: int) -> None:
        with self._lock:
            self._taken[packet] = position, digest
            self._settled.pop(packet, None)

    def has(self, packet: int, digest: int) -> bool:
        with self._lock:
            return self._taken.get(packet, (0, -1))[1] == digest

    def has_settled(self, packet: int, digest: int) -> bool:
        with self._lock:
            return self._settled.get(packet) == digest

    def settle(self, position: int) -> list[int]:
        """The packets up to a position, which are acknowledged now."""
        with self._lock:
            found = [packet for packet, (at, _) in self._taken.items() if at <= position]
            for packet in found:
                self._settled[packet] = self._taken.pop(packet)[1]
        return found

    def withdraw_after(self, position: int) -> None:
        with self._lock:
            self._taken = {packet: one for packet, one in self._taken.items() if one[0] <= position}

    def entries(self) -> list[list[int]]:
        with self._lock:
            return [[position, packet, digest] for packet, (position, digest) in self._taken.items()]

    def load(self, saved: Sequence[Sequence[int]]) -> None:
        with self._lock:
            self._taken = {packet: (position, digest) for position, packet, digest in saved}
