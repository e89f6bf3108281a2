"""Rows in Kafka that are visible at once: each short transaction has rows and, in a journal, the determinants that they
depend on (Clonos, section 5.5; D16).

An attempt that claims the output takes the transactional id over, which shuts earlier attempts out and settles what
they left open, commits a claim to the journal, and reads the journal up to it. An attempt that is shut out, or gets no
answer to its last commit, claims again: what the journal has is out, and is not written twice. If it finds the claim of
a newer attempt, it writes nothing any more.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Sequence
from contextlib import closing
from typing import NoReturn

import msgspec
import pyarrow as pa

from clonos_py.connectors.kafka.clients import ClusterAddress
from clonos_py.connectors.kafka.journal import Entry, Found, JournalReader, messages_of
from clonos_py.connectors.kafka.outgoing import MessageLayout, MessageMaker
from clonos_py.connectors.kafka.patience import Patience
from clonos_py.connectors.kafka.port import (
    Admin,
    Client,
    Fields,
    Message,
    Place,
    TopicPartition,
    TransactionalWriter,
)
from clonos_py.model.errors import SinkError
from clonos_py.model.ids import Attempt
from clonos_py.model.operators import CausalSink, OperatorContext, Output, OutputSegment, PublishedOutput
from clonos_py.model.segments import LogSegment

_NO_NAME = re.compile(r"[^A-Za-z0-9._-]")


class KafkaCausalWriter(CausalSink):
    """The sink of one task. ``journal``: the topic that it shares with the other tasks of its operator, and with no
    other operator; None: a name made of the operator's."""

    remote = True

    def __init__(
        self, address: ClusterAddress, layout: MessageLayout, schema: pa.Schema, journal: str | None, away_s: float
    ) -> None:
        self._address, self._given_journal = address, journal
        self._patience = Patience(f"Kafka at {address.bootstrap}, topic {layout.topic!r}", away_s)
        self._maker = MessageMaker(layout, schema)
        self._topic = layout.topic
        self._client: Client | None = None
        self._admin: Admin | None = None
        self._writer: TransactionalWriter | None = None
        self._claim: Entry | None = None
        self._epoch_starts: dict[int, int] = {}
        """Where the journal begins that is needed while a checkpoint is the last complete one."""

    def open(self, ctx: OperatorContext, out: Output) -> None:
        super().open(ctx, out)
        self._journal = self._given_journal or f"{self._topic}.{_NO_NAME.sub('_', ctx.operator)}.journal"

    def close(self) -> None:
        self._drop()

    # ---- taking over

    def claim(self, attempt: Attempt, checkpoint: int, shape: str, lineage: str) -> PublishedOutput:
        self._claim = Entry("", 0, self.ctx.operator, lineage, shape, attempt, checkpoint, [], [])
        return self._patience.of(lambda: self._claimed(checkpoint), self._drop)

    def _claimed(self, checkpoint: int) -> PublishedOutput:
        """Raises KafkaFailure."""
        assert self._claim is not None
        found = self._take_over()
        since = self._since_claim(found)
        foreign = next((f for f in since if f.entry.shape != self._claim.shape), None)
        if foreign is not None:
            raise SinkError(
                f"Kafka topic {self._topic!r} has rows since checkpoint {checkpoint}, which only tasks of the "
                "operators and the parallelism that wrote them can repeat: resume with those, or start over with "
                "--fresh"
            )
        self._epoch_starts = {checkpoint: min((f.offset for f in since), default=found[-1].offset)}
        log = list(dict.fromkeys(segment for f in since for segment in f.entry.log))
        return PublishedOutput(log, dict(piece for f in since for piece in f.entry.pieces))

    def _since_claim(self, found: Sequence[Found]) -> list[Found]:
        """What was written since the checkpoint from which this attempt restarted."""
        assert self._claim is not None
        return [f for f in found if f.entry.epoch >= self._claim.epoch and not f.entry.claim]

    def _connect(self) -> None:
        if self._admin is not None:
            return
        self._client = self._client or self._address.connect()
        self._admin = admin = self._client.admin()
        if self._topic not in admin.topics([self._topic]):
            raise SinkError(f"Kafka topic {self._topic!r} does not exist: create it, or correct its name")
        count = self.ctx.parallelism
        admin.create(self._journal, count, {"retention.ms": "-1", "retention.bytes": "-1", "cleanup.policy": "delete"})
        if admin.topics([self._journal])[self._journal].partitions < count:
            admin.add_partitions(self._journal, count)

    def _take_over(self) -> list[Found]:
        """Whatever this lineage has in the journal, this claim last. Raises KafkaFailure."""
        assert self._claim is not None
        self._connect()
        assert self._client is not None
        self._writer = self._client.transactional_writer(f"{self._journal}.{self.ctx.task.index}")
        self._writer.claim()
        with closing(self._journal_reader()) as journal:
            era = self._claim.era or self._era(journal)
            claim = msgspec.structs.replace(self._claim, era=era, claim=secrets.token_hex(8))
            self._transact(messages_of(claim, self._partition))  # no one else has claimed since the era was read
            journal.read_until(claim.claim)
        self._claim = msgspec.structs.replace(self._claim, era=era)
        found = journal.entries
        if any((f.entry.era, f.entry.attempt) > (era, claim.attempt) for f in found):
            self._give_up()
        return [f for f in found if f.entry.lineage == claim.lineage]

    def _journal_reader(self) -> JournalReader:
        assert self._client is not None
        assert self._admin is not None
        start = self._admin.offsets([self._partition], Place.EARLIEST)[self._partition]
        return JournalReader(self._client.reader(Fields(keys=True)), self._partition, start)

    def _era(self, journal: JournalReader) -> int:
        """That of the lineage if it has been here before, else one that is later than all."""
        assert self._claim is not None
        assert self._admin is not None
        journal.read_to(self._admin.offsets([self._partition], Place.LATEST)[self._partition])
        entries = [found.entry for found in journal.entries]
        if other := next((entry for entry in entries if entry.operator != self._claim.operator), None):
            raise SinkError(
                f"the journal {self._journal!r} is that of operator {other.operator!r}, too: give each sink another"
            )
        eras = {entry.lineage: entry.era for entry in entries}
        return eras.get(self._claim.lineage, max(eras.values(), default=0) + 1)

    # ---- writing

    def append(self, epoch: int, log: Sequence[LogSegment], pieces: Sequence[OutputSegment]) -> None:
        left = list(pieces)

        def write() -> None:
            nonlocal left
            if self._writer is None:
                left = self._missing(left)
            if left or log:
                self._write(epoch, log, left)

        self._patience.of(write, self._drop)

    def _missing(self, pieces: Sequence[OutputSegment]) -> list[OutputSegment]:
        """What of some pieces is not out, after claiming again."""
        out = {seq for found in self._since_claim(self._take_over()) for seq, _ in found.entry.pieces}
        return [piece for piece in pieces if piece.seq not in out]

    def _write(self, epoch: int, log: Sequence[LogSegment], pieces: Sequence[OutputSegment]) -> None:
        assert self._claim is not None
        assert self._admin is not None
        if epoch not in self._epoch_starts:
            self._epoch_starts[epoch] = self._admin.offsets([self._partition], Place.LATEST)[self._partition]
        marks = [(piece.seq, piece.checksum) for piece in pieces]
        entry = msgspec.structs.replace(self._claim, epoch=epoch, log=list(log), pieces=marks)
        rows = [message for piece in pieces for message in self._maker.messages(piece.rows)]
        self._transact([*rows, *messages_of(entry, self._partition)])

    def _transact(self, messages: Sequence[Message]) -> None:
        """Raises KafkaFailure."""
        assert self._writer is not None
        self._writer.begin()
        self._writer.write(messages)
        self._writer.commit()

    def _drop(self) -> None:
        """Clients may know old leaders only. The next writer has to claim the id again."""
        for used in (self._writer, self._admin):
            if used is not None:
                used.close()
        self._writer = self._admin = None

    def forget(self, checkpoint: int) -> None:
        start = self._epoch_starts.get(checkpoint)
        self._epoch_starts = {e: at for e, at in self._epoch_starts.items() if e >= checkpoint}
        if start is not None:
            self._patience.of(lambda: self._delete_before(start), self._drop)

    def _delete_before(self, offset: int) -> None:
        self._connect()
        assert self._admin is not None
        self._admin.delete_before({self._partition: offset})

    # ---- failures

    @property
    def _partition(self) -> TopicPartition:
        return TopicPartition(self._journal, self.ctx.task.index)

    def _give_up(self) -> NoReturn:
        assert self._claim is not None
        raise SinkError(
            f"attempt {self._claim.attempt} of {self.ctx.task} has been replaced, or another job writes to Kafka topic "
            f"{self._topic!r} with the journal {self._journal!r}: it writes nothing any more"
        )
