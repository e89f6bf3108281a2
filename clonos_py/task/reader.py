"""Reads the source at the head of a task, and holds its positions and per-partition watermarks (P6)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec

from clonos_py.causal.determinants import Determinant, ReadBatch, SourceRead
from clonos_py.columns.row_watermarks import RowsBehind, with_watermarks
from clonos_py.columns.times import extent
from clonos_py.model.errors import DivergenceError, SourceError
from clonos_py.model.operators import (
    Discovered,
    End,
    EventTime,
    EventTimeAssigner,
    LastRead,
    Read,
    Source,
    Wait,
)
from clonos_py.model.plan import SourcePlan
from clonos_py.model.state import OperatorState
from clonos_py.model.times import MIN_TIME
from clonos_py.task.idleness import Idleness
from clonos_py.task.logged_reads import content_of, read_of
from clonos_py.task.partition_times import PartitionTimes
from clonos_py.task.stored_partitions import StoredPartition, StoredPartitions
from clonos_py.task.time_extents import TimeExtents

Ask = Callable[[str, Callable[[], Any]], Any]
"""See ``Gate.ask``."""

_READS_TOGETHER = 8
_EVENTS_TOGETHER = 32_768
_BYTES_TOGETHER = 4 << 20
"""A read of several partitions ends after this many events or bytes: few rows may remain of many events, and rows may
be large."""

_CHECKSUM_MAX = (1 << 64) - 1
_NEITHER = (MIN_TIME, False)

_decode_positions = msgspec.msgpack.Decoder(dict[int, int]).decode


def determinants_of(reads: Sequence[Read]) -> list[Determinant]:
    """The determinants of reads that are one event."""
    logged = [SourceRead(read.partition, read.start, read.stop, read.checksum, read.last) for read in reads]
    return [ReadBatch(len(logged)), *logged] if len(logged) > 1 else [*logged]


class Reader:
    """Wraps a Source. This task owns the partitions p with p % parallelism == index."""

    def __init__(
        self, plan: SourcePlan, index: int, parallelism: int, assigned: Mapping[str, EventTimeAssigner] | None = None
    ) -> None:
        """``assigned``: the operators, by name, that assign event time to the source's rows."""
        self.name = plan.name
        self._event_time: EventTime = plan.event_time
        self._schemas = plan.schemas
        self._merge_rows = plan.merge_rows
        self.commits = plan.commits
        self._source: Source = plan.factory()
        self._stored = StoredPartitions()
        self._source.open(index, parallelism)
        self._source.recall(self._last_read)
        self._index, self._parallelism = index, parallelism
        self.partition_count = self._source.partitions()
        """How many partitions the source had when it was opened, or restored last."""
        self._own = [p for p in range(self.partition_count) if self._is_own(p)]
        self._assigners = assigned or {}
        self._restore_times({}, {})
        self._behind = {port: RowsBehind(self._event_time.out_of_order_us) for port in plan.marked}
        self.extents = TimeExtents()
        self._idleness = Idleness(self._event_time.idle_us)
        self.ended, self.wake_us = False, 0
        self._reported_no_partitions = False
        self._source_is_behind = False
        """Whether the source has to continue at ``positions``: reads came from the log, or partitions that had ended
        are read again."""
        self.run: str | None = None
        """The run that last opened the source, see ``SourceReopened``; None: there was none before this one."""

    def restore(self, parts: Sequence[OperatorState], partitions: Mapping[int, tuple[int, bool]] | None) -> None:
        """Continues at the positions of ``parts``. ``partitions`` restores watermarks, if they are known.

        Raises SourceError if a partition that was read no longer exists."""
        saved = self._stored.restore(parts, self._parallelism, self._index)
        count, index, parallelism = self._source.partitions(), self._index, self._parallelism
        self.partition_count = count
        further = sorted(p for p in saved if p >= count) if self._source.grows or not count else []
        self._own = [p for p in (*range(count), *further) if p % parallelism == index]
        own = set(self._own)
        known = {p: times for p, times in (partitions or {}).items() if p in own}
        self._restore_times({p: highest for p, (highest, _) in known.items()}, self._assigned_times(parts))
        self._idleness.begin(p for p, (_, idle) in known.items() if idle)
        self.ended, self._reported_no_partitions = False, False
        for kept in (part.values.get("source") for part in parts):
            if kept is not None:
                self._source.restore(kept)
        if count and not self._source.grows and (missing := [p for p in sorted(saved) if p >= count]):
            raise SourceError(
                f"source {self.name!r}: the list of inputs has changed since the checkpoint, "
                f"partition {missing[0]} no longer exists: "
                "resume with the inputs of the first run, or start over with --fresh"
            )
        self._seek()

    def skip(self, log: Sequence[Determinant]) -> None:
        """Continues after the last of these logged reads without repeating them."""
        for read in log:
            if isinstance(read, SourceRead):
                self._take(read.partition, read.start, read.stop, read.checksum, last=read.last)
        self._seek()

    def _seek(self) -> None:
        self._source.seek(self.positions)
        self._source_is_behind = False

    def snapshot(self) -> OperatorState:
        return self._stored.snapshot(**self.further_state)

    @property
    def stored_partitions(self) -> dict[int, StoredPartition]:
        """What a snapshot has of each partition."""
        return self._stored.all

    @property
    def further_state(self) -> dict[str, Any]:
        """What a snapshot has besides."""
        kept = self._source.snapshot()
        source = {} if kept is None else {"source": kept}
        times = {name: times.all for name, times in self._assigned.items()}
        return {**({"times": times} if times else {}), **source}

    def _take(
        self, partition: int, start: int, stop: int, checksum: int, identity: int = 0, last: bool = False
    ) -> None:
        """Advances a partition by a read. After one without content, such as one that says that the partition has
        ended, the last read is still the one before. ``last``: see ``Read``."""
        finished, before = last or partition in self._stored.finished, self._stored.get(partition)
        if before is not None and start == stop == before.position:
            self._stored.put(partition, before._replace(finished=finished))
        else:
            self._stored.put(partition, StoredPartition(stop, finished, start, checksum & _CHECKSUM_MAX, identity))

    def _last_read(self, partition: int) -> LastRead | None:
        stored = self._stored.get(partition)
        if stored is None or not 0 <= stored.start < stored.position:
            return None
        return LastRead(stored.start, stored.position, stored.checksum, stored.identity)

    def _restore_times(self, own: Mapping[int, int], assigned: Mapping[str, Mapping[int, int]]) -> None:
        self._times = PartitionTimes(self._event_time.out_of_order_us, own)
        self._assigned = {
            name: PartitionTimes(assigner.out_of_order_us, assigned.get(name))
            for name, assigner in self._assigners.items()
        }

    def _assigned_times(self, parts: Sequence[OperatorState]) -> dict[str, dict[int, int]]:
        """The event times that operators had assigned in partitions that this task owns now."""
        found: dict[str, dict[int, int]] = {}
        for part in parts:
            for name, times in part.values.get("times", {}).items():
                found.setdefault(name, {}).update({int(p): at for p, at in times.items() if self._is_own(int(p))})
        return found

    @property
    def timed(self) -> bool:
        """Whether its rows have an event time."""
        return any(self._event_time.columns) or bool(self._assigners)

    @property
    def logs_rows(self) -> bool:
        """See ``Source.logs_rows``."""
        return self._source.logs_rows

    @property
    def rows_waiting(self) -> int | None:
        """See ``Source.rows_waiting``."""
        return self._source.rows_waiting()

    @property
    def bytes_kept(self) -> int | None:
        """See ``Source.bytes_kept``."""
        return self._source.bytes_kept()

    # ---- commits, by another thread

    def prepared(self) -> bytes:
        """The committable that ``commit_all`` receives when the checkpoint is complete."""
        return msgspec.msgpack.encode(self.positions)

    def commit_all(self, committables: Sequence[bytes]) -> None:
        """Commits positions. After a change of parallelism, these include those of former instances. Raises
        SourceError."""
        reached: dict[int, int] = {}
        for committable in committables:
            reached |= _decode_positions(committable)
        self._source.commit(reached)

    def loaded(self, parts: Sequence[OperatorState]) -> None:
        """Does nothing: the committable holds the positions."""

    # ---- reading

    def notify(self, wake: Callable[[], None]) -> None:
        """See ``Source.notify``."""
        self._source.notify(wake)

    def _is_own(self, partition: int) -> bool:
        return partition % self._parallelism == self._index

    @property
    def positions(self) -> dict[int, int]:
        """The next position by partition that was read."""
        return self._stored.positions

    @property
    def partitions(self) -> dict[int, tuple[int, bool]]:
        """By partition: its event time, and whether it is idle; without those that have no time and are not idle."""
        states = ((p, (self._times.of(p), p in self._idleness.idle)) for p in self._own)
        return {p: state for p, state in states if state != _NEITHER}

    def poll(self, now_us: int, rows_max: int | None = None) -> list[Read] | Discovered | None:
        """The next reads. Small reads of several partitions are returned together, which costs less. They have at most
        ``rows_max`` rows, as far as the source can limit its reads. None if there is no data before ``wake_us``; an
        empty list at the end."""
        if self._source_is_behind:
            self._seek()
        reads: list[Read] = []
        most = min(len(self._own), _READS_TOGETHER)
        rows, events, size = self._merge_rows, _EVENTS_TOGETHER, _BYTES_TOGETHER
        if rows_max is not None:
            self._source.limit(rows_max)
            rows = min(rows, rows_max)
        while not reads or (len(reads) < most and rows > 0 and events > 0 and size > 0):
            match self._source.poll(now_us):
                case Read() as read:
                    reads.append(read)
                    rows -= read.row_count
                    events -= read.event_count
                    size -= read.size_bytes if rows > 0 else 0
                case Discovered() as found:
                    return reads or found  # the source repeats it until it is taken
                case Wait(until):
                    self.wake_us = until
                    self._idleness.had_nothing(now_us)
                    if not self._own and not self._reported_no_partitions:
                        return Discovered({})
                    return reads or None
                case End():
                    break
        return reads

    def log_rows(self, reads: Sequence[Read], ask: Ask) -> None:
        """Logs the rows of reads, if the source requires it."""
        if self.logs_rows:
            for read in reads:
                ask(self._question, partial(content_of, read))

    def reread(self, logged: Sequence[Determinant], ask: Ask) -> list[Read]:
        """Repeats logged reads. Raises SourceError if the source gives other rows now."""
        again = list(map(self._logged, logged))
        if self.logs_rows:
            reads = [read_of(read, ask(self._question, partial(self._content, read)), self._schemas) for read in again]
            self._source_is_behind = True
            for read in reads:
                self._source.passed(read)
            return reads
        return list(map(self._reread, again))

    @property
    def _question(self) -> str:
        return f"rows of source {self.name}"

    def _logged(self, logged: Determinant) -> SourceRead:
        if not isinstance(logged, SourceRead):
            raise DivergenceError(f"source {self.name!r} is to replay {logged} as a read, which it is not")
        return logged

    def _content(self, logged: SourceRead) -> Any:
        """Rereads the rows of the last logged read if the log ends before them. No frame depends on these rows yet."""
        self._seek()
        return content_of(self._source.reread(logged.partition, logged.start, logged.stop))

    def _reread(self, logged: SourceRead) -> Read:
        read = self._source.reread(logged.partition, logged.start, logged.stop)
        if read.checksum != logged.checksum:
            raise SourceError(
                f"source {self.name!r} gave other content for partition {logged.partition} "
                f"[{logged.start}, {logged.stop}) than before the failure; "
                "a source must give the same rows for the same offsets"
            )
        return read if read.last == logged.last else read._replace(last=logged.last)

    def accept(self, read: Read, now_us: int) -> Read:
        """Records that a read enters the task: advances the position and the partition's event time. Returns the read
        with the watermark that each row finds, where an operator needs it."""
        self._take(read.partition, read.start, read.stop, read.checksum, read.identity, read.last)
        if read.event_count or read.last:  # else only the position has moved
            self._idleness.gave(read.partition, now_us)
        return self._timed(read)

    def _timed(self, read: Read) -> Read:
        """Takes the event times of a read, and adds watermarks."""
        reached = self._times.of(read.partition)
        marked = list(read.rows)
        for port, (column, rows) in enumerate(zip(self._event_time.columns, read.rows, strict=True)):
            if column is None or rows is None:
                continue
            if (behind := self._behind.get(port)) is None:
                found = extent(rows.column(column)) if rows.num_rows else None
            else:
                watermarks, found = behind.find(rows.column(column), reached)
                marked[port] = with_watermarks(rows, watermarks)
            self._observe(self._times, self.name, column, read.partition, found)
        return read._replace(rows=tuple(marked)) if self._behind else read

    def begin(self, partition: int) -> None:
        """The next rows that pass the operators are of this partition."""
        for name, assigner in self._assigners.items():
            assigner.continue_from(self._assigned[name].of(partition))

    def assign(self, partition: int) -> None:
        """Takes the event times that operators have assigned to rows of a partition."""
        for name, assigner in self._assigners.items():
            self._observe(self._assigned[name], name, assigner.column, partition, assigner.take_extent())

    def _observe(
        self, times: PartitionTimes, name: str, column: str, partition: int, found: tuple[int, int] | None
    ) -> None:
        if found is not None:
            times.observe(partition, found[1])
            self.extents.add(name, column, *found)

    def discover(self, starts: Mapping[int, int]) -> None:
        """Adds new partitions. They hold the watermark back until they give a row or become idle."""
        self._reported_no_partitions = True
        self._source.discovered(starts)
        self._own = sorted({*self._own, *starts})
        for partition, start in starts.items():
            self._stored.put(partition, StoredPartition(start, partition in self._stored.finished))

    def reopen(self, run: str) -> None:
        """Partitions that had ended in an earlier run, or were idle, may give more rows in this one."""
        self.run = run
        self._source_is_behind |= self._stored.reopen()
        self._idleness.begin()

    def fall_idle(self, partition: int) -> None:
        self._idleness.idle.add(partition)

    def due_idle(self, now_us: int) -> int | None:
        """The first partition that has to fall idle; None if there is none."""
        return None if self._event_time.idle_us is None or self.ended else self._idleness.due(self._active, now_us)

    @property
    def next_idle_us(self) -> int | None:
        """The time at which the next partition may become idle, if the task reads then."""
        return None if self._event_time.idle_us is None or self.ended else self._idleness.next_us(self._active)

    @property
    def _unfinished(self) -> list[int]:
        """Partitions that have not given their last row."""
        return [p for p in self._own if p not in self._stored.finished]

    @property
    def _active(self) -> list[int]:
        """Partitions that have not ended and are not idle."""
        return [p for p in self._unfinished if p not in self._idleness.idle]

    @property
    def idle(self) -> bool:
        """Whether all partitions that have not ended are idle, or the task owns none."""
        return not self._active and (bool(self._unfinished) or not self._own)

    @property
    def watermark(self) -> int:
        """The event time below which active partitions give no more rows, except late ones. If all partitions are
        finished or idle, that of the one farthest ahead. When an idle one resumes it may be lower again."""
        return self._times.watermark(self._active)

    def assigned(self, name: str) -> int:
        """The watermark of the event time that operator ``name`` assigns."""
        return self._assigned[name].watermark(self._active)

    def close(self) -> None:
        self._source.close()
