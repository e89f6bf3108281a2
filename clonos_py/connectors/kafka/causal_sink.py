"""The causal sink: rows in Kafka are visible at once. Each short transaction has rows and, in a journal, the
determinants that they depend on (Clonos, section 5.5; D16).

An attempt that acquires the output takes over the transactional id. This fences off earlier attempts and ends their
open transactions. It then commits a fence to the journal and reads the journal up to that fence. An attempt that is
fenced off, or gets no answer to its last commit, acquires the output again: pieces in the journal are visible, and are
not written twice. If it finds the fence of a newer attempt, it writes nothing more.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from contextlib import suppress
from typing import NoReturn

import msgspec

from clonos_py.connectors.kafka.client import KafkaFailure, TransactionalWriter
from clonos_py.connectors.kafka.journal import Entry, Found, messages_of
from clonos_py.connectors.kafka.journaled_topic import JournaledTopic
from clonos_py.connectors.kafka.outgoing import MessageMaker
from clonos_py.model.errors import SinkError
from clonos_py.model.ids import Attempt
from clonos_py.model.operators import CausalSink, OperatorContext, Output, OutputSegment, PublishedOutput
from clonos_py.model.segments import LogSegment


class KafkaCausalWriter(CausalSink):
    """The sink of one task."""

    def __init__(self, medium: JournaledTopic, maker: MessageMaker) -> None:
        self._medium, self._maker = medium, maker
        self._writer: TransactionalWriter | None = None
        self._own: Entry | None = None
        """What all entries of this attempt have in common."""
        self._epoch_starts: dict[int, int] = {}
        """The offset in the journal where each epoch begins, by epoch: while that checkpoint is the last complete one,
        the journal is needed from there."""

    def open(self, ctx: OperatorContext, out: Output) -> None:
        super().open(ctx, out)
        self._medium.open(ctx)

    def close(self) -> None:
        self._drop()

    # ---- taking over

    def warm_up(self) -> None:
        with suppress(KafkaFailure):  # acquire tries again, and reports it
            self._medium.warm_up(self._index)

    def acquire(self, attempt: Attempt, checkpoint: int, shape: str, lineage: str) -> PublishedOutput:
        self._own = Entry("", 0, self.ctx.operator, lineage, shape, attempt, checkpoint, [], [])
        return self._medium.retried(lambda: self._acquired(checkpoint), self._drop)

    def _acquired(self, checkpoint: int) -> PublishedOutput:
        """Acquires the output and returns what is already visible. Raises KafkaFailure."""
        assert self._own is not None
        found = self._take_over()
        since = self._since_checkpoint(found)
        foreign = next((f for f in since if f.entry.shape != self._own.shape), None)
        if foreign is not None:
            raise SinkError(
                f"Kafka topic {self._medium.topic!r} has rows since checkpoint {checkpoint}, which only tasks of the "
                "operators and the parallelism that wrote them can repeat: resume with those, or start over with "
                "--fresh"
            )
        self._epoch_starts = {checkpoint: min((f.offset for f in since), default=found[-1].offset)}
        log = list(dict.fromkeys(segment for f in since for segment in f.entry.log))
        return PublishedOutput(log, dict(piece for f in since for piece in f.entry.pieces))

    def _since_checkpoint(self, found: Sequence[Found[Entry]]) -> list[Found[Entry]]:
        """The entries written since the checkpoint from which this attempt restarted."""
        assert self._own is not None
        return [f for f in found if f.entry.epoch >= self._own.epoch and not f.entry.fence]

    def _take_over(self) -> list[Found[Entry]]:
        """Takes over the output. Returns this lineage's journal entries, this fence last. Raises KafkaFailure."""
        assert self._own is not None
        self._writer = self._medium.writer(self._index)
        with self._medium.entries(self._index) as journal:
            era = self._own.era
            if not era:
                journal.read_to(self._medium.end(self._index))
                era = self._era(journal.entries)
            fence = msgspec.structs.replace(self._own, era=era, fence=secrets.token_hex(8))
            # no other attempt has acquired the output since the era was read
            self._medium.transact(self._writer, messages_of(fence, self._medium.partition(self._index)))
            journal.read_until(fence.fence)
        self._own = msgspec.structs.replace(self._own, era=era)
        found = journal.entries
        if any((f.entry.era, f.entry.attempt) > (era, fence.attempt) for f in found):
            self._raise_replaced()
        return [f for f in found if f.entry.lineage == fence.lineage]

    def _era(self, found: Sequence[Found[Entry]]) -> int:
        """The era of the lineage if the journal has it, else one higher than all others."""
        assert self._own is not None
        eras = {f.entry.lineage: f.entry.era for f in found}
        return eras.get(self._own.lineage, max(eras.values(), default=0) + 1)

    # ---- writing

    def append(self, epoch: int, log: Sequence[LogSegment], pieces: Sequence[OutputSegment]) -> None:
        left = list(pieces)

        def write() -> None:
            nonlocal left
            if self._writer is None:
                left = self._missing(left)
            if left or log:
                self._write(epoch, log, left)

        self._medium.retried(write, self._drop)

    def _missing(self, pieces: Sequence[OutputSegment]) -> list[OutputSegment]:
        """Acquires the output again, and returns the pieces that are not yet visible."""
        out = {seq for found in self._since_checkpoint(self._take_over()) for seq, _ in found.entry.pieces}
        return [piece for piece in pieces if piece.seq not in out]

    def _write(self, epoch: int, log: Sequence[LogSegment], pieces: Sequence[OutputSegment]) -> None:
        assert self._own is not None
        assert self._writer is not None
        if epoch not in self._epoch_starts:
            self._epoch_starts[epoch] = self._medium.end(self._index)
        marks = [(piece.seq, piece.checksum) for piece in pieces]
        entry = msgspec.structs.replace(self._own, epoch=epoch, log=list(log), pieces=marks)
        rows = [message for piece in pieces for message in self._maker.messages(piece.rows)]
        self._medium.transact(self._writer, [*rows, *messages_of(entry, self._medium.partition(self._index))])

    def _drop(self) -> None:
        """Closes the writer; the next one has to acquire the id again."""
        self._medium.drop()
        self._writer = None

    def truncate_before(self, checkpoint: int) -> None:
        start = self._epoch_starts.get(checkpoint)
        self._epoch_starts = {e: at for e, at in self._epoch_starts.items() if e >= checkpoint}
        if start is not None:
            self._medium.retried(lambda: self._medium.delete_before(self._index, start), self._drop)

    # ---- failures

    @property
    def _index(self) -> int:
        return self.ctx.task.index

    def _raise_replaced(self) -> NoReturn:
        assert self._own is not None
        raise SinkError(
            f"attempt {self._own.attempt} of {self.ctx.task} has been replaced, or another job writes to Kafka topic "
            f"{self._medium.topic!r} with the journal {self._medium.journal!r}: it can no longer write"
        )
