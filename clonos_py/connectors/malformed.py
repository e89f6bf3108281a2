"""Input that is not of its format and schema: what a source does with it, in one way for all sources.

Whether a record is malformed depends on its bytes and on the columns that the job declares, not on those that the job
reads, nor on what is read together. So a replay, and a run that resumes with another plan, skips the same records.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar, Literal, NamedTuple, Self

import pyarrow as pa
from typing_extensions import TypeVar

from clonos_py.columns.views import concat
from clonos_py.connectors.line_formats import LineFormat, Positions
from clonos_py.model.connectors import MultiSourceDefinition, SourceDefinition
from clonos_py.model.errors import GraphError, one_line
from clonos_py.model.operators import Source
from clonos_py.model.record import Record

R = TypeVar("R", bound=Record, default=Any)

OnErrorWord = Literal["fail", "skip", "dead-letter"]
REMEDY = "correct it, or leave such records out with on_error='skip', or get them as a stream with .catch()"


class OnError(StrEnum):
    """What becomes of malformed input."""

    FAIL = "fail"
    SKIP = "skip"
    DEAD_LETTER = "dead-letter"

    @property
    def counter(self) -> str:
        """Where it is counted."""
        return "rows_skipped" if self is OnError.SKIP else "dead_letters"


@dataclass(frozen=True)
class WantedPorts:
    """What the reader of one task delivers. ``declared``: the columns of rows as the job declares them; ``rows``: the
    names of those to deliver; ``letters``: the columns of dead letters to deliver, None without that port."""

    declared: pa.Schema
    rows: tuple[str, ...]
    on_error: OnError
    letters: pa.Schema | None = None

    @property
    def count(self) -> int:
        return 1 if self.letters is None else 2

    @property
    def parsed(self) -> pa.Schema:
        """The columns to parse: where malformed input ends the job, what is not read is not looked at."""
        return self._only if self.on_error is OnError.FAIL else self.declared

    @property
    def _only(self) -> pa.Schema:
        return pa.schema([self.declared.field(name) for name in self.rows])

    def delivered(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Rows with the parsed columns as those to deliver."""
        return rows if tuple(rows.schema.names) == self.rows else rows.select(list(self.rows))

    def letter_rows(self, letters: Sequence[Mapping[str, Any]]) -> pa.RecordBatch | None:
        """None where there are none, or none of their columns is read."""
        if not self.letters or not letters:
            return None
        return pa.RecordBatch.from_pylist(
            [{name: letter[name] for name in self.letters.names} for letter in letters], self.letters
        )

    def fitted(self, letters: pa.RecordBatch | None) -> pa.RecordBatch | None:
        """Dead letters with all their columns, or more than these, as those to deliver."""
        return letters.select(self.letters.names) if self.letters and letters is not None else None

    def counted(self, refused: int) -> dict[str, int]:
        return {self.on_error.counter: refused} if refused else {}


class CatchingSource(SourceDefinition[R]):
    """A source whose input can be malformed. To be derived from."""

    letter: ClassVar[type[Record]]
    """The class of its dead letters."""
    on_error: OnError

    def declare(self, schema: pa.Schema, record: type[Record] | None, on_error: str) -> None:
        """Sets ports and what becomes of malformed input. Raises GraphError."""
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
        return self.reader(WantedPorts(self.schemas[0], names[0], self.on_error, letters), read_rows)

    def reader(self, wanted: WantedPorts, read_rows: int | None) -> Source:
        """The reader of one task; see ``create``."""
        raise NotImplementedError

    def catch(self) -> CaughtSource:
        """The same with a second stream, of malformed input as dead letters: what ``on_error="dead-letter"`` gives,
        in a form that type checkers know to be two streams."""
        return CaughtSource(self._catching())

    def _catching(self) -> Self:
        caught = object.__new__(type(self))  # copy() asks for what pickling fixes, such as a list of files
        caught.__dict__ |= self.__dict__
        caught.declare(self.schemas[0], self.records[0], OnError.DEAD_LETTER)
        return caught


class CaughtSource(MultiSourceDefinition):
    """See ``CatchingSource.catch``."""

    def __init__(self, source: CatchingSource[Any]) -> None:
        self._source = source
        self.name = type(source).__name__.removesuffix("Source").lower()
        self.schemas, self.records, self.commits = source.schemas, source.records, source.commits

    def resolve(self) -> None:
        self._source.resolve()

    def create(self, columns: tuple[tuple[str, ...] | None, ...], read_rows: int | None = None) -> Source:
        return self._source.create(columns, read_rows)


class Refused(NamedTuple):
    """A malformed record, by its number among those that were parsed together."""

    record: int
    reason: str


class Parsed(NamedTuple):
    """``rows`` are those of the good records."""

    rows: pa.RecordBatch
    refused: Sequence[Refused] = ()


def parsed(format: LineFormat, content: bytes, ends: Positions, refused_max: int | None = None) -> Parsed:
    """Records to rows, all together where all are good. ``ends``: the position behind each record of ``content``. It
    ends with the first malformed record beyond ``refused_max``: those behind it are not parsed."""
    if not len(ends):
        return Parsed(format.parse(b""))
    records = _Records(format, content, ends)
    batches: list[pa.RecordBatch] = []
    refused: list[Refused] = []
    for piece in records.apart():
        if isinstance(piece, pa.RecordBatch):
            batches.append(piece)
            continue
        refused.append(piece)
        if refused_max is not None and len(refused) > refused_max:
            break
    return Parsed(concat(batches) if batches else format.parse(b""), refused)


class _Records:
    """Records are taken apart by halving, and only where they cannot be parsed together."""

    def __init__(self, format: LineFormat, content: bytes, ends: Positions) -> None:
        self._format, self._content = format, content
        self._bounds = [0, *ends.tolist()]
        self._lone = format.lone(content, ends)

    def apart(self) -> Iterator[pa.RecordBatch | Refused]:
        start = 0
        for lone in self._lone:
            yield from self._between(start, lone)
            yield self._one(lone)
            start = lone + 1
        yield from self._between(start, len(self._bounds) - 1)

    def _between(self, start: int, stop: int) -> Iterator[pa.RecordBatch | Refused]:
        if stop - start < 2:
            yield from (self._one(number) for number in range(start, stop))
            return
        piece = self._content[self._bounds[start] : self._bounds[stop]]
        try:
            rows = self._format.parse(piece)
            if rows.num_rows == stop - start or rows.num_rows == self._filled(start, stop):
                yield rows
                return
        except ValueError:
            pass
        middle = (start + stop) // 2
        yield from self._between(start, middle)
        yield from self._between(middle, stop)

    def _filled(self, start: int, stop: int) -> int:
        """How many records are not blank. What gives more or fewer rows is something else than these records."""
        return sum(bool(self._record(number).strip()) for number in range(start, stop))

    def _one(self, number: int) -> pa.RecordBatch | Refused:
        try:
            return self._format.parse_alone(self._record(number))
        except ValueError as error:
            return Refused(number, one_line(error))

    def _record(self, number: int) -> bytes:
        return self._content[self._bounds[number] : self._bounds[number + 1]]
