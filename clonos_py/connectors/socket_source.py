"""A source of lines from a TCP server, and its reader."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

import pyarrow as pa
import xxhash
from typing_extensions import TypeVar

from clonos_py.connectors.line_feed import LineFeed, LineServer
from clonos_py.connectors.line_formats import CsvLines, JsonLines, LineFormat, TextLines, input_schema
from clonos_py.connectors.malformed import (
    REMEDY,
    CatchingSource,
    OnError,
    OnErrorWord,
    Parsed,
    RequestedColumns,
    parsed,
)
from clonos_py.connectors.pushed_rows import READ_BYTES, WAIT_US, PushedRowsReader, check_port
from clonos_py.connectors.record_ends import without_line_end
from clonos_py.model.errors import GraphError, SourceError
from clonos_py.model.operators import End, Read, Source, Wait
from clonos_py.model.record import ArrowSchema, Record
from clonos_py.model.times import Duration, micros

R = TypeVar("R", bound=Record, default=Any)

_FORMATS = ("json", "csv", "text")


class SocketDeadLetter(Record):
    """A malformed line of a TCP server: the server, the line's number among all lines that the job has read from it,
    from 1, its content without the line end, and the reason."""

    server: str
    line: int
    value: bytes
    reason: str


class SocketSource(CatchingSource[R]):
    """Connects to a TCP server and reads what it sends, line by line, in one task. It sends nothing.

    ``schema`` is the class of the rows or their columns. ``format`` is json (each line an object), csv (the columns in
    the order of the schema, without a header; a quoted field holds no line ends) or text (each line a row with the
    column ``line``, without ``schema``).

    When a connection ends, the source reconnects, at growing intervals; a last line without its line end is dropped and
    counted as ``unfinished_lines``. A server that accepts no connection for longer than ``away`` fails the job; its
    last checkpoint stays intact. With ``reconnect=False`` the source ends when the server closes the connection, and a
    last line needs no line end.

    The server cannot be asked for the same lines again, so their rows are written to the causal log. No line is read
    twice, and none is lost once a row that depends on it has left the task. These lines can be lost:

    - if the task dies: those that its machine had received and the task had not yet passed on to other tasks, and those
      that the server sends without a connection, if it does not keep them;
    - if the whole job ends or rolls back: all lines since the last completed checkpoint.

    If no line may be lost, use a log such as Kafka.

    ``on_error`` decides what happens to a line that does not fit the format and schema: see ``FileSource``; dead
    letters are rows of ``SocketDeadLetter``.
    """

    letter = SocketDeadLetter

    def __init__(
        self,
        host: str,
        port: int,
        schema: type[R] | ArrowSchema | None = None,
        format: Literal["json", "csv", "text"] = "json",
        *,
        reconnect: bool = True,
        away: Duration = "1m",
        on_error: OnErrorWord = "fail",
    ) -> None:
        if format not in _FORMATS:
            raise GraphError(f"SocketSource: unknown format {format!r}; choose one of {', '.join(_FORMATS)}")
        check_port("SocketSource", port)
        self._format = format
        self._server = LineServer(host, port, micros(away) / 1e6, reconnect, marks=format != "text")
        columns = input_schema("SocketSource", format, schema, others="json or csv")
        self.declare(columns, schema if isinstance(schema, type) else None, on_error)

    def reader(self, requested: RequestedColumns, read_rows: int | None) -> Source:
        return SocketReader(self._server, self._line_format(requested.parsed), requested, read_rows)

    def _line_format(self, parsed: pa.Schema) -> LineFormat:
        match self._format:
            case "text":
                return TextLines(parsed)
            case "json":
                return JsonLines(parsed)
            case _:
                return CsvLines(parsed, self.schemas[0].names)


class SocketReader(PushedRowsReader):
    """The reader of one task. Offsets count lines."""

    def __init__(
        self, server: LineServer, format: LineFormat, requested: RequestedColumns, read_rows: int | None
    ) -> None:
        super().__init__(requested, read_rows)
        self._server, self._format = server, format
        self._wake: Callable[[], None] = lambda: None
        self._feed: LineFeed | None = None
        self._position = 0
        self._over = False

    def close(self) -> None:
        if self._feed is not None:
            self._feed.close()

    def notify(self, wake: Callable[[], None]) -> None:
        self._wake = wake

    def snapshot(self) -> Any:
        """Whether the server has ended the stream; then the source does not reconnect after a restart."""
        return {"over": self._over} if self.reads else None

    def restore(self, saved: Any) -> None:
        self._over = bool(saved["over"])

    def passed(self, read: Read) -> None:
        self._over = read.last

    def seek(self, positions: Mapping[int, int]) -> None:
        self._position = positions.get(0, 0)
        self._over = self._over and bool(positions)

    def rows_waiting(self) -> int | None:
        return 0 if self._feed is None else self._feed.waiting

    def poll(self, now: int) -> Read | Wait | End:
        if not self.reads or self._over:
            return End()
        if self._feed is None:
            self._feed = LineFeed(self._server, self._wake)
        if lines := self._feed.take(READ_BYTES, self.rows_max):
            return self._read(lines, self._feed.take_unfinished())
        if self._feed.ended:
            self._over = True
            return Read(0, self._position, self._position, self.no_rows, 0, 0, last=True)
        return Wait(now + WAIT_US)

    def reread(self, partition: int, start: int, stop: int) -> Read:
        """The log ended before the rows of this read. So no task depends on them, and these lines are lost."""
        lost = stop - start
        counts = {"lines_lost": lost} if lost else {}
        return Read(0, start, stop, self.no_rows, 0, 0, last=not lost, counts=counts)

    def _read(self, lines: bytes, unfinished: int) -> Read:
        records = self._format.records(lines, whole=True)
        ends = records.ends
        fails = self.requested.on_error is OnError.FAIL
        found = parsed(self._format, lines, records, refused_max=0 if fails else None)
        if found.refused and fails:
            first = found.refused[0]
            place = f"{self._server}, line {self._position + first.record + 1} since the job began"
            raise SourceError(f"{place}: malformed record: {first.reason}; {REMEDY}")
        start, self._position = self._position, self._position + len(ends)
        rows = self.requested.delivered(found.rows)
        letters = self.requested.letter_rows(self._letters(start, lines, ends.tolist(), found))
        ports = (rows if rows.num_rows else None, letters)[: self.requested.count]
        counts = self.requested.counted(len(found.refused)) | ({"unfinished_lines": unfinished} if unfinished else {})
        checksum = xxhash.xxh3_64_intdigest(lines) >> 1
        return Read(0, start, self._position, ports, checksum, len(ends), counts=counts)

    def _letters(self, start: int, lines: bytes, ends: list[int], found: Parsed) -> list[dict[str, Any]]:
        bounds = [0, *ends]
        return [
            {
                "server": str(self._server),
                "line": start + refused.record + 1,
                "value": without_line_end(lines[bounds[refused.record] : bounds[refused.record + 1]]),
                "reason": refused.reason,
            }
            for refused in found.refused
        ]
