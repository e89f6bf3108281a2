"""Malformed input, which does not fit the source's format and schema: how all sources handle it.

Whether a record is malformed depends on its bytes and on the columns that the job declares. It does not depend on the
columns that the job reads, nor on the records parsed with it. So a replay, and a run that resumes with another plan,
skip the same records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar, Literal, NamedTuple, Self

import pyarrow as pa
from typing_extensions import TypeVar

from clonos_py.columns.views import concat
from clonos_py.connectors.line_formats import LineFormat
from clonos_py.connectors.record_ends import Records
from clonos_py.model.connectors import MultiSourceDefinition, SourceDefinition
from clonos_py.model.errors import GraphError, one_line
from clonos_py.model.operators import Source
from clonos_py.model.record import Record

R = TypeVar("R", bound=Record, default=Any)

OnErrorWord = Literal["fail", "skip", "dead-letter"]
REMEDY = "correct it, or leave such records out with on_error='skip', or get them as a stream with .catch()"


class OnError(StrEnum):
    """What a source does with malformed input."""

    FAIL = "fail"
    SKIP = "skip"
    DEAD_LETTER = "dead-letter"

    @property
    def counter(self) -> str:
        """The name of the counter for it."""
        return "rows_skipped" if self is OnError.SKIP else "dead_letters"


@dataclass(frozen=True)
class RequestedColumns:
    """What the reader of one task delivers. ``declared``: the columns of rows as the job declares them; ``rows``: the
    names of the columns to deliver; ``letters``: the columns of dead letters to deliver, None without that port."""

    declared: pa.Schema
    rows: tuple[str, ...]
    on_error: OnError
    letters: pa.Schema | None = None

    @property
    def count(self) -> int:
        return 1 if self.letters is None else 2

    @property
    def parsed(self) -> pa.Schema:
        """The columns to parse. If malformed input fails the job, columns that the job does not read are not parsed."""
        return self._only if self.on_error is OnError.FAIL else self.declared

    @property
    def _only(self) -> pa.Schema:
        return pa.schema([self.declared.field(name) for name in self.rows])

    def delivered(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Selects the columns to deliver from parsed rows."""
        return rows if tuple(rows.schema.names) == self.rows else rows.select(list(self.rows))

    def letter_rows(self, letters: Sequence[Mapping[str, Any]]) -> pa.RecordBatch | None:
        """Dead letters as a batch; None if there are none, or if none of their columns is read."""
        if not self.letters or not letters:
            return None
        return pa.RecordBatch.from_pylist(
            [{name: letter[name] for name in self.letters.names} for letter in letters], self.letters
        )

    def fitted(self, letters: pa.RecordBatch | None) -> pa.RecordBatch | None:
        """Selects the columns to deliver from dead letters, which may have more."""
        return letters.select(self.letters.names) if self.letters and letters is not None else None

    def counted(self, refused: int) -> dict[str, int]:
        return {self.on_error.counter: refused} if refused else {}


class CatchingSource(SourceDefinition[R]):
    """Base of sources whose input can be malformed."""

    letter: ClassVar[type[Record]]
    """The class of its dead letters."""
    on_error: OnError

    def declare(self, schema: pa.Schema, record: type[Record] | None, on_error: str) -> None:
        """Sets the ports and the handling of malformed input. Raises GraphError."""
        if on_error not in tuple(OnError):
            choices = ", ".join(OnError)
            raise GraphError(f"{type(self).__name__}: unknown on_error={on_error!r}: choose one of {choices}")
        self.on_error = OnError(on_error)
        self.schemas, self.records = (schema,), (record,)
        if self.on_error is OnError.DEAD_LETTER:
            self.schemas, self.records = (schema, self.letter.schema()), (record, self.letter)

    def create(self, columns: tuple[tuple[str, ...] | None, ...], read_rows: int | None = None) -> Source:
        names = [tuple(schema.names) if n is None else n for n, schema in zip(columns, self.schemas, strict=True)]
        letters = pa.schema([self.schemas[1].field(name) for name in names[1]]) if len(names) > 1 else None
        return self.reader(RequestedColumns(self.schemas[0], names[0], self.on_error, letters), read_rows)

    def reader(self, requested: RequestedColumns, read_rows: int | None) -> Source:
        """The reader of one task; see ``create``."""
        raise NotImplementedError

    def catch(self) -> CaughtSource:
        """The same source with a second stream, of malformed input as dead letters. This is ``on_error="dead-letter"``
        in a form that type checkers recognise as two streams."""
        return CaughtSource(self._catching())

    def _catching(self) -> Self:
        caught = object.__new__(type(self))  # copy() pickles, which fixes the list of files
        caught.__dict__ |= self.__dict__
        caught.declare(self.schemas[0], self.records[0], OnError.DEAD_LETTER)
        return caught


class CaughtSource(MultiSourceDefinition):
    """See ``CatchingSource.catch``."""

    def __init__(self, source: CatchingSource[Any]) -> None:
        self._source = source
        self.name = type(source).__name__.removesuffix("Source").lower()
        self.schemas, self.records, self.commits = source.schemas, source.records, source.commits

    def identified_by(self, columns: frozenset[str]) -> None:
        self._source.identified_by(columns)

    def resolve(self) -> None:
        self._source.resolve()

    def create(self, columns: tuple[tuple[str, ...] | None, ...], read_rows: int | None = None) -> Source:
        return self._source.create(columns, read_rows)


class Refused(NamedTuple):
    """A malformed record: its number among the records that were parsed together, and the reason."""

    record: int
    reason: str


class Parsed(NamedTuple):
    """``rows`` are those of the well-formed records."""

    rows: pa.RecordBatch
    refused: Sequence[Refused] = ()


def parsed(format: LineFormat, content: bytes, records: Records, refused_max: int | None = None) -> Parsed:
    """Parses records into rows, all together if all are well-formed. Stops at the first malformed record beyond
    ``refused_max``; later records are not parsed.

    A record counts as well-formed if it gives one row, or none where it is blank. Parsed together, records that each do
    so give as many rows; since no record that has to be parsed alone is among them, others do not."""
    count = len(records.ends)
    if not len(records.alone):
        with suppress(ValueError):
            rows = format.parse(content)
            if rows.num_rows == records.row_count(0, count):
                return Parsed(rows)
    batches: list[pa.RecordBatch] = []
    refused: list[Refused] = []
    for piece in _Pieces(format, content, records).parsed():
        if isinstance(piece, pa.RecordBatch):
            batches.append(piece)
            continue
        refused.append(piece)
        if refused_max is not None and len(refused) > refused_max:
            break
    return Parsed(concat(batches) if batches else format.parse(b""), refused)


class _Pieces:
    """Parses records together where possible. A group that does not parse is split in halves."""

    def __init__(self, format: LineFormat, content: bytes, records: Records) -> None:
        self._format, self._content, self._records = format, content, records
        self._bounds = [0, *records.ends.tolist()]

    def parsed(self) -> Iterator[pa.RecordBatch | Refused]:
        start = 0
        for isolated in self._records.alone.tolist():
            yield from self._between(start, isolated)
            yield self._one(isolated, self._format.parse_isolated, least=0)
            start = isolated + 1
        yield from self._between(start, len(self._bounds) - 1)

    def _between(self, start: int, stop: int) -> Iterator[pa.RecordBatch | Refused]:
        expected = self._records.row_count(start, stop)
        if stop - start == 1:
            yield self._one(start, self._format.parse, expected)
        if stop - start < 2:
            return
        try:
            rows = self._format.parse(self._bytes(start, stop))
            if rows.num_rows == expected:
                yield rows
                return
        except ValueError:
            pass
        middle = (start + stop) // 2
        yield from self._between(start, middle)
        yield from self._between(middle, stop)

    def _one(self, number: int, parse: Callable[[bytes], pa.RecordBatch], least: int) -> pa.RecordBatch | Refused:
        try:
            rows = parse(self._bytes(number, number + 1))
        except ValueError as error:
            return Refused(number, one_line(error))
        if least <= rows.num_rows <= 1:
            return rows
        return Refused(number, f"it is parsed as {rows.num_rows} records")

    def _bytes(self, start: int, stop: int) -> bytes:
        return self._content[self._bounds[start] : self._bounds[stop]]
