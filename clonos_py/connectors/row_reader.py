"""Base of user-defined sources: the user names partitions and reads rows at a position, this module does the rest.

Replay requires only that the same positions always have the same rows. A position is a place between two rows. So a
replay reads on from where a read began until it reaches the position where it ended, however the rows are cut into
reads.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

import pyarrow as pa
from typing_extensions import TypeVar

from clonos_py.columns.compact import checksum
from clonos_py.connectors.partitions import POSITIONS, PartitionRead, PartitionReader
from clonos_py.connectors.users_code import failures_of
from clonos_py.model.connectors import SourceDefinition
from clonos_py.model.errors import GraphError, SourceError
from clonos_py.model.operators import End, Read, Source, Wait
from clonos_py.model.record import ArrowSchema, Record, schema_of
from clonos_py.model.record_codec import encode

R = TypeVar("R", bound=Record, default=Any)

FoundRows = tuple[pa.RecordBatch | Sequence[Any], int]
"""Rows, as a batch, records or dicts, and the position after the last of them."""


class RowReader:
    """Reads one partition. It runs in the process of the task that reads it, and is called by one thread.

    A position is a place between two rows of the partition: 0 is before its first row, and later places have higher
    positions, below 2**47. A position may count rows or bytes, or be the id of the last row.
    """

    def read(self, position: int, rows_max: int) -> FoundRows | None:
        """The next rows from ``position``, at most ``rows_max``, and the position after the last of them.

        Return no rows and the same position if there are no rows for now: the next call comes after ``poll_every_us``.
        Return None at the final end of the partition.

        The same position must always have the same rows after it, in this process and any other, until a checkpoint
        covers them; ``rows_max`` changes only how many of them are returned. Any position that was returned may be read
        again, in any order. The task waits meanwhile, so a call should take milliseconds.
        """
        raise NotImplementedError

    def wait_for_rows(self) -> bool:
        """For callers that read a partition to its end, such as ``check_source``: after a read without rows, blocks for
        a moment until there may be rows. Returns False if there need not be any. A reader whose rows come by another
        thread overrides this."""
        return False

    def close(self) -> None:
        """Releases the reader's resources. Not called when the process is killed."""


class PartitionedSource(SourceDefinition[R]):
    """Base of user-defined sources. Pass the class of the rows, or their schema, to ``__init__``; implement
    ``partitions`` and ``open``.

    The definition is pickled and sent to the tasks: keep addresses in it, not connections.
    """

    read_rows_max = 4096
    """At most this many rows are requested at once."""
    poll_every_us = 100_000
    """How long to wait, in microseconds, before the next poll if no partition has rows."""

    def __init__(self, rows: type[R] | ArrowSchema) -> None:
        self.schemas = (schema_of(rows),)
        self.records = (rows if isinstance(rows, type) else None,)

    def partitions(self) -> Sequence[str]:
        """The names of the partitions. Called once, when the job is submitted: the run, its replacements and runs that
        resume it read these. The next run may have further partitions after the others; any other change is an error on
        resuming."""
        raise NotImplementedError

    def open(self, partition: str) -> RowReader:
        """The reader of a partition. Called in the process of a task when the partition is first read, and again by
        every replacement."""
        raise NotImplementedError

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The result of ``partitions``. Raises SourceError."""
        with failures_of(f"{type(self).__name__}.partitions", SourceError):
            names = tuple(self.partitions())
        if not names or len(set(names)) < len(names) or not all(isinstance(name, str) and name for name in names):
            raise SourceError(
                f"{type(self).__name__}.partitions gave {list(names)}: give at least one name, each once, none empty"
            )
        return names

    def __getstate__(self) -> dict[str, Any]:
        """Fixes the list of partitions before the job is submitted, so that all processes read the same list."""
        _ = self.names
        return self.__dict__

    def create(self, columns: tuple[tuple[str, ...] | None, ...], read_rows: int | None = None) -> Source:
        (requested,) = columns
        rows_max = min(self.read_rows_max, read_rows or self.read_rows_max)
        if rows_max < 1:
            raise GraphError(f"{type(self).__name__}.read_rows_max is {self.read_rows_max}: it must be at least 1")
        return _TakingTurns(self, self.names, requested, rows_max)


class _TakingTurns(PartitionReader):
    """The source of one task: reads its partitions round-robin, and waits if none has rows for now."""

    def __init__(
        self, definition: PartitionedSource[Any], names: Sequence[str], columns: tuple[str, ...] | None, rows_max: int
    ) -> None:
        super().__init__(len(names), lambda number: _RowPartition(definition, names[number], columns, rows_max))
        self._poll_every_us = definition.poll_every_us

    def poll(self, now: int) -> Read | Wait | End:
        for _ in range(len(self._turn)):
            found = super().poll(now)
            if not isinstance(found, Read) or found.last:
                return found
            self._turn.remove(found.partition)
            self._turn.append(found.partition)
            if found.stop > found.start:
                return found
        return Wait(now + self._poll_every_us) if self._turn else End()

    def wait_for_rows(self) -> bool:
        return any(self._of(number).wait_for_rows() for number in self._turn)

    def close(self) -> None:
        for number in self._own:
            self._of(number).close()

    def _of(self, number: int) -> _RowPartition:
        partition = self._own[number]
        assert isinstance(partition, _RowPartition)
        return partition


class _RowPartition:
    """Adapts a RowReader to a ``Partition``."""

    def __init__(
        self, definition: PartitionedSource[Any], name: str, columns: tuple[str, ...] | None, rows_max: int
    ) -> None:
        self.name = name
        self._definition, self._columns, self._rows_max = definition, columns, rows_max
        self._what = f"{type(definition).__name__}, partition {name!r}"
        self._schema = definition.schemas[0]
        self._reader: RowReader | None = None
        self._rows_last = rows_max
        """The number of rows of the last read that was replayed; the next one probably has as many."""

    def next(self, start: int, rows_max: int | None) -> PartitionRead | None:
        found = self._read(start, min(self._rows_max, rows_max or self._rows_max))
        return None if found is None else self._piece([found[0]], found[1])

    def between(self, start: int, stop: int) -> PartitionRead:
        pieces = list(self._pieces(start, stop))
        self._rows_last = sum(rows.num_rows for rows in pieces)
        return self._piece(pieces, stop)

    def wait_for_rows(self) -> bool:
        return self._reader is not None and self._reader.wait_for_rows()

    def close(self) -> None:
        if self._reader is not None:
            self._reader.close()

    def _pieces(self, start: int, stop: int) -> Iterator[pa.RecordBatch]:
        """Reads on until ``stop``. A read that ends after ``stop`` is repeated with fewer rows."""
        position, rows_max = start, self._rows_last
        while position < stop:
            found = self._read(position, rows_max)
            while found is not None and not found[0].num_rows and self.wait_for_rows():
                found = self._read(position, rows_max)
            if found is None or not found[0].num_rows:
                raise SourceError(
                    f"{self._what}: there were rows between positions {start} and {stop}, and there are none at "
                    f"{position} now; rows must stay where they are until a checkpoint covers them"
                )
            rows, reached = found
            if reached <= stop:
                yield rows
                position, rows_max = reached, min(2 * rows_max, self._rows_max)
            elif rows.num_rows > 1:
                rows_max = rows.num_rows // 2
            else:
                raise SourceError(
                    f"{self._what}: a read ended at position {stop} before, and now the row at {position} leads to "
                    f"{reached}; a read must end right behind its last row, however many rows were asked for"
                )

    def _piece(self, pieces: Sequence[pa.RecordBatch], stop: int) -> PartitionRead:
        taken = pieces if self._columns is None else [rows.select(list(self._columns)) for rows in pieces]
        (rows,) = taken if len(taken) == 1 else pa.Table.from_batches(taken).combine_chunks().to_batches()
        return PartitionRead(stop, rows, checksum(rows) if rows.num_rows else 0, False)

    def _read(self, position: int, rows_max: int) -> tuple[pa.RecordBatch, int] | None:
        """Calls the user's reader. Raises SourceError if it breaks the contract."""
        with failures_of(self._what, SourceError):
            if self._reader is None:
                self._reader = self._definition.open(self.name)
            found = self._reader.read(position, rows_max)
            if found is None:
                return None
            given, reached = found
            rows = given if isinstance(given, pa.RecordBatch) else encode(given, self._schema)
        self._check(rows, position, reached, rows_max)
        return rows, reached

    def _check(self, rows: pa.RecordBatch, position: int, reached: int, rows_max: int) -> None:
        gave = f"{self._what}: read({position}, {rows_max}) gave {rows.num_rows} rows and position {reached!r}"
        if rows.schema != self._schema:
            raise SourceError(
                f"{self._what}: its rows have the columns {_listed(rows.schema)}, and were declared as "
                f"{_listed(self._schema)}"
            )
        if rows.num_rows > rows_max:
            raise SourceError(f"{gave}; give at most as many rows as are asked for, the rest with the next read")
        moved = isinstance(reached, int) and position <= reached < POSITIONS
        if not moved or (reached > position) != (rows.num_rows > 0):
            raise SourceError(
                f"{gave}; give the position behind the last row, a higher integer below 2**47, or the same one where "
                "there are no rows for now"
            )
        for column, field in zip(rows.columns, self._schema, strict=True):
            if column.null_count and not field.nullable:
                raise SourceError(f"{gave}: column {field.name!r} has nulls; declare it '| None'")


def _listed(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}{'' if field.nullable else ' not null'}" for field in schema)
