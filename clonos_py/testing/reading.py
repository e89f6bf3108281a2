"""Reads a source as a task does, and records what it delivered."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from clonos_py.model.connectors import SourceDefinition
from clonos_py.model.operators import Discovered, End, LastRead, Read, Source, Wait
from clonos_py.testing.rules import Rule, broken, holding

_NOW_US = 1_700_000_000_000_000
_QUIET_MAX = 20
"""After this many polls without rows the source counts as empty for now."""

READS = Rule("a source can be read", "see the error")
POLLS = Rule(
    "poll gives a Read, a Wait, an End or what is Discovered",
    "give Wait(now + ...) where there are no rows for now, and End() where there will be none",
)
ADVANCES = Rule(
    "positions advance with the rows",
    "stop is the position behind the last row of the read, and higher than start where there are rows",
)
JOINS = Rule("a read begins where the last one of its partition ended", "begin each read at the stop of the one before")
SEEK = Rule(
    "reading goes on at the position that it was given",
    "the position is the one behind the last row that was read: give the row there first, without skipping it",
)
CONTINUES = Rule(
    "after a piece was read again, reading goes on behind it", "reread moves the partition's position to stop"
)
ENDS = Rule("a partition whose read was the last gives no more", "set last only where no row can follow")
ENDS_AGAIN = Rule(
    "a partition at its end is marked as such again after a seek, so that it holds no watermark back",
    "give an empty read with last=True for each partition at whose end a seek begins",
)
SCHEMA = Rule("rows have the schema that the definition declares", "cast the columns, or declare what they are")


class Content(dict[tuple[int, int], list[str]]):
    """Rows as text for comparison, by partition and port."""

    @classmethod
    def of(cls, reads: Iterable[Read], columns: Sequence[tuple[str, ...]] | None = None) -> Content:
        """The rows of some reads; with ``columns`` only those columns of each port."""
        found = cls()
        found.add(reads, columns)
        return found

    def add(self, reads: Iterable[Read], columns: Sequence[tuple[str, ...]] | None = None) -> None:
        for read in reads:
            for port, rows in enumerate(read.rows):
                given = self.setdefault((read.partition, port), [])
                if rows is not None:
                    taken = rows if columns is None else rows.select(list(columns[port]))
                    given.extend(map(repr, taken.to_pylist()))

    def without(self, first: Content) -> Content:
        """The rows after those of ``first``."""
        return Content({key: rows[len(first.get(key, [])) :] for key, rows in self.items()})

    def difference(self, expected: Content, whole: bool) -> str | None:
        """The first difference between the rows; None if they are the same. Contents that are not ``whole`` are
        compared only up to the length of the shorter one."""
        for key in sorted({*self, *expected}):
            found, others = self.get(key, []), expected.get(key, [])
            both = min(len(found), len(others))
            for number in range(both):
                if found[number] != others[number]:
                    return f"partition {key[0]}: row {number} is {found[number]}, and was {others[number]}"
            if whole and len(found) != len(others):
                surplus = (found[both:] or others[both:])[0]
                kind = "too many" if len(found) > both else "missing"
                return f"partition {key[0]}: {len(found)} rows instead of {len(others)}; {kind} is {surplus}"
        return None


class Reading:
    """One instance of a source, and what it has delivered. Error messages name ``named``."""

    def __init__(
        self,
        named: SourceDefinition,
        definition: SourceDefinition,
        index: int,
        parallelism: int,
        columns: tuple[tuple[str, ...], ...] | None = None,
        read_rows: int | None = None,
    ) -> None:
        self._named = named
        requested = columns or (None,) * len(definition.schemas)
        names = [schema.names if c is None else c for schema, c in zip(definition.schemas, requested, strict=True)]
        self._types = [
            [(name, schema.field(name).type) for name in given]
            for schema, given in zip(definition.schemas, names, strict=True)
        ]
        with holding(named, READS):
            self.source: Source = definition.create(requested, read_rows)
            self.source.open(index, parallelism)
            self.source.recall(self._last_read)
        self.seek({}, None)

    def seek(self, positions: Mapping[int, int], saved: Any, before: Sequence[Read] = ()) -> None:
        """Starts at the positions of a checkpoint, as a restart does. ``before``: the reads that it covers."""
        self.reads: list[Read] = []
        self._last: dict[int, LastRead] = {}
        self._remember(before)
        self.ended = False
        """True once all partitions have ended; False if they only have no rows for now."""
        self.starts: dict[int, int] = {}
        """The start positions of discovered partitions."""
        self._positions = dict(positions)
        self._begins = dict.fromkeys(positions, SEEK)
        """By partition: the rule that its next read checks, if not JOINS."""
        self._finished: set[int] = set()
        self._now_us = _NOW_US
        with holding(self._named, READS):
            if saved is not None:
                self.source.restore(msgspec.msgpack.decode(msgspec.msgpack.encode(saved)))
            self.source.seek(dict(positions))

    def discovered(self, starts: Mapping[int, int]) -> None:
        """Announces partitions that the log records as discovered."""
        if starts:
            self.source.discovered(starts)

    def positions_after(self, reads: int) -> dict[int, int]:
        """The positions that a checkpoint after so many reads has, including those of discovered partitions."""
        return self.starts | {read.partition: read.stop for read in self.reads[:reads]}

    def take(self, reads: Sequence[Read]) -> None:
        """Marks reads as replayed: reading goes on after them."""
        self._positions |= {read.partition: read.stop for read in reads}
        self._remember(reads)
        self._begins |= dict.fromkeys(self._positions, CONTINUES)
        self._finished |= {read.partition for read in reads if read.last}

    def read_on(self, rows_max: int) -> None:
        """Polls until the source ends, has no rows for now, or has delivered so many rows."""
        quiet = 0
        while rows_max > 0 and quiet < _QUIET_MAX:
            with holding(self._named, READS):
                given = self.source.poll(self._now_us)
            match given:
                case Read():
                    self._check(given)
                    self.reads.append(given)
                    rows_max -= given.row_count
                    quiet = 0 if given.row_count or given.last else quiet + 1
                case Discovered(starts):
                    self.starts |= starts
                    self.source.discovered(starts)
                    quiet += 1
                case Wait(until):
                    self.source.wait_for_rows()
                    self._now_us = max(until, self._now_us + 1)
                    quiet += 1
                case End():
                    self.ended = True
                    return
                case _:
                    broken(self._named, POLLS, f"it gave {given!r}")

    @property
    def content(self) -> Content:
        return Content.of(self.reads)

    def _check(self, read: Read) -> None:
        partition, count = read.partition, self.source.partitions()
        place = f"partition {partition} [{read.start}, {read.stop}) with {read.row_count} rows"
        if not 0 <= partition < (count if count and not self.source.grows else 1 << 63):
            broken(self._named, READS, f"{place}: there are {count} partitions")
        expected = self._positions.get(partition, self.starts.get(partition, read.start))
        if read.start != expected:
            broken(self._named, self._begins.get(partition, JOINS), f"{place} follows position {expected}")
        if not 0 <= read.start <= read.stop < 1 << 63 or (read.row_count > 0 and read.stop == read.start):
            broken(self._named, ADVANCES, place)
        if partition in self._finished and read.row_count:
            broken(self._named, ENDS, place)
        self._positions[partition] = read.stop
        self._remember([read])
        self._begins.pop(partition, None)
        self._finished |= {partition} if read.last else set()
        self._check_schema(read)

    def _last_read(self, partition: int) -> LastRead | None:
        return self._last.get(partition)

    def _remember(self, reads: Sequence[Read]) -> None:
        self._last |= {
            one.partition: LastRead(one.start, one.stop, one.checksum, one.identity)
            for one in reads
            if one.stop > one.start
        }

    def _check_schema(self, read: Read) -> None:
        if len(read.rows) != len(self._types):
            broken(self._named, SCHEMA, f"a read has rows for {len(read.rows)} ports of {len(self._types)}")
        for rows, types in zip(read.rows, self._types, strict=True):
            found = types if rows is None else [(field.name, field.type) for field in rows.schema]
            if found != types:
                broken(self._named, SCHEMA, f"it gave {_listed(found)}, and {_listed(types)} is declared")


def _listed(types: Iterable[tuple[str, Any]]) -> str:
    return ", ".join(f"{name} {kind}" for name, kind in types)
