"""``check_source``: checks that a source keeps the contract for replay and resuming."""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import cloudpickle  # type: ignore[import-untyped]
import msgspec

from clonos_py.model.connectors import SourceDefinition
from clonos_py.model.operators import Read, Source
from clonos_py.model.record import Record
from clonos_py.testing.reading import CONTINUES, ENDS_AGAIN, SEEK, Content, Reading
from clonos_py.testing.rules import Rule, broken, differing, holding

_CUTS_MAX = 25
_LIMITS = (1, 3)

PORTABLE = Rule(
    "a definition can be sent to other processes",
    "keep addresses and settings in it, and open files and connections where they are used",
)
HAS_ROWS = Rule("a source gives rows", "give the check a source that has some, more than one for each partition")
COMPLETE = Rule("every row is read once", "look for rows that are skipped or given twice where one read ends")
REPEATABLE = Rule(
    "the same positions have the same rows, in every process",
    "read what does not change: an order that is fixed, and no time, no random numbers, no set",
)
REREAD = Rule(
    "a piece that is read again has the same rows",
    "begin exactly at its start and end exactly at its stop; a source that cannot says logs_rows = True",
)
SEEK_BACK = Rule(
    "a source that has read on can go back",
    "begin at the position that is given with each call, and keep nothing that was read ahead of another one",
)
CUTS = Rule(
    "positions do not depend on how many rows are asked for",
    "end a read right behind its last row: the position after n rows is the same whether they were one read or many",
)
SHARED = Rule(
    "partition p belongs to instance p % parallelism",
    "read only these partitions in each instance, whatever the parallelism",
)
COLUMNS = Rule("a source gives the columns that are asked for", "select columns[port] from the rows, in that order")


def check_source(source: SourceDefinition, rows: Iterable[Any] | None = None, rows_max: int = 1_000) -> None:
    """Checks a source. Raises AssertionError naming the broken rule and its remedy.

    ``rows``: the expected rows (records or dicts) of the first port, in any order. At most ``rows_max`` rows are read,
    several times; of a source without end these are the first ones. The check does not wait for a source without rows
    for now, unless the source's ``wait_for_rows`` does.

    The source is read as tasks read it: whole, in small pieces, by several tasks, from every position, and again as in
    a replay. A source with ``logs_rows`` is not read again.
    """
    _Check(source, rows_max).run(rows)


class _Check:
    def __init__(self, source: SourceDefinition, rows_max: int) -> None:
        self._source, self._rows_max = source, rows_max
        self._opened: list[Reading] = []
        source.resolve()
        with holding(source, PORTABLE):
            self._pickled: bytes = cloudpickle.dumps(source)
            pickle.loads(self._pickled)
        self._whole = self._reading()
        self._whole.read_on(rows_max)
        self._content = self._whole.content
        self._repeatable = not self._whole.source.logs_rows

    def run(self, rows: Iterable[Any] | None) -> None:
        try:
            self._run(rows)
        finally:
            self._close_from(0)

    def _run(self, rows: Iterable[Any] | None) -> None:
        if not any(self._content.values()):
            broken(self._source, HAS_ROWS, "it gave none")
        if rows is not None:
            self._check_complete(list(rows))
        if self._repeatable:
            self._check_again()
            self._check_rereads()
            for cut in self._cuts:
                self._check_seek(cut)
            for cut in self._cuts:
                self._check_replay(cut)
            self._check_seek_back()
        self._check_limits()
        self._check_instances()
        self._check_columns()

    def _reading(self, index: int = 0, parallelism: int = 1, **created: Any) -> Reading:
        """An instance of the source, created as in a process of its own."""
        self._close_from(1)
        definition: SourceDefinition = pickle.loads(self._pickled)
        reading = Reading(self._source, definition, index, parallelism, **created)
        self._opened.append(reading)
        return reading

    def _close_from(self, first: int) -> None:
        """Closes instances, with what they have opened. The first one stays open beside the others."""
        for reading in self._opened[first:]:
            reading.source.close()
        del self._opened[first:]

    @property
    def _reads(self) -> Sequence[Read]:
        return self._whole.reads

    @property
    def _cuts(self) -> list[int]:
        """The numbers of reads after which a failure is simulated."""
        step = max(1, len(self._reads) // _CUTS_MAX)
        return sorted({*range(0, len(self._reads), step), len(self._reads)})

    def _check_complete(self, rows: list[Any]) -> None:
        found = Counter(row for (_, port), given in self._content.items() if port == 0 for row in given)
        expected = Counter(repr(msgspec.structs.asdict(row) if isinstance(row, Record) else dict(row)) for row in rows)
        if found != expected:
            missing, surplus = sorted((expected - found).elements()), sorted((found - expected).elements())
            broken(self._source, COMPLETE, differing(missing, surplus))

    def _check_again(self) -> None:
        reading = self._reading()
        reading.read_on(self._rows_max)
        self._compare(REPEATABLE, self._content, reading.content, "read by another process")

    def _check_limits(self) -> None:
        """Checks reading few rows at a time; a process without that limit then rereads the same pieces."""
        for limit in _LIMITS:
            small = self._reading(read_rows=limit)
            small.source.limit(limit)
            small.read_on(self._rows_max)
            if self._repeatable:
                self._compare(CUTS, self._content, small.content, f"read with limit({limit})")
                again = self._reading()
                again.discovered(small.starts)
                for read in small.reads:
                    self._reread(CUTS, again.source, read)

    def _check_rereads(self) -> None:
        reading = self._reading()
        reading.discovered(self._whole.starts)
        for read in self._reads:
            self._reread(REREAD, reading.source, read)

    def _reread(self, rule: Rule, source: Source, read: Read) -> None:
        place = f"partition {read.partition} [{read.start}, {read.stop})"
        with holding(self._source, rule):
            again = source.reread(read.partition, read.start, read.stop)
        now, before = Content.of([again]), Content.of([read])
        self._compare(rule, before, now, f"{place} read again")
        if (again.start, again.stop, again.last) != (read.start, read.stop, read.last):
            seen = f"{place}, last={read.last}, came again as [{again.start}, {again.stop}), last={again.last}"
            broken(self._source, rule, seen)
        if again.checksum != read.checksum:
            broken(self._source, rule, f"{place} had the checksum {read.checksum} and now {again.checksum}")

    def _check_seek(self, cut: int) -> None:
        resumed = self._reading()
        resumed.seek(self._whole.positions_after(cut), self._whole.source.snapshot(), self._reads[:cut])
        resumed.read_on(self._rows_left(cut))
        rest = self._content.without(Content.of(self._reads[:cut]))
        self._compare(SEEK, rest, resumed.content, f"seek({self._whole.positions_after(cut)})")
        before = self._reads[:cut]
        ended, marked = ({read.partition for read in reads if read.last} for reads in (before, resumed.reads))
        if any(read.partition not in ended for read in self._reads[cut:]) and resumed.ended and ended - marked:
            place = f"seek({self._whole.positions_after(cut)})"
            broken(self._source, ENDS_AGAIN, f"after {place} no read marks partition {min(ended - marked)}")

    def _check_replay(self, cut: int) -> None:
        """Checks the steps of a replacement: restore a checkpoint, replay the log, read new rows."""
        reading = self._reading()
        before = max(0, cut - 2)
        reading.seek(self._whole.positions_after(before), self._whole.source.snapshot(), self._reads[:before])
        for read in self._reads[before:cut]:
            self._reread(REREAD, reading.source, read)
        reading.take(self._reads[before:cut])
        reading.read_on(self._rows_left(cut))
        rest = self._content.without(Content.of(self._reads[:cut]))
        self._compare(CONTINUES, rest, reading.content, f"reread up to {self._whole.positions_after(cut)}, then poll")

    def _check_seek_back(self) -> None:
        reading = self._reading()
        reading.read_on(self._rows_max)
        reading.seek(self._whole.positions_after(0), self._whole.source.snapshot())
        reading.read_on(self._rows_max)
        self._compare(SEEK_BACK, self._content, reading.content, "read to the end, then from the beginning")

    def _check_instances(self) -> None:
        for parallelism in (2, 3):
            found = Content()
            for index in range(parallelism):
                reading = self._reading(index, parallelism)
                reading.read_on(self._rows_max)
                for read in reading.reads:
                    if read.partition % parallelism != index:
                        seen = f"instance {index} of {parallelism} read partition {read.partition}"
                        broken(self._source, SHARED, seen)
                found.add(reading.reads)
            if self._repeatable:
                self._compare(SHARED, self._content, found, f"read by {parallelism} instances")

    def _check_columns(self) -> None:
        reordered = tuple(tuple(reversed(schema.names[-2:])) for schema in self._source.schemas)
        reading = self._reading(columns=reordered)
        reading.read_on(self._rows_max)
        if self._repeatable:
            expected = Content.of(self._reads, reordered)
            self._compare(COLUMNS, expected, reading.content, f"created with columns {reordered}")

    def _rows_left(self, cut: int) -> int:
        return self._rows_max - sum(read.row_count for read in self._reads[:cut])

    def _compare(self, rule: Rule, expected: Content, found: Content, when: str) -> None:
        """Compares rows. ``expected`` may be cut short, and so may ``found`` if the source has no end."""
        difference = found.difference(expected, whole=self._whole.ended)
        if difference is not None:
            broken(self._source, rule, f"{when}: {difference}")
