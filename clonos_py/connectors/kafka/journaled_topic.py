"""A topic that is written in transactions, and the journal that has an entry in each of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, closing
from typing import TypeVar

from clonos_py.connectors.kafka.clients import ClusterAddress
from clonos_py.connectors.kafka.journal import JournalReader
from clonos_py.connectors.kafka.patience import Patience
from clonos_py.connectors.kafka.port import (
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
from clonos_py.model.errors import SinkError
from clonos_py.model.operators import OperatorContext

T = TypeVar("T")

_NO_NAME = re.compile(r"[^A-Za-z0-9._-]")
_HOLD_MS = 5
"""The end of a journal is behind the mark of a transaction, which no client tells of: it is reached with an answer that
has no messages."""
_JOURNAL_SETTINGS = {"retention.ms": "-1", "retention.bytes": "-1", "cleanup.policy": "delete"}


class JournaledTopic:
    """For the sink of one task. Task n has the transactional id ``JOURNAL.n`` and partition n of the journal."""

    def __init__(self, address: ClusterAddress, topic: str, journal: str | None, away_s: float) -> None:
        """``journal``: a topic that the tasks of one operator share, and no other operator has; None: a name made of
        the topic and the operator. ``away_s``: how long a cluster that does not answer is waited for."""
        self._address, self.topic, self._given_journal = address, topic, journal
        self._patience = Patience(f"Kafka at {address.bootstrap}, topic {topic!r}", away_s)
        self._client: Client | None = None
        self._admin: Admin | None = None
        self._writers: list[TransactionalWriter] = []

    def open(self, ctx: OperatorContext) -> None:
        self._operator, self._partitions = ctx.operator, ctx.parallelism
        self.journal = self._given_journal or f"{self.topic}.{_NO_NAME.sub('_', ctx.operator)}.journal"

    def partition(self, index: int) -> TopicPartition:
        """That of the journal which belongs to a task."""
        return TopicPartition(self.journal, index)

    def patiently(self, call: Callable[[], T], drop: Callable[[], None]) -> T:
        """Repeats what failed because the cluster is away. ``drop`` is called in between. Raises SinkError."""
        return self._patience.of(call, drop)

    def writer(self, index: int) -> TransactionalWriter:
        """Takes the transactional id of a task over; the writer of an attempt before can commit nothing more. Raises
        KafkaFailure, SinkError."""
        name = f"{self.journal}.{index}"
        writer = self._connected(index)[0].transactional_writer(name)
        self._writers.append(writer)
        try:
            writer.claim()
        except KafkaFailure as failure:
            raise failure.about(f"transactional id {name!r}") from None
        return writer

    def transact(self, writer: TransactionalWriter, messages: Sequence[Message]) -> None:
        """Writes messages that become visible together. Raises KafkaFailure."""
        try:
            writer.begin()
            writer.write(messages)
            writer.commit()
        except KafkaFailure as failure:
            if failure.kind is Failure.REFUSED:
                raise failure.about(f"a transaction of topic {self.topic!r} and journal {self.journal!r}") from None
            raise

    def entries(self, index: int) -> AbstractContextManager[JournalReader]:
        """Reads the partition of the journal from its beginning on. Raises KafkaFailure."""
        client, _ = self._connected(index)
        start = self._offset(index, Place.EARLIEST)
        return closing(
            JournalReader(client.reader(Fields(keys=True), _HOLD_MS), self.partition(index), self._operator, start)
        )

    def end(self, index: int) -> int:
        """The offset behind all that is committed in the partition of the journal. Raises KafkaFailure."""
        return self._offset(index, Place.LATEST)

    def delete_before(self, index: int, offset: int) -> None:
        """What the partition of the journal has before an offset. Raises KafkaFailure."""
        partition = self.partition(index)
        _, admin = self._connected(index)
        try:
            admin.delete_before({partition: offset})
        except KafkaFailure as failure:
            raise failure.about(f"records of {partition} cannot be deleted") from None

    def drop(self) -> None:
        """Closes all clients: they may know old leaders only. Writers have to be made again."""
        for used in (*self._writers, self._admin):
            if used is not None:
                used.close()
        self._writers, self._admin = [], None

    def _offset(self, index: int, place: Place) -> int:
        _, admin = self._connected(index)
        return admin.offsets([self.partition(index)], place)[self.partition(index)]

    def _connected(self, index: int) -> tuple[Client, Admin]:
        """Makes the journal where it is missing, or has no partition for the task: that of one which has prepared rows
        may be missing when fewer tasks commit them."""
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
