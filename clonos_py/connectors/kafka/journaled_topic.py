"""A topic that is written in transactions, each of which also writes an entry to a journal."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, closing
from typing import TypeVar

from clonos_py.connectors.kafka.client import (
    Admin,
    Client,
    Failure,
    Fields,
    KafkaFailure,
    Message,
    Place,
    TopicPartition,
    TransactionalWriter,
)
from clonos_py.connectors.kafka.clients import ClusterAddress
from clonos_py.connectors.kafka.journal import JournalReader
from clonos_py.connectors.kafka.patience import Retries
from clonos_py.model.errors import SinkError
from clonos_py.model.operators import OperatorContext

T = TypeVar("T")

_NO_NAME = re.compile(r"[^A-Za-z0-9._-]")
_HOLD_MS = 5
"""The broker's hold time for readers of a journal. A journal ends with the marker of a transaction, which clients do
not deliver; only an empty answer shows that a reader has passed it."""
_JOURNAL_SETTINGS = {"retention.ms": "-1", "retention.bytes": "-1", "cleanup.policy": "delete"}


class JournaledTopic:
    """The topic and journal as one task's sink uses them. Task n has the transactional id ``JOURNAL.n`` and partition n
    of the journal."""

    def __init__(self, address: ClusterAddress, topic: str, journal: str | None, away_s: float) -> None:
        """``journal``: a topic that all tasks of one operator share, and no other operator uses; None for a name made
        from the topic and the operator. ``away_s``: how long to retry while the cluster is unreachable."""
        self._address, self.topic, self._given_journal = address, topic, journal
        self._retries = Retries(f"Kafka at {address.bootstrap}, topic {topic!r}", away_s)
        self._client: Client | None = None
        self._admin: Admin | None = None
        self._writers: list[TransactionalWriter] = []
        self._connected_ahead: dict[int, TransactionalWriter] = {}
        """By task: a writer that has connected and has not acquired its id."""

    def open(self, ctx: OperatorContext) -> None:
        self._operator, self._partitions = ctx.operator, ctx.parallelism
        self.journal = self._given_journal or f"{self.topic}.{_NO_NAME.sub('_', ctx.operator)}.journal"

    def partition(self, index: int) -> TopicPartition:
        """The partition of the journal that belongs to a task."""
        return TopicPartition(self.journal, index)

    def retried(self, call: Callable[[], T], drop: Callable[[], None]) -> T:
        """Retries a call while the cluster is unreachable, after calling ``drop``. Raises SinkError."""
        return self._retries.run(call, drop)

    def writer(self, index: int) -> TransactionalWriter:
        """Takes over the transactional id of a task; a writer of an earlier attempt can commit nothing more. Raises
        KafkaFailure, SinkError."""
        name = self._transactional_id(index)
        writer = self._connected_ahead.pop(index, None) or self._new_writer(self._connected(index)[0], index)
        try:
            writer.acquire()
        except KafkaFailure as failure:
            raise failure.about(f"transactional id {name!r}") from None
        return writer

    def warm_up(self, index: int) -> None:
        """Connects ahead of ``writer``, which then takes less time. Tries for a few seconds. Raises KafkaFailure,
        SinkError."""
        self._client = self._client or self._address.connect()
        writer = self._new_writer(self._client, index)
        try:
            writer.connect(self.topic)
            self._connected(index)
        except (KafkaFailure, SinkError):
            self._writers.remove(writer)
            writer.close()
            raise
        self._connected_ahead[index] = writer

    def _transactional_id(self, index: int) -> str:
        return f"{self.journal}.{index}"

    def _new_writer(self, client: Client, index: int) -> TransactionalWriter:
        writer = client.transactional_writer(self._transactional_id(index))
        self._writers.append(writer)
        return writer

    def transact(self, writer: TransactionalWriter, messages: Sequence[Message]) -> None:
        """Writes messages in one transaction. Raises KafkaFailure."""
        try:
            writer.begin()
            writer.write(messages)
            writer.commit()
        except KafkaFailure as failure:
            if failure.kind is Failure.REFUSED:
                raise failure.about(f"a transaction of topic {self.topic!r} and journal {self.journal!r}") from None
            raise

    def entries(self, index: int) -> AbstractContextManager[JournalReader]:
        """A reader of the task's partition of the journal, from its beginning. Raises KafkaFailure."""
        client, _ = self._connected(index)
        start = self._offset(index, Place.EARLIEST)
        return closing(
            JournalReader(client.reader(Fields(keys=True), _HOLD_MS), self.partition(index), self._operator, start)
        )

    def end(self, index: int) -> int:
        """The offset after the last committed message in the task's partition of the journal. Raises KafkaFailure."""
        return self._offset(index, Place.LATEST)

    def delete_before(self, index: int, offset: int) -> None:
        """Deletes the messages before an offset in the task's partition of the journal. Raises KafkaFailure."""
        partition = self.partition(index)
        _, admin = self._connected(index)
        try:
            admin.delete_before({partition: offset})
        except KafkaFailure as failure:
            raise failure.about(f"records of {partition} cannot be deleted") from None

    def drop(self) -> None:
        """Closes all clients, which may have outdated leaders. Writers have to be created again."""
        for used in (*self._writers, self._admin):
            if used is not None:
                used.close()
        self._writers, self._admin, self._connected_ahead = [], None, {}

    def _offset(self, index: int, place: Place) -> int:
        _, admin = self._connected(index)
        return admin.offsets([self.partition(index)], place)[self.partition(index)]

    def _connected(self, index: int) -> tuple[Client, Admin]:
        """Connects, and creates the journal or its missing partitions. If fewer tasks commit the rows of more,
        partitions of the former tasks may be missing."""
        if self._client is not None and self._admin is not None and index < self._partitions:
            return self._client, self._admin
        self._partitions = max(self._partitions, index + 1)
        self._client = self._client or self._address.connect()
        self._admin = admin = self._admin or self._client.admin()
        if self.topic not in admin.topics([self.topic]):
            raise SinkError(f"Kafka topic {self.topic!r} does not exist: create it, or correct its name")
        journal = admin.topics([self.journal]).get(self.journal)
        if journal is None:
            admin.create(self.journal, self._partitions, _JOURNAL_SETTINGS)
        elif journal.partitions < self._partitions:
            admin.add_partitions(self.journal, self._partitions)
        return self._client, admin
