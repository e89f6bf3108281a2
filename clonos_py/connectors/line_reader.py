"""A file of lines as a partition: positions are byte offsets, and each read ends after a complete record."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import xxhash

from clonos_py.connectors.input_errors import ONLY_GROW, UNCHANGED, named_errors
from clonos_py.connectors.line_formats import LineFormat, Positions, first_malformed, line_ends
from clonos_py.connectors.malformed import REMEDY, OnError, Refused, WantedPorts, parsed
from clonos_py.connectors.partitions import PartitionRead
from clonos_py.model.errors import SourceError, one_line

BLOCK_BYTES = 1 << 20
RECORD_BYTES_MAX = 64 << 20
HEAD_BYTES = 1 << 16
_COUNTED_BYTES = 8 << 20


class _Window(NamedTuple):
    """Complete records read ahead: their bytes, and the end position of each in the file."""

    start: int
    content: bytes
    ends: Positions


class LinePartition:
    """One file of lines. It keeps no file open between reads and reads nothing beyond ``size_bytes``. A last line
    without a line end counts, except in a file that ``grows``."""

    def __init__(
        self,
        path: str,
        size_bytes: int,
        line_format: LineFormat,
        wanted: WantedPorts,
        read_rows: int | None,
        grows: bool = False,
    ) -> None:
        """``line_format`` parses the columns ``wanted.parsed``."""
        self.name, self._grows = path, grows
        self._size_bytes = size_bytes
        self._format, self._wanted = line_format, wanted
        self._lines = _LineNumbers(self._pread)
        self._read_rows = read_rows
        self._first_record: int | None = None
        self._window = _Window(0, b"", np.zeros(0, np.int64))

    def grow(self, size_bytes: int) -> None:
        """Sets the current size of the file."""
        self._size_bytes = size_bytes

    def next(self, start: int, rows_max: int | None) -> PartitionRead | None:
        if start > self._size_bytes:
            raise self._shrunk(self._size_bytes, start)
        if start == self._size_bytes or not self._begin():
            return None
        window = self._window_at(start)
        if not len(window.ends):
            return None
        first = int(np.searchsorted(window.ends, start, side="right"))
        limits = [rows for rows in (self._read_rows, rows_max) if rows is not None]
        last = min([len(window.ends), *(first + rows for rows in limits)])
        stop = int(window.ends[last - 1])
        return self._piece(start, stop, window.content[start - window.start : stop - window.start])

    def between(self, start: int, stop: int) -> PartitionRead:
        self._begin()
        return self._piece(start, stop, self._pread(start, stop - start))

    def _piece(self, start: int, stop: int, content: bytes) -> PartitionRead:
        records = content[max(0, (self._first_record or 0) - start) :]
        checksum = xxhash.xxh3_64_intdigest(content) >> 1
        if self._wanted.on_error is not OnError.FAIL:
            return self._caught(stop, records, checksum)
        try:
            rows = self._format.parse(records)
        except ValueError as error:
            raise self._malformed(stop - len(records), records) from error
        return PartitionRead(stop, rows, checksum, self._is_end(stop))

    def _caught(self, stop: int, records: bytes, checksum: int) -> PartitionRead:
        """Drops and counts malformed records; emits them as dead letters if requested."""
        ends = self._format.ends(records, whole=True)
        rows, refused = parsed(self._format, records, ends)
        bounds = [0, *ends.tolist()]
        start = stop - len(records)
        letters = (
            [
                self._letter(start + bounds[one.record], records[bounds[one.record] : bounds[one.record + 1]], one)
                for one in refused
            ]
            if self._wanted.letters
            else []
        )
        made = self._wanted.delivered(rows), checksum, self._is_end(stop)
        return PartitionRead(stop, *made, self._wanted.letter_rows(letters), self._wanted.counted(len(refused)))

    def _letter(self, offset: int, record: bytes, refused: Refused) -> dict[str, Any]:
        """A row of ``FileDeadLetter``."""
        assert self._wanted.letters is not None
        numbered = "line" in self._wanted.letters.names
        return {
            "path": self.name,
            "line": self._lines.at(offset) if numbered else 0,
            "offset": offset,
            "value": record.removesuffix(b"\n").removesuffix(b"\r"),
            "reason": refused.reason,
        }

    def _begin(self) -> bool:
        """Reads what precedes the first record; False if the file does not yet have all of it."""
        if self._first_record is None:
            head = self._pread(0, min(HEAD_BYTES, self._size_bytes))
            if self._grows and not len(line_ends(head)) and len(head) < HEAD_BYTES:
                return False
            self._first_record = self._format.begin(head, self.name)
        return True

    def _is_end(self, position: int) -> bool:
        return position >= self._size_bytes and not self._grows

    def _window_at(self, start: int) -> _Window:
        window = self._window
        if not window.start <= start < window.start + len(window.content):
            self._window = window = self._load(start)
        return window

    def _load(self, start: int) -> _Window:
        """Reads a block ahead, or more if a record is longer than a block."""
        wanted = BLOCK_BYTES
        while True:
            content = self._pread(start, min(wanted, self._size_bytes - start))
            ends = self._complete(start, content)
            if len(ends):
                return _Window(start, content[: ends[-1]], ends + start)
            if self._grows and start + len(content) == self._size_bytes:
                return _Window(start, b"", ends)
            if (wanted := 4 * wanted) > RECORD_BYTES_MAX:
                return self._first_line(start, content)

    def _first_line(self, start: int, content: bytes) -> _Window:
        """The first line of a record that does not end, because a quote was not closed. Raises SourceError where that
        fails the job."""
        lines = line_ends(content)
        if self._wanted.on_error is OnError.FAIL or not len(lines):
            limit = f"{RECORD_BYTES_MAX >> 20} MiB"
            raise SourceError(f"{self.name}: the record at byte {start} does not end within {limit}")
        return _Window(start, content[: lines[0]], lines[:1] + start)

    def _complete(self, start: int, content: bytes) -> Positions:
        return self._format.ends(content, whole=self._is_end(start + len(content)))

    def _malformed(self, start: int, records: bytes) -> SourceError:
        ends = self._complete(start, records)
        offset, complaint = first_malformed(records, ends, self._format.parse)
        place = f"{self.name}, line {self._lines.at(start + offset)} (byte {start + offset})"
        return SourceError(f"{place}: malformed record: {one_line(complaint)}; {REMEDY}")

    def _pread(self, start: int, size_bytes: int) -> bytes:
        with named_errors(self.name), open(self.name, "rb", buffering=0) as file:
            content = os.pread(file.fileno(), size_bytes, start)
        if len(content) < size_bytes:
            raise self._shrunk(start + len(content), start + size_bytes)
        return content

    def _shrunk(self, end: int, expected: int) -> SourceError:
        kept = ONLY_GROW if self._grows else UNCHANGED
        return SourceError(f"{self.name} has shrunk: it ends at byte {end}, {expected} was expected; {kept}")


class _LineNumbers:
    """Line numbers of byte positions. Calls mostly come in ascending order, so earlier lines are counted only once."""

    def __init__(self, read: Callable[[int, int], bytes]) -> None:
        """``read(position, size)`` returns bytes of the file."""
        self._read = read
        self._position, self._lines = 0, 0

    def at(self, position: int) -> int:
        """The line number of a position, from 1."""
        if position < self._position:
            self._position, self._lines = 0, 0
        while self._position < position:
            piece = self._read(self._position, min(_COUNTED_BYTES, position - self._position))
            self._lines += piece.count(b"\n")
            self._position += len(piece)
        return self._lines + 1
