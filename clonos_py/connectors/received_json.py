"""Readers of JSON objects that a server gives one by one, such as the data of events or the messages of a socket."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from clonos_py.connectors.line_formats import JsonLines
from clonos_py.connectors.malformed import REMEDY, OnError, RequestedColumns, parsed
from clonos_py.connectors.resumable_feed import ReceivedItem, ResumableReader
from clonos_py.model.errors import SourceError


class ReceivedJsonReader(ResumableReader[bytes]):
    """The reader of one task. Each item is an object, or blank, which is no row; offsets count
    both. ``noun`` is what the server calls an item."""

    noun: str

    def __init__(
        self, requested: RequestedColumns, read_rows: int | None, where: str, away_s: float, start: Any = None
    ) -> None:
        super().__init__(requested, read_rows, where, away_s, start)
        self._format = JsonLines(requested.parsed)

    @abstractmethod
    def letter(self, item: ReceivedItem[bytes], number: int) -> Mapping[str, Any]:
        """The dead letter of an item, without ``value`` and ``reason``. ``number``: the one that it has, from 1, among
        all items that the job has received."""

    def place(self, item: ReceivedItem[bytes], number: int) -> str:
        """What names an item in an error."""
        return f"{self.noun} {number} since the job began"

    def rows_of(
        self, received: Sequence[ReceivedItem[bytes]], position: int
    ) -> tuple[pa.RecordBatch | None, pa.RecordBatch | None, dict[str, int]]:
        numbered = [(number, item) for number, item in enumerate(received, position + 1) if item.content.strip()]
        lines = b"".join(b" ".join(item.content.splitlines()) + b"\n" for _, item in numbered)
        fails = self.requested.on_error is OnError.FAIL
        found = parsed(self._format, lines, self._format.records(lines, whole=True), refused_max=0 if fails else None)
        refused = [(*numbered[record.record], record.reason) for record in found.refused]
        if refused and fails:
            number, item, reason = refused[0]
            place = self.place(item, number)
            raise SourceError(f"{self.where}, {place}: malformed {self.noun}: {reason}; {REMEDY}")
        letters = [
            {**self.letter(item, number), "value": item.content, "reason": reason} for number, item, reason in refused
        ]
        rows = self.requested.delivered(found.rows)
        return rows, self.requested.letter_rows(letters), self.requested.counted(len(refused))
