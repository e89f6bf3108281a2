"""A source that reads one source to its end and then goes on with another: files of the past, then the topic of now.

Each source keeps its partitions. Those of the second get numbers of their own, by an offset that does not change which
task a partition belongs to. A task discovers them when it has read its partitions of the first source, before the last
of these ends: else no partition would hold event time back, and rows of the second source could be late.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import lcm
from typing import Any

import pyarrow as pa
from typing_extensions import TypeVar

from clonos_py.model.connectors import SourceDefinition
from clonos_py.model.errors import GraphError, SourceError
from clonos_py.model.operators import Discovered, End, LastRead, Read, Source, Wait
from clonos_py.model.record import Record

R = TypeVar("R", bound=Record, default=Any)
SECOND = 12 * lcm(*range(1, 37))
"""The number of the second source's partition 0. It is a multiple of all parallelisms up to 36, and of 48, 64, 96 and
128."""


class SequenceSource(SourceDefinition[R]):
    """Reads ``first``, which must end, such as a FileSource, and then goes on with ``then``, such as a KafkaSource
    whose ``start`` is where the files end. Both give the same columns.

    Each task goes on when it has read its own partitions of ``first``, so that another one may still read the past:
    give ``job.source`` an ``ahead`` if it is not to run far ahead of that. A run that resumes goes on in the source in
    which it was. Sources whose rows are logged are refused.
    """

    def __init__(self, first: SourceDefinition[R], then: SourceDefinition[R]) -> None:
        for given in (first, then):
            if not isinstance(given, SourceDefinition):
                raise GraphError(f"SequenceSource: {given!r} is not a source")
        if len(first.schemas) != 1 or len(then.schemas) != 1:
            raise GraphError("SequenceSource: it takes sources of one stream: leave out .catch()")
        if (difference := _difference(first.schemas[0], then.schemas[0])) is not None:
            raise GraphError(f"SequenceSource: both sources must have the same columns: {difference}")
        self._first, self._then = first, then
        self.schemas, self.records = first.schemas, first.records
        self.commits = first.commits or then.commits

    def identified_by(self, columns: frozenset[str]) -> None:
        self._first.identified_by(columns)
        self._then.identified_by(columns)

    def resolve(self) -> None:
        self._first.resolve()
        self._then.resolve()

    def create(self, columns: tuple[tuple[str, ...] | None, ...], read_rows: int | None = None) -> Source:
        both = [source.create(columns, read_rows) for source in (self._first, self._then)]
        if any(source.logs_rows for source in both):
            raise SourceError("SequenceSource: it takes sources whose rows can be read again, not replay='logged'")
        if not both[0].partitions():
            name = type(self._first).__name__
            raise SourceError(f"SequenceSource: {name} does not end, so nothing would follow: leave out follow=True")
        return _Sequence(*both)


def _difference(first: pa.Schema, then: pa.Schema) -> str | None:
    if first.names != then.names:
        return f"one has {', '.join(first.names)}, the other {', '.join(then.names)}"
    both = zip(first, then, strict=True)
    return next((f"{a.name!r} is {a.type} in one, {b.type} in the other" for a, b in both if a.type != b.type), None)


class _Sequence(Source):
    """The reader of one task."""

    grows = True

    def __init__(self, first: Source, then: Source) -> None:
        self._first, self._then = first, then
        self.consumes = first.consumes or then.consumes
        self._goes_on = self._first_ended = False
        """Whether the partitions of the second source are discovered; whether the first one has ended."""
        self._left: set[int] = set()
        """The partitions of the first source that have not ended."""
        self._kept: Read | None = None
        """The end of the first source, until the partitions of the second are discovered."""

    def partitions(self) -> int:
        return self._first.partitions()

    def open(self, index: int, parallelism: int) -> None:
        if SECOND % parallelism:
            raise SourceError(
                f"SequenceSource: it cannot have {parallelism} tasks, but up to 36, or 48, 64, 96 or 128: set "
                ".parallelism(...) on the source"
            )
        self._index, self._parallelism = index, parallelism
        self._first.open(index, parallelism)
        self._then.open(index, parallelism)

    def close(self) -> None:
        self._first.close()
        self._then.close()

    def notify(self, wake: Callable[[], None]) -> None:
        self._first.notify(wake)
        self._then.notify(wake)

    def recall(self, last: Callable[[int], LastRead | None]) -> None:
        self._first.recall(last)
        self._then.recall(lambda partition: last(partition + SECOND))

    def wait_for_rows(self) -> bool:
        return self._then.wait_for_rows() if self._first_ended else self._first.wait_for_rows()

    def snapshot(self) -> Any:
        return [self._first.snapshot(), self._then.snapshot()]

    def restore(self, saved: Any) -> None:
        for source, kept in zip((self._first, self._then), saved, strict=True):
            if kept is not None:
                source.restore(kept)

    def seek(self, positions: Mapping[int, int]) -> None:
        self._goes_on = any(partition >= SECOND for partition in positions)
        self._first_ended, self._kept = False, None
        self._left = set(_own(self._first, self._index, self._parallelism))
        self._first.seek({p: at for p, at in positions.items() if p < SECOND})
        self._then.seek({p - SECOND: at for p, at in positions.items() if p >= SECOND})

    def discovered(self, starts: Mapping[int, int]) -> None:
        self._goes_on |= bool(starts)
        self._then.discovered({partition - SECOND: at for partition, at in starts.items()})

    def commit(self, positions: Mapping[int, int]) -> None:
        self._first.commit({p: at for p, at in positions.items() if p < SECOND})
        self._then.commit({p - SECOND: at for p, at in positions.items() if p >= SECOND})

    def rows_waiting(self) -> int | None:
        both = [source.rows_waiting() for source in (self._first, self._then)]
        known = [rows for rows in both if rows is not None]
        return sum(known) if len(known) == len(both) else None

    def bytes_kept(self) -> int | None:
        both = [source.bytes_kept() for source in (self._first, self._then)]
        known = [size for size in both if size is not None]
        return sum(known) if known else None

    def limit(self, rows: int) -> None:
        self._first.limit(rows)
        self._then.limit(rows)

    def poll(self, now: int) -> Read | Wait | End | Discovered:
        if self._kept is not None:
            return self._on_to_then(now) or self._last_of_first()
        if self._first_ended:
            return self._on_to_then(now) or self._of_then(self._then.poll(now))
        found = self._first.poll(now)
        if isinstance(found, End):
            self._first_ended = True
            return self.poll(now)
        if isinstance(found, Read) and found.last:
            self._left.discard(found.partition)
            if not self._left and not self._goes_on:
                self._kept = found
                return self.poll(now)
        return found

    def reread(self, partition: int, start: int, stop: int) -> Read:
        if partition < SECOND:
            read = self._first.reread(partition, start, stop)
            self._left -= {partition} if read.last else set()
            return read
        return _moved(self._then.reread(partition - SECOND, start, stop))

    def _last_of_first(self) -> Read:
        kept, self._kept = self._kept, None
        assert kept is not None
        return kept

    def _on_to_then(self, now: int) -> Discovered | None:
        """The partitions of the second source, until they are taken; None if there are none to discover now."""
        if self._goes_on:
            return None
        if self._then.partitions():
            own = _own(self._then, self._index, self._parallelism)
            starts: Mapping[int, int] = {partition: self._then.begins(partition) for partition in own}
        else:
            found = self._then.poll(now)
            starts = found.starts if isinstance(found, Discovered) else {}
        return Discovered({partition + SECOND: at for partition, at in starts.items()}) if starts else None

    def _of_then(self, found: Read | Wait | End | Discovered) -> Read | Wait | End | Discovered:
        match found:
            case Read():
                return _moved(found)
            case Discovered(starts):
                return Discovered({partition + SECOND: at for partition, at in starts.items()})
        return found


def _own(source: Source, index: int, parallelism: int) -> range:
    return range(index, source.partitions(), parallelism)


def _moved(read: Read) -> Read:
    return read._replace(partition=read.partition + SECOND)
