"""The reader of a task: the rows that the table had, and then its changes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import psycopg
import pyarrow as pa

from clonos_py.columns.compact import checksum
from clonos_py.connectors.postgres.change_stream import ChangeStream, StreamTarget
from clonos_py.connectors.postgres.log_place import LogPlace
from clonos_py.connectors.postgres.pgoutput import RowChanges
from clonos_py.connectors.postgres.replication import Piece
from clonos_py.connectors.postgres.server import Connection, Patience, passes, told
from clonos_py.connectors.postgres.slot import Slot, SlotKeeper, as_text, drop_statement
from clonos_py.connectors.postgres.table_copy import CopyReader
from clonos_py.model.errors import SourceError
from clonos_py.model.operators import End, Read, Source, Wait

_SECOND_US = 1_000_000
_RETRY_US = 200_000
_IDLE_BYTES = 4 << 20
"""If the log grows by so much without a change of the table, the position follows, so that the server can drop it."""


@dataclass(frozen=True)
class FoundSource:
    """What holds for a run. ``table``: its id; ``identity``: the columns that identify a row; ``stop``: the end in the
    log."""

    slot: Slot
    table: int
    identity: frozenset[str]
    token: str
    stop: int | None


@dataclass(frozen=True)
class OpenedSource:
    """What a reader works with."""

    target: StreamTarget
    found: FoundSource
    keeper: SlotKeeper
    copy: CopyReader
    decoder: RowChanges


class ChangeReader(Source):
    """The source of one task. The first one reads everything: positions below ``_first`` number the rows of the copy,
    the others are places in the log."""

    consumes = True
    """For ``clonos check`` alone no slot is created."""

    def __init__(self, opened: Callable[[], OpenedSource], rows_max: int) -> None:
        """``opened`` may connect to the server."""
        self._opened, self._rows_max = opened, rows_max
        self._position = 0
        self._own = False
        self._done = False
        self._wake: Callable[[], None] = lambda: None
        self._stream: ChangeStream | None = None
        self._failing_since_us: int | None = None
        self._copy_is_needed = True

    def partitions(self) -> int:
        return 1

    def begins(self, partition: int) -> int:
        return 0 if self._found.slot.rows else self._first

    def open(self, index: int, parallelism: int) -> None:
        opened = self._opened()
        self._target, self._found, self._keeper = opened.target, opened.found, opened.keeper
        self._copy, self._decoder = opened.copy, opened.decoder
        start, stop = opened.found.slot.start, opened.found.stop
        self._first = LogPlace(start).position
        self._end = None if stop is None else LogPlace(max(stop, start)).position
        self._own = index == 0
        self._position = self.begins(0)

    def notify(self, wake: Callable[[], None]) -> None:
        self._wake = wake

    def snapshot(self) -> Any:
        return {"start": self._found.slot.start}

    def restore(self, saved: Any) -> None:
        if saved["start"] != self._found.slot.start:
            raise SourceError(
                f"{self._target.where}: it was dropped and created again since the checkpoint, and changes in between "
                "are "
                "lost: start over with --fresh"
            )

    def seek(self, positions: Mapping[int, int]) -> None:
        self._move(positions.get(0, self.begins(0)))

    def limit(self, rows: int) -> None:
        self._rows_max = max(1, min(rows, self._rows_max))

    def close(self) -> None:
        self._stop_stream()
        self._copy.drop()

    def wait_for_rows(self) -> bool:
        if self._stream is not None:
            self._stream.wait_for_change()
        return self._end is not None

    def rows_waiting(self) -> int | None:
        stream = self._stream
        if stream is None:
            return max(0, self._found.slot.rows - self._position) if self._position < self._first else None
        ahead = max(0, stream.log_end - LogPlace.of(self._position).lsn) if not stream.waiting else 0
        return stream.waiting + round(ahead / stream.bytes_of_row if stream.bytes_of_row else 0)

    def bytes_kept(self) -> int | None:
        return None if self._stream is None else self._stream.bytes_kept

    # ---- reading

    def poll(self, now: int) -> Read | Wait | End:
        if not self._own or self._done:
            return End()
        if self._position < self._first:
            return self._poll_copy(now)
        stream = self._streaming()
        if pieces := stream.take(self._rows_max):
            return self._read(pieces)
        if self._end is not None and stream.has_ended:
            self._done = True
            return self._passed(max(self._end, self._position), last=True)
        place, idle_at = LogPlace.of(self._position), stream.idle_at
        if idle_at is not None and not place.pieces and idle_at - place.lsn >= _IDLE_BYTES:
            return self._passed(LogPlace(idle_at).position)
        return Wait(now + _SECOND_US)

    def reread(self, partition: int, start: int, stop: int) -> Read:
        if start != self._position:
            self._move(start)
        if start < self._first:
            return self._reread_copy(stop)
        found = self._between(LogPlace.of(start), LogPlace.of(stop)) if start < stop else []
        if not found:
            return self._passed(stop, last=self._end is not None and stop >= self._end)
        read = self._read(found)
        if read.stop != stop:
            raise SourceError(
                f"{self._target.where}: changes were read up to {stop} before, and end at {read.stop} now: the "
                "publication "
                f"has changed; to begin anew, {drop_statement(self._target.slot)}, and start over with --fresh"
            )
        return read

    def _between(self, place: LogPlace, stop: LogPlace) -> list[Piece]:
        """The pieces between two places; waits until they have come. Raises SourceError."""
        stream = self._streaming()
        found: list[Piece] = []
        while True:
            taken, complete = stream.take_before(place, stop)
            found += taken
            for piece in taken:
                place = place.after(piece.end)
            if complete:
                return found
            if not taken:
                stream.wait_for_change()

    def _read(self, pieces: Sequence[Piece]) -> Read:
        start, place = self._position, LogPlace.of(self._position)
        groups: list[list[Piece]] = []
        for piece in pieces:
            place = place.after(piece.end)
            if not groups or groups[-1][-1].relation != piece.relation:
                groups.append([])
            groups[-1].append(piece)
        try:
            batches = [self._decoded(group) for group in groups]
        except SourceError as problem:
            raise SourceError(
                f"{self._target.where}: {problem}; to begin anew, {drop_statement(self._target.slot)}, and start over "
                "with "
                "--fresh"
            ) from None
        (rows,) = batches if len(batches) == 1 else pa.Table.from_batches(batches).combine_chunks().to_batches()
        self._position = place.position
        events = sum(len(piece.messages) for piece in pieces)
        return Read(0, start, place.position, (rows if rows.num_rows else None,), checksum(rows), events)

    def _decoded(self, pieces: Sequence[Piece]) -> pa.RecordBatch:
        return self._decoder.decoded([m for piece in pieces for m in piece.messages], pieces[0].relation)

    def _passed(self, stop: int, last: bool = False) -> Read:
        """A read without rows: no change of the table lies between."""
        start, self._position = self._position, stop
        self._done = self._done or last
        return Read(0, start, stop, (None,), 0, 0, last)

    def _move(self, position: int) -> None:
        self._stop_stream()
        self._position, self._done = position, False

    def _streaming(self) -> ChangeStream:
        if self._stream is None:
            self._copy.drop()
            self._stream = ChangeStream(self._target, LogPlace.of(self._position), self._wake)
        return self._stream

    def _stop_stream(self) -> None:
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.close()

    # ---- the copy of the table

    def _poll_copy(self, now: int) -> Read | Wait:
        try:
            found = self._of_copy(min(self._position + self._rows_max, self._found.slot.rows))
        except psycopg.Error as problem:
            self._copy.drop()
            since = self._failing_since_us = self._failing_since_us or now
            if not passes(problem) or now - since > self._target.away_s * 1e6:
                raise SourceError(f"{self._target.where}: {self._copy_is_gone(problem)}") from None
            return Wait(now + _RETRY_US)
        self._failing_since_us = None
        return found

    def _reread_copy(self, stop: int) -> Read:
        patience = Patience(self._target.where, self._target.away_s, SourceError)
        last = self._found.slot.rows if stop == self._first else stop
        return patience.run(lambda: self._of_copy(last), self._copy.drop, self._copy_is_gone)

    def _of_copy(self, last: int) -> Read:
        """The rows up to that number. Behind the last one the changes follow. Raises psycopg.Error."""
        try:
            rows = self._copy.read(self._position, last)
        except SourceError as problem:
            raise SourceError(f"{self._target.where}: {problem}") from None
        start, self._position = self._position, self._first if last >= self._found.slot.rows else last
        return Read(0, start, self._position, (rows,), checksum(rows))

    def _copy_is_gone(self, problem: psycopg.Error) -> str:
        if isinstance(problem, psycopg.errors.UndefinedTable):
            return (
                "an earlier run has read the table and following changes, and this run does not have its checkpoint: "
                "resume "
                f"from that or, to begin anew, {drop_statement(self._target.slot)}, and start over with --fresh"
            )
        return told(problem)

    # ---- progress, by another thread

    def commit(self, positions: Mapping[int, int]) -> None:
        """The server may drop what lies before. If it does not answer, the next checkpoint says so."""
        position = positions.get(0, 0)
        if position < self._first:
            return
        lsn, stream = LogPlace.of(position).lsn, self._stream
        reported = stream is not None and stream.confirm(lsn)
        if reported and not self._copy_is_needed:
            return
        try:
            with self._target.address.connect(f"{self._target.name} commit") as connection:
                self._keeper.drop_copy(connection)
                self._copy_is_needed = False
                if not reported:
                    _advance(connection, self._target.slot, lsn)
        except psycopg.Error as problem:
            if not passes(problem):
                raise SourceError(f"{self._target.where}: {told(problem)}") from None


def _advance(connection: Connection, slot: str, lsn: int) -> None:
    """Confirms changes of a slot that nobody follows. If another process does, that one will confirm them."""
    try:
        connection.execute(
            "SELECT pg_replication_slot_advance(slot_name, %s::pg_lsn) FROM pg_replication_slots WHERE slot_name = %s "
            "AND NOT active AND confirmed_flush_lsn < %s::pg_lsn",
            [as_text(lsn), slot, as_text(lsn)],
        )
    except psycopg.errors.ObjectInUse:
        return
