"""The reader of a task: reads its partitions of some topics."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from clonos_py.connectors.kafka.client import Admin, Failure, KafkaFailure, Place, TopicPartition
from clonos_py.connectors.kafka.clients import ClusterAddress
from clonos_py.connectors.kafka.columns import RowMaker, checksum
from clonos_py.connectors.kafka.layout import SourceLayout
from clonos_py.connectors.kafka.part_decoder import PartDecoder
from clonos_py.connectors.kafka.read_ahead import ReadAhead, Taken
from clonos_py.connectors.kafka.watch import TopicWatch
from clonos_py.connectors.malformed import RequestedColumns
from clonos_py.model.errors import SourceError
from clonos_py.model.operators import Discovered, End, Read, Source, Wait

_SECOND_US = 1_000_000


@dataclass(frozen=True)
class ReaderTimes:
    """``fetch_wait_us``: how long a task that has read all messages waits for more; ``discover_s``: how often topics
    are checked; ``away_s``: how long the cluster may be unreachable."""

    fetch_wait_us: int
    discover_s: float
    away_s: float


class TopicReader(Source):
    """Reads the partitions of one task."""

    def __init__(
        self,
        address: ClusterAddress,
        layout: SourceLayout,
        maker: RowMaker,
        times: ReaderTimes,
        group: str | None,
        read_rows: int | None,
        requested: RequestedColumns,
        logs_rows: bool = False,
    ) -> None:
        """``maker`` makes the columns that ``requested`` parses, and dead letters unless malformed messages fail the
        job. ``group``: the group for which offsets are committed. ``logs_rows``: see ``Source``."""
        self.logs_rows = logs_rows
        self._address, self._layout, self._times, self._read_rows = address, layout, times, read_rows
        self._group, self._requested = group, requested
        self._decoder = PartDecoder(maker)
        self._wake: Callable[[], None] = lambda: None
        self._positions: dict[int, int] = {}
        self._turn: list[int] = []
        self._resumed = False
        self._pending: dict[int, int] = {}
        """The first offsets of own partitions of the first run that the checkpoint had not begun to read."""
        self._all_read_us = 0
        """When a read left no messages behind."""
        self._found: dict[int, int] = {}
        self._found_lock = threading.Lock()
        self._rows_max: int | None = read_rows
        self._ahead: ReadAhead | None = None
        self._watch: TopicWatch | None = None
        self._ends_known: dict[int, int] = {}
        self._committer: Admin | None = None

    def wait_for_rows(self) -> bool:
        if self._layout.ends is None:
            return False
        if self._ahead is not None:
            self._ahead.wait_for_change()
        return True

    def partitions(self) -> int:
        """0: all partitions are discovered."""
        return 0

    def open(self, index: int, parallelism: int) -> None:
        self._index, self._parallelism = index, parallelism

    def notify(self, wake: Callable[[], None]) -> None:
        self._wake = wake

    def snapshot(self) -> Any:
        """The topics, and the first offsets of partitions that are not read yet. Without these offsets, a resume would
        not know where such a partition begins: it has no position, and "latest" means another offset by then."""
        topics = [(topic.name, topic.id) for topic in self._layout.topics]
        return {"topics": topics, "starts": self._unread(self._pending if self._resumed else self._layout.starts)}

    def restore(self, saved: Any) -> None:
        self._resumed = True
        if isinstance(saved, list):  # earlier versions stored the topics only
            saved = {"topics": saved, "starts": {}}
        topics, kept = self._layout.topics, saved["topics"]
        if [name for name, _ in kept] != [topic.name for topic in topics]:
            listed = ", ".join(name for name, _ in kept)
            raise SourceError(f"the checkpoint is of the topics {listed}: resume with these, or start with --fresh")
        for topic, (_, id) in zip(topics, kept, strict=True):
            if id != topic.id:
                raise SourceError(
                    f"Kafka topic {topic.name!r} was deleted and created again since the checkpoint, whose offsets "
                    "are not valid in it: start over with --fresh"
                )
        self._pending |= {number: offset for number, offset in saved["starts"].items() if self._is_own(number)}

    def seek(self, positions: Mapping[int, int]) -> None:
        self._stop_reading()
        self._positions = dict(positions)
        self._turn = sorted(positions)

    def close(self) -> None:
        self._stop_reading()
        if self._committer is not None:
            self._committer.close()

    def _stop_reading(self) -> None:
        for thread in (self._ahead, self._watch):
            if thread is not None:
                thread.close()
        self._ahead = self._watch = None

    def limit(self, rows: int) -> None:
        self._rows_max = rows if self._read_rows is None else min(rows, self._read_rows)

    # ---- reading

    def poll(self, now: int) -> Read | Wait | End | Discovered:
        if (starts := self._new()) is not None:
            return Discovered(starts)
        if self._all_read_us < now < self._all_read_us + self._times.fetch_wait_us:
            return Wait(self._all_read_us + self._times.fetch_wait_us)
        with self._named(None):
            ahead = self._reading()
            for _ in range(len(self._turn)):
                number = self._turn.pop(0)
                partition = self._layout.partition(number)
                if (taken := ahead.take(partition, self._rows_max)) is not None:
                    self._turn.append(number)
                    self._all_read_us = 0 if ahead.waiting else now
                    return self._read(number, taken.messages.offsets[-1] + 1, (taken,))
                if ahead.has_ended(partition):
                    assert self._layout.ends is not None
                    return self._read(number, max(self._layout.ends[number], self._positions[number]), (), last=True)
                self._turn.append(number)
        return Wait(now + _SECOND_US) if self._layout.ends is None or self._turn else End()

    def reread(self, partition: int, start: int, stop: int) -> Read:
        with self._named(self._layout.partition(partition)):
            pieces = self._reading().take_below(self._layout.partition(partition), stop)
        ends = self._layout.ends
        last = ends is not None and stop >= ends[partition] and not pieces
        return self._read(partition, stop, pieces, last)

    def _read(self, number: int, stop: int, pieces: Sequence[Taken], last: bool = False) -> Read:
        start, self._positions[number] = self._positions[number], stop
        made = list(map(self._decoder.ports, pieces)) or [self._decoder.nothing]
        if last:
            self._turn = [other for other in self._turn if other != number]
        messages = [taken.messages for taken in pieces]
        events = sum(len(some.offsets) for some in messages)
        rows, *letters = map(_together, zip(*made, strict=True))
        ports = (None if rows is None else self._requested.delivered(rows), *map(self._requested.fitted, letters))
        counts = self._requested.counted(sum(some.num_rows for some in letters if some is not None))
        if skipped := sum(map(self._decoder.skipped, pieces)):
            counts["tombstones_skipped"] = skipped
        return Read(
            number, start, stop, ports[: self._requested.count], checksum(messages), events, last, counts=counts
        )

    def _reading(self) -> ReadAhead:
        if self._ahead is None:
            layout, client = self._layout, self._address.connect()
            self._ahead = ReadAhead(client, self._decoder.fields, self._wake)
            self._ahead.assign({layout.partition(n): offset for n, offset in self._positions.items()}, self._ends)
            topics = [replace(topic, partitions=0) for topic in layout.topics] if self._resumed else layout.topics
            callbacks = self._on_checked, self._on_new_partitions, self._ahead.fail
            self._watch = TopicWatch(client, topics, self._times.discover_s, self._times.away_s, *callbacks)
        return self._ahead

    @property
    def _ends(self) -> dict[TopicPartition, int]:
        return {self._layout.partition(number): end for number, end in (self._layout.ends or {}).items()}

    # ---- partitions

    def _new(self) -> dict[int, int] | None:
        """New partitions to read, with their first offsets; None if there are none. The offsets of the first run are
        decided once: by its layout, or by what the checkpoint has of them."""
        with self._found_lock:
            found = dict(self._found)
        if self._resumed:
            found = self._added_meanwhile() | found | self._pending
        else:
            found |= self._layout.starts
        return self._unread(found) or None

    def _unread(self, starts: Mapping[int, int]) -> dict[int, int]:
        """Those of own partitions without a position."""
        return {n: offset for n, offset in starts.items() if self._is_own(n) and n not in self._positions}

    def _added_meanwhile(self) -> dict[int, int]:
        """Partitions that a source with an end got between the first run and this one, from their first message on. A
        source without an end finds them by its watch."""
        known = {*self._positions, *self._pending}
        added = {n: self._layout.partition(n) for n in self._layout.ends or {} if self._is_own(n) and n not in known}
        if not added:
            return {}
        with self._named(None):
            admin = self._address.connect().admin()
            starts = admin.offsets(list(added.values()), Place.EARLIEST)
            admin.close()
        return {number: starts[partition] for number, partition in added.items()}

    def discovered(self, starts: Mapping[int, int]) -> None:
        self._positions |= starts
        self._turn += sorted(starts)
        if self._ahead is not None:
            offsets = {self._layout.partition(number): offset for number, offset in starts.items()}
            self._ahead.add(offsets, self._ends)

    def _is_own(self, number: int) -> bool:
        return number % self._parallelism == self._index

    def _on_new_partitions(self, admin: Admin, topic: int, partitions: int) -> None:
        """Adds partitions created after the job began; they are read from their first offset."""
        if self._layout.ends is not None:
            return
        name = self._layout.topics[topic].name
        every = [TopicPartition(name, number) for number in range(partitions)]
        numbers = {self._layout.number(partition): partition for partition in every}
        new = [p for number, p in numbers.items() if self._is_own(number) and number not in self._positions]
        starts = admin.offsets(new, Place.EARLIEST) if new else {}
        with self._found_lock:
            self._found |= {self._layout.number(partition): offset for partition, offset in starts.items()}
        if starts:
            self._wake()

    # ---- progress

    def _on_checked(self, admin: Admin) -> None:
        if self._layout.ends is None:
            own = {self._layout.partition(number): number for number in dict(self._positions)}
            found = admin.offsets(list(own), Place.LATEST) if own else {}
            self._ends_known = {own[partition]: offset for partition, offset in found.items()}

    def rows_waiting(self) -> int:
        """The number of messages before the last known end, or before the end of the source if it has one."""
        ends = self._ends_known if self._layout.ends is None else self._layout.ends
        return sum(max(0, ends.get(number, 0) - self._passed(number, at)) for number, at in self._positions.items())

    def _passed(self, number: int, at: int) -> int:
        return at if self._ahead is None else max(at, self._ahead.passed(self._layout.partition(number)))

    def commit(self, positions: Mapping[int, int]) -> None:
        """Commits offsets for the group. If the cluster is unreachable, the next checkpoint commits them."""
        if self._group is None or not positions:
            return
        try:
            self._committer = self._committer or self._address.connect().admin()
            self._committer.commit(self._group, {self._layout.partition(n): at for n, at in positions.items()})
        except KafkaFailure as failure:
            if self._committer is not None:
                self._committer.close()
                self._committer = None
            if failure.kind is not Failure.AWAY:
                raise SourceError(
                    f"Kafka at {self._address.bootstrap}: offsets cannot be committed to group {self._group!r}: "
                    f"{failure}; name a group without members, or omit group="
                ) from None

    # ---- errors

    @contextmanager
    def _named(self, partition: TopicPartition | None) -> Iterator[None]:
        try:
            yield
        except KafkaFailure as failure:
            place = failure.partition or partition
            where = f"Kafka at {self._address.bootstrap}" + ("" if place is None else f", {place}")
            if failure.kind is Failure.EXPIRED and place is not None:
                offset = self._positions.get(self._layout.number(place))
                raise SourceError(
                    f"{where}: offset {offset} no longer exists: the topic keeps messages for too short a time; "
                    "start over with --fresh"
                ) from None
            raise SourceError(f"{where}: {failure.kind.value}: {failure}") from None


def _together(batches: Sequence[pa.RecordBatch | None]) -> pa.RecordBatch | None:
    some = [rows for rows in batches if rows is not None]
    made = pa.Table.from_batches(some).combine_chunks().to_batches() if len(some) > 1 else some
    return made[0] if made else None
