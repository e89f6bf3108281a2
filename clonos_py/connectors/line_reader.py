"""A file of lines as a partition: positions are byte offsets, and each read ends after a complete record."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import xxhash

from clonos_py.connectors.file_content import HEAD_BYTES, FileContent, shrunk
from clonos_py.connectors.line_formats import LineFormat, foreign
from clonos_py.connectors.malformed import REMEDY, OnError, Refused, RequestedColumns, parsed
from clonos_py.connectors.partitions import PartitionRead
from clonos_py.connectors.record_ends import Records, without_line_end
from clonos_py.model.errors import SourceError

BLOCK_BYTES = 1 << 20
RECORD_BYTES_MAX = 64 << 20
_COUNTED_BYTES = 8 << 20
_SIGNATURE_BYTES = 16


class _Window(NamedTuple):
    """Complete records read ahead, and their bytes, which begin at ``start`` in the file."""

    start: int
    content: bytes
    records: Records


_EMPTY = _Window(0, b"", Records(np.zeros(0, np.int64)))


class LinePartition:
    """One file of lines. A last line without a line end counts, except in a file that ``grows``."""

    def __init__(
        self,
        content: FileContent,
        line_format: LineFormat,
        requested: RequestedColumns,
        read_rows: int | None,
        grows: bool = False,
    ) -> None:
        """``line_format`` parses the columns ``requested.parsed``."""
        self.name, self._grows = content.name, grows
        self._content = content
        self._format, self._requested = line_format, requested
        self._lines = _LineNumbers(content.another().read, line_format.line_count)
        self._read_rows = read_rows
        self._first_record: int | None = None
        self._window = _EMPTY

    @property
    def stored_bytes(self) -> int:
        return self._content.stored_bytes

    def grow(self, stored_bytes: int) -> None:
        """Sets the current size of the file."""
        self._content.grow(stored_bytes)

    def checksum(self, start: int, stop: int) -> int:
        """The checksum of a read, computed from the current bytes."""
        return _checksum(self._pread(start, stop - start))

    def check_end(self, position: int) -> None:
        """Raises SourceError if the last line had no line end when it was read, and was continued since."""
        if position <= 0 or self._ends_at(position) or self._begin() is None:
            return
        before = self._pread(position - 1, 1)
        after = self._content.read(position, 2).replace(b"\r\n", b"\n")
        blank_is_row = self._format.records(b"\n", whole=True).row_count(0, 1) > 0
        if not self._is_line_end(before) and (blank_is_row or not self._is_line_end(after[:1])):
            raise SourceError(
                f"{self.name} was continued at byte {position}, in its last line, which had no line end and was read "
                "as it was: end each line of a file that grows with a line end, and start over with --fresh"
            )

    def next(self, start: int, rows_max: int | None) -> PartitionRead | None:
        end = self._content.end_before(start)
        if end is not None and end < start:
            raise shrunk(self.name, end, start, self._grows)
        if end == start or (first := self._begin()) is None:
            return None
        at = max(start, first)
        window = _EMPTY if self._ends_at(at) else self._window_at(at)
        ends = window.records.ends
        number = int(np.searchsorted(ends, at - window.start, side="right"))
        limits = [rows for rows in (self._read_rows, rows_max) if rows is not None]
        last = min([len(ends), *(number + rows for rows in limits)])
        stop = window.start + int(ends[last - 1]) if last > number else at
        if stop == start:
            return None
        content = window.content[at - window.start : stop - window.start]
        records = window.records.between(number, last, at - window.start)
        return self._piece(start, stop, content, records)

    def between(self, start: int, stop: int) -> PartitionRead:
        at = min(stop, max(start, self._begin() or 0))
        content = self._pread(at, stop - at)
        return self._piece(start, stop, content, self._format.records(content, whole=True))

    def _piece(self, start: int, stop: int, content: bytes, records: Records) -> PartitionRead:
        """The rows of ``content``, which ends at ``stop``. What lies between ``start`` and it precedes the first
        record. Drops and counts malformed records, and emits them as dead letters if requested. Raises SourceError
        where a malformed record fails the job."""
        at = stop - len(content)
        before = self._pread(start, at - start) if start < at else b""
        fails = self._requested.on_error is OnError.FAIL
        found = parsed(self._format, content, records, refused_max=0 if fails else None)
        if found.refused and fails:
            raise self._malformed(at, records, found.refused[0])
        letters = self._letters(at, content, records, found.refused) if self._requested.letters else []
        return PartitionRead(
            stop,
            self._requested.delivered(found.rows),
            _checksum(before + content if before else content),
            self._is_end(stop),
            self._requested.letter_rows(letters),
            self._requested.counted(len(found.refused)),
        )

    def _letters(self, at: int, content: bytes, records: Records, refused: Sequence[Refused]) -> list[dict[str, Any]]:
        bounds = [0, *records.ends.tolist()]
        return [
            self._letter(at + bounds[one.record], content[bounds[one.record] : bounds[one.record + 1]], one)
            for one in refused
        ]

    def _letter(self, offset: int, record: bytes, refused: Refused) -> dict[str, Any]:
        """A row of ``FileDeadLetter``."""
        assert self._requested.letters is not None
        numbered = "line" in self._requested.letters.names
        return {
            "path": self.name,
            "line": self._lines.at(offset) if numbered else 0,
            "offset": offset,
            "value": without_line_end(record),
            "reason": refused.reason,
        }

    def _is_line_end(self, byte: bytes) -> bool:
        ends = self._format.records(byte + b"x", whole=False).ends
        return len(ends) > 0 and int(ends[0]) == 1

    def _begin(self) -> int | None:
        """Reads what precedes the first record, and returns the position of that; None if the file does not yet have
        all of it."""
        head_bytes = HEAD_BYTES
        while self._first_record is None:
            head = self._content.read(0, head_bytes)
            is_all = self._ends_at(len(head))
            self._first_record = self._format.begin(head, self.name, whole=is_all and not self._grows)
            if self._first_record is None and is_all:
                return None
            if self._first_record is None and head_bytes >= RECORD_BYTES_MAX:
                raise self._endless(0)
            head_bytes *= 4
        return self._first_record

    def _ends_at(self, position: int) -> bool:
        return self._content.end_before(position) is not None

    def _is_end(self, position: int) -> bool:
        return not self._grows and self._ends_at(position)

    def _window_at(self, start: int) -> _Window:
        window = self._window
        if not window.start <= start < window.start + len(window.content):
            self._window = window = self._load(start)
        return window

    def _load(self, start: int) -> _Window:
        """Reads a block ahead, or more if a record is longer than a block."""
        length_bytes = min(BLOCK_BYTES, RECORD_BYTES_MAX)
        while True:
            content = self._content.read(start, length_bytes)
            is_all = self._ends_at(start + len(content))
            records = self._format.records(content, whole=is_all and not self._grows)
            if not len(records.ends) and length_bytes == RECORD_BYTES_MAX <= len(content):
                records = self._first_line(start, content)
            if len(records.ends):
                return _Window(start, content[: records.ends[-1]], records)
            if is_all:
                return _Window(start, b"", records)
            length_bytes = min(4 * length_bytes, RECORD_BYTES_MAX)

    def _first_line(self, start: int, content: bytes) -> Records:
        """The first line of a record that does not end, because a quote was not closed."""
        records = self._format.records(content, whole=True)
        if 0 not in records.alone or content[records.ends[0] - 1] not in b"\r\n":
            raise self._endless(start)
        return records.between(0, 1, 0)

    def _endless(self, start: int) -> SourceError:
        limit = f"{RECORD_BYTES_MAX >> 20} MiB"
        return SourceError(f"{self.name}: the record at byte {start} does not end within {limit}")

    def _malformed(self, at: int, records: Records, refused: Refused) -> SourceError:
        offset = at + (int(records.ends[refused.record - 1]) if refused.record else 0)
        place = f"{self.name}, line {self._lines.at(offset)} (byte {offset})"
        what = foreign(self._content.read(0, _SIGNATURE_BYTES)) if offset == self._first_record else ""
        return SourceError(f"{place}: malformed record: {refused.reason}{what}; {REMEDY}")

    def _pread(self, start: int, size_bytes: int) -> bytes:
        content = self._content.read(start, size_bytes)
        if len(content) < size_bytes:
            raise shrunk(self.name, start + len(content), start + size_bytes, self._grows)
        return content


def _checksum(content: bytes) -> int:
    return xxhash.xxh3_64_intdigest(content) >> 1


class _LineNumbers:
    """Line numbers of byte positions. Calls mostly come in ascending order, so earlier lines are counted only once."""

    def __init__(self, read: Callable[[int, int], bytes], count: Callable[[bytes, bytes], int]) -> None:
        """``read(position, size)`` returns bytes of the file. ``count``: see ``LineFormat.line_count``."""
        self._read, self._count = read, count
        self._start()

    def _start(self) -> None:
        self._position, self._lines, self._last = 0, 0, b""

    def at(self, position: int) -> int:
        """The line number of a position, from 1."""
        if position < self._position:
            self._start()
        while self._position < position:
            piece = self._read(self._position, min(_COUNTED_BYTES, position - self._position))
            self._lines += self._count(piece, self._last)
            self._position, self._last = self._position + len(piece), piece[-1:]
        return self._lines + 1
