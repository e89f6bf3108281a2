"""A source of the rows of a table in a data lake, whose versions are lists of Parquet files.

It reads the files of one version, then those that each later version has added. Files are dealt out to a fixed number
of partitions. A position is a version, whether all of its rows or only its changes are meant, and a row among the files
that the partition has of these. So a position leads to the same rows in every process, as long as the table keeps its
versions.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import pyarrow as pa
from typing_extensions import TypeVar

from clonos_py.connectors.file_content import FileContent
from clonos_py.connectors.input_errors import said_if_missing
from clonos_py.connectors.parquet_reader import PIECE_ROWS, ParquetPartition
from clonos_py.connectors.partitions import PartitionRead
from clonos_py.model.connectors import SourceDefinition
from clonos_py.model.errors import GraphError, SourceError
from clonos_py.model.operators import End, Read, Source, Wait
from clonos_py.model.record import ArrowSchema, Record, schema_of

R = TypeVar("R", bound=Record, default=Any)
T = TypeVar("T")

_ROW_BITS = 36
_UNITS_KEPT = 64
"""So many lists of files are kept, of the versions read last."""


class TableFile(NamedTuple):
    """A file of a table. ``values``: of columns that are not in the file. ``renamed``: columns, and their names in the
    file."""

    path: str
    size_bytes: int
    rows: int
    values: tuple[tuple[str, Any], ...] = ()
    renamed: tuple[tuple[str, str], ...] = ()


class VersionedTable(Protocol):
    """A table as the source needs it. Raises SourceErrors."""

    place: str

    def resolved(self, version: Any) -> int:
        """The number of a version as users name it; of None, of the newest one. Raises SourceError."""
        ...

    def newest(self) -> int:
        """The newest version."""
        ...

    def files(self, version: int) -> Sequence[TableFile]:
        """All files of a version, in an order that does not change."""
        ...

    def added(self, version: int) -> Sequence[TableFile]:
        """The files with what a version has added to the one before, in an order that does not change."""
        ...

    def content(self, file: TableFile) -> FileContent | None:
        """The bytes of a file; None if it is a local one."""
        ...


class VersionPlace(NamedTuple):
    """A place in a table. ``adds``: among the files that the version has added, not among all of its files."""

    version: int
    adds: bool
    row: int

    @property
    def position(self) -> int:
        return (self.version << 1 | self.adds) << _ROW_BITS | self.row

    @staticmethod
    def of(position: int) -> VersionPlace:
        unit, row = position >> _ROW_BITS, position & (1 << _ROW_BITS) - 1
        return VersionPlace(unit >> 1, bool(unit & 1), row)


class TableRange(NamedTuple):
    """The position where a new run begins, and the last version that it reads; None without an end."""

    begin: int
    until: int | None

    @staticmethod
    def at(version: int, existing: bool, follow: bool) -> TableRange:
        """From the rows of a version, or from behind them. With ``follow`` there is no end."""
        begin = VersionPlace(version, False, 0) if existing else VersionPlace(version + 1, True, 0)
        return TableRange(begin.position, None if follow else version)


class TableReader(Source):
    """The source of one task."""

    def __init__(
        self,
        opened: Callable[[], VersionedTable],
        schema: pa.Schema,
        versions: TableRange,
        partitions: int,
        look_every_us: int,
        read_rows: int | None,
    ) -> None:
        self._opened, self._schema = opened, schema
        self._begin, self._until = versions
        self._partitions, self._look_every_us = partitions, look_every_us
        self._rows_max = min(PIECE_ROWS, read_rows or PIECE_ROWS)
        self._newest = -1 if self._until is None else self._until
        self._look_next_us = 0
        self._positions: dict[int, int] = {}
        self._turn: deque[int] = deque()
        self._units: OrderedDict[tuple[int, bool], Sequence[TableFile]] = OrderedDict()
        self._reading: dict[int, tuple[TableFile, _FileRows]] = {}
        """By partition: the file that is being read."""

    def partitions(self) -> int:
        return self._partitions

    def open(self, index: int, parallelism: int) -> None:
        self._table = self._opened()
        self._own = range(index, self._partitions, parallelism)
        self.seek({})

    def snapshot(self) -> Any:
        return self._begin

    def restore(self, saved: Any) -> None:
        """Partitions that have read nothing yet begin where those began that have."""
        self._begin = int(saved)

    def limit(self, rows: int) -> None:
        self._rows_max = min(PIECE_ROWS, rows)

    def seek(self, positions: Mapping[int, int]) -> None:
        self._positions = {number: positions.get(number, 0) for number in self._own}
        self._turn = deque(self._own)
        self._look_next_us = 0
        self._reading = {}

    def poll(self, now: int) -> Read | Wait | End:
        if self._until is None and now >= self._look_next_us:
            self._look_next_us = now + self._look_every_us
            self._newest = self._table.newest()
        for _ in range(len(self._turn)):
            number = self._turn[0]
            self._turn.rotate(-1)
            if (read := self._next(number)) is not None:
                self._positions[number] = read.stop
                if read.last:
                    self._turn.remove(number)
                return read
        return Wait(self._look_next_us) if self._turn else End()

    def reread(self, partition: int, start: int, stop: int) -> Read:
        self._positions[partition] = stop
        if start == stop:
            if partition in self._turn:
                self._turn.remove(partition)
            return _without_rows(partition, start, stop, last=True)
        first, last = self._place(start), VersionPlace.of(stop)
        from_row = first.row if first[:2] == last[:2] else 0
        if last.row == from_row:
            return _without_rows(partition, start, stop)
        found = self._located(partition, last._replace(row=from_row))
        if found is None:
            raise SourceError(f"{self._table.place}: version {last.version} has fewer rows than it had: {CHANGED}")
        rows, within = found
        return _read(partition, start, stop, rows.between(within, within + last.row - from_row))

    def _next(self, number: int) -> Read | None:
        """The next rows of a partition; a read without rows if it passes versions that have none for it, and at its
        end. None if there is nothing for now."""
        start = self._positions[number]
        place = self._place(start)
        while place.version > self._newest or (found := self._located(number, place)) is None:
            if place.version >= self._newest:
                if self._until is not None:
                    return _without_rows(number, start, start, last=True)
                stop = place.position
                return _without_rows(number, start, stop) if stop > start else None
            place = VersionPlace(place.version + 1, True, 0)
        rows, within = found
        piece = rows.next(within, self._rows_max)
        return _read(number, start, place._replace(row=place.row + piece.rows.num_rows).position, piece)

    def _place(self, position: int) -> VersionPlace:
        return VersionPlace.of(max(position, self._begin))

    def _located(self, number: int, place: VersionPlace) -> tuple[_FileRows, int] | None:
        """The file of a partition that has a row, and the row in it; None if the version has no such row for it."""
        first = 0
        for file in self._files(place)[number :: self._partitions]:
            if place.row < first + file.rows:
                return self._rows_of(number, file), place.row - first
            first += file.rows
        return None

    def _files(self, place: VersionPlace) -> Sequence[TableFile]:
        unit = place.version, place.adds
        if unit not in self._units:
            found = self._table.added(place.version) if place.adds else self._table.files(place.version)
            self._units[unit] = [file for file in found if file.rows]
            if len(self._units) > _UNITS_KEPT:
                self._units.popitem(last=False)
        return self._units[unit]

    def _rows_of(self, number: int, file: TableFile) -> _FileRows:
        if number not in self._reading or self._reading[number][0] != file:
            self._reading[number] = file, _FileRows(file, self._schema, self._table)
        return self._reading[number][1]


class VersionedSource(SourceDefinition[R]):
    """Base of sources of tables. Subclasses implement ``_open``."""

    look_every_us: int
    """How often new versions are looked for."""

    def __init__(
        self, schema: type[R] | ArrowSchema, version: Any, follow: bool, existing: bool, partitions: int
    ) -> None:
        """``version``: what ``resolved`` of the table takes."""
        self._version, self._follow, self._existing, self._partitions = version, follow, existing, partitions
        self.schemas = (schema_of(schema),)
        self.records = (schema if isinstance(schema, type) else None,)
        if partitions < 1:
            raise GraphError(f"{type(self).__name__}: partitions={partitions}: it must be at least 1")
        if not follow and not existing:
            raise GraphError(f"{type(self).__name__}: existing= is for a table that is followed: set follow=True")

    def resolve(self) -> None:
        """Fixes the version. Raises SourceError if there is no such table or version."""
        _ = self._range

    def __getstate__(self) -> dict[str, Any]:
        """Fixes the version before the job is submitted, so that all processes read the same one."""
        _ = self._range
        return self.__dict__

    @cached_property
    def _range(self) -> TableRange:
        return TableRange.at(self._open().resolved(self._version), self._existing, self._follow)

    def create(self, columns: tuple[tuple[str, ...] | None, ...], read_rows: int | None = None) -> Source:
        (requested,) = columns
        whole = self.schemas[0]
        schema = whole if requested is None else pa.schema([whole.field(name) for name in requested])
        return TableReader(self._open, schema, self._range, self._partitions, self.look_every_us, read_rows)

    def _open(self) -> VersionedTable:
        """The table. Raises SourceError."""
        raise NotImplementedError


class _FileRows:
    """The rows of one file, with columns whose values are not in it. Columns that it lacks are null."""

    def __init__(self, file: TableFile, schema: pa.Schema, table: VersionedTable) -> None:
        self._file, self._schema, self._place = file, schema, table.place
        values = dict(file.values)
        self._gone = (
            f"{table.place}: {file.path} is gone, since the table was vacuumed or its old versions expired: keep files "
            "for longer than the job may lag behind, and start over with --fresh"
        )
        self._constants = {field.name: values[field.name] for field in schema if field.name in values}
        names = dict(file.renamed)
        stored: list[Any] = [
            field.with_name(names.get(field.name, field.name)) for field in schema if field.name not in self._constants
        ]
        self._stored, self._names = pa.schema(stored), names
        self._parquet = ParquetPartition(file.path, self._stored, None, table.content(file), lacking_is_null=True)

    def next(self, start: int, rows_max: int) -> PartitionRead:
        if not self._stored.names:
            return self.between(start, min(self._file.rows, start + rows_max))
        piece = self._found(lambda: self._parquet.next(start, rows_max))
        if piece is None:
            raise SourceError(f"{self._file.path} has fewer rows than {self._place} says: {CHANGED}")
        return self._whole(piece)

    def between(self, start: int, stop: int) -> PartitionRead:
        if not self._stored.names:
            return PartitionRead(stop, self._with_constants(None, stop - start), 0, False)
        return self._whole(self._found(lambda: self._parquet.between(start, stop)))

    def _found(self, read: Callable[[], T]) -> T:
        with said_if_missing(self._gone):
            return read()

    def _whole(self, piece: PartitionRead) -> PartitionRead:
        return piece._replace(rows=self._with_constants(piece.rows, piece.rows.num_rows), last=False)

    def _with_constants(self, rows: pa.RecordBatch | None, count: int) -> pa.RecordBatch:
        if rows is not None and rows.schema == self._schema:
            return rows
        columns = [
            _repeated(self._constants[field.name], count, field, self._file.path)
            if field.name in self._constants or rows is None
            else rows.column(self._names.get(field.name, field.name))
            for field in self._schema
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)


def _repeated(value: Any, count: int, field: pa.Field[Any], path: str) -> pa.Array[Any]:
    if value is None and not field.nullable:
        raise SourceError(f"{path}: column {field.name!r} is null, but not declared '| None'")
    try:
        given: Any = value
        scalar: Any = pa.scalar(given).cast(field.type)
        repeated: pa.Array[Any] = pa.repeat(scalar, count)
        return repeated
    except pa.ArrowException as error:
        raise SourceError(f"{path}: column {field.name!r}: {value!r} is no {field.type}") from error


def _read(number: int, start: int, stop: int, piece: PartitionRead) -> Read:
    return Read(number, start, stop, (piece.rows,), piece.checksum)


def _without_rows(number: int, start: int, stop: int, last: bool = False) -> Read:
    return Read(number, start, stop, (None,), 0, 0, last)


CHANGED = "its files were changed by other means than the table: restore them, or start over with --fresh"
