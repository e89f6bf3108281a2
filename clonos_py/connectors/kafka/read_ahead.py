"""Messages of some partitions, read ahead in a thread of its own.

Both the task, when it reads on, and its replay take from the same buffers: a replay asks for ranges of offsets in the
order in which they were read.
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from clonos_py.connectors.kafka.port import (
    Client,
    Failure,
    Fields,
    KafkaFailure,
    MessageReader,
    Messages,
    TopicPartition,
)

_FETCH_S = 0.1
"""How long the thread waits for messages before it looks whether something else is to do."""
_RETRY_S = 0.2
_BUFFERED_MESSAGES = 50_000
_SMALL_MESSAGES = 1_000
"""A piece of fewer, of which none is taken yet, grows: a task that lags behind reads more at once."""
_BUFFERED_BYTES = 16 << 20
"""While every partition has so much waiting, nothing is fetched. A partition with twice as much is paused where others
wait for messages: clients drop what they have fetched of it."""


class Taken(NamedTuple):
    """Messages, and where they begin in the piece of the partition that was fetched together."""

    messages: Messages
    piece: Messages
    start: int

    @property
    def is_whole(self) -> bool:
        return self.messages is self.piece

    @property
    def ends_piece(self) -> bool:
        return self.start + len(self.messages.offsets) == len(self.piece.offsets)


class _Buffer:
    """What is waiting of one partition. The client has gone through all offsets below ``position``."""

    def __init__(self, position: int, end: int | None) -> None:
        self._pieces: deque[Messages] = deque()
        self._taken = 0
        """Of the first piece: the rest is not copied again with each take."""
        self._messages = self._size_bytes = 0
        self.position, self._end = position, end

    def put(self, messages: Messages) -> None:
        """What lies behind the end is left out."""
        self.position = messages.offsets[-1] + 1
        if self.ended:
            kept = bisect_left(messages.offsets, self._end or 0)
            messages = messages.each(lambda column: column[:kept])
        if not len(messages.offsets):
            return
        self._messages += len(messages.offsets)
        self._size_bytes += _size(messages)
        last = len(self._pieces) - 1
        if last >= 0 and (last or not self._taken) and len(self._pieces[last].offsets) < _SMALL_MESSAGES:
            self._pieces[last] = self._pieces[last].and_then(messages)
        else:
            self._pieces.append(messages)

    @property
    def ends(self) -> bool:
        """Whether there is an end."""
        return self._end is not None

    @property
    def ended(self) -> bool:
        """Whether the client has gone through all before the end."""
        return self._end is not None and self.position >= self._end

    @property
    def waiting(self) -> bool:
        return bool(self._pieces)

    @property
    def fill(self) -> float:
        """How much waits, of what is to wait."""
        return max(self._messages / _BUFFERED_MESSAGES, self._size_bytes / _BUFFERED_BYTES)

    def take(self, most: int | None = None, below: int | None = None) -> Taken | None:
        """The first piece that was fetched: at most so many messages of it, and those below an offset."""
        if not self._pieces:
            return None
        piece, start = self._pieces[0], self._taken
        stop = len(piece.offsets) if below is None else bisect_left(piece.offsets, below, start)
        stop = stop if most is None else min(stop, start + most)
        if start == stop:
            return None
        whole = stop == len(piece.offsets)
        taken = Taken(piece if whole and not start else piece.each(lambda column: column[start:stop]), piece, start)
        if whole:
            self._pieces.popleft()
        self._taken = 0 if whole else stop
        self._messages -= stop - start
        self._size_bytes -= _size(taken.messages)
        return taken


def _size(messages: Messages) -> int:
    return sum(map(len, filter(None, messages.values))) + sum(map(len, filter(None, messages.keys)))


class ReadAhead:
    """``wake`` is called by the thread when there is something new to take, or to be raised."""

    def __init__(self, client: Client, fields: Fields, wake: Callable[[], None]) -> None:
        self._client, self._fields, self._wake = client, fields, wake
        self._changed = threading.Condition()
        self._room = threading.Event()
        self._buffers: dict[TopicPartition, _Buffer] = {}
        self._assignment = 0
        self._failure: KafkaFailure | None = None
        self._closed = False
        self._thread: threading.Thread | None = None

    # ---- for the task

    def assign(self, offsets: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]) -> None:
        """These partitions, each from its offset on; ``ends``: where some of them end. The thread begins with the first
        message that is asked for."""
        with self._changed:
            self._buffers = {partition: _Buffer(at, ends.get(partition)) for partition, at in offsets.items()}
            self._assignment += 1

    def add(self, offsets: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]) -> None:
        """These partitions, too."""
        with self._changed:
            self._buffers |= {partition: _Buffer(offset, ends.get(partition)) for partition, offset in offsets.items()}
            self._assignment += 1

    def take(self, partition: TopicPartition, most: int | None) -> Taken | None:
        """The next messages, if there are any. Raises KafkaFailure."""
        self._start()
        with self._changed:
            self._check()
            taken = self._buffers[partition].take(most)
            self._room.set()
            return taken

    @property
    def waiting(self) -> bool:
        """Whether there is anything to take."""
        with self._changed:
            return any(buffer.waiting for buffer in self._buffers.values())

    def has_ended(self, partition: TopicPartition) -> bool:
        """Whether it has an end and nothing is left before it."""
        with self._changed:
            buffer = self._buffers[partition]
            return not buffer.waiting and buffer.ended

    def wait_for_change(self) -> None:
        """Until something was fetched, or nothing was for a moment."""
        with self._changed:
            self._changed.wait(_FETCH_S)

    def take_below(self, partition: TopicPartition, stop: int) -> Sequence[Taken]:
        """All next messages with offsets below ``stop``, once the client has gone through them. Raises KafkaFailure."""
        self._start()
        found: list[Taken] = []
        with self._changed:
            while True:
                self._check()
                buffer = self._buffers[partition]
                while (piece := buffer.take(below=stop)) is not None:
                    found.append(piece)
                self._room.set()
                if buffer.waiting or buffer.position >= stop:
                    return found
                self._changed.wait()

    def fail(self, failure: KafkaFailure) -> None:
        """Raised by the next call that takes messages."""
        with self._changed:
            self._failure = self._failure or failure
            self._changed.notify_all()
        self._wake()

    def close(self) -> None:
        """The thread ends soon."""
        self._closed = True

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure

    # ---- the thread

    def _start(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="kafka read ahead", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        """What is away may come back: who watches the cluster gives up (see ``fail``)."""
        reader: MessageReader | None = None
        fetching: _Fetching | None = None
        while not self._closed and self._failure is None:
            try:
                if fetching is None:
                    reader = self._client.reader(self._fields)
                    fetching = _Fetching(reader)
                self._step(fetching)
            except KafkaFailure as failure:
                if failure.kind is not Failure.AWAY:
                    self.fail(failure)
                elif reader is not None:  # it may have dropped what came with the failure, or know old leaders only
                    reader.close()
                    reader = fetching = None
                    time.sleep(_RETRY_S)
            except Exception as problem:  # noqa: BLE001 - who waits must not wait for ever
                self.fail(KafkaFailure(Failure.REFUSED, f"{type(problem).__name__}: {problem}"))
        if reader is not None:
            reader.close()

    def _step(self, fetching: _Fetching) -> None:
        with self._changed:
            assignment, buffers = self._assignment, dict(self._buffers)
            fills = [buffer.fill for buffer in buffers.values() if not buffer.ended]
            full = bool(fills) and min(fills) >= 1
            paused = {p for p, b in buffers.items() if b.ended or b.fill >= (1 if fetching.pauses(p) else 2)}
            offsets = {partition: buffer.position for partition, buffer in buffers.items()}
            ending = [partition for partition, buffer in buffers.items() if buffer.ends and not buffer.ended]
            self._room.clear()
        if full and fetching.follows(assignment):
            self._room.wait(_FETCH_S)
            return
        fetching.follow(assignment, offsets, paused)
        found = fetching.reader.fetch(_FETCH_S)
        passed = {partition: fetching.reader.position(partition) for partition in ending}
        with self._changed:
            if assignment != self._assignment:
                return  # it is fetched again, from where it is wanted now
            for messages in found:
                buffers[messages.partition].put(messages)
            for partition, offset in passed.items():
                buffers[partition].position = max(buffers[partition].position, offset)
            ended = any(buffers[partition].ended for partition in ending)
            self._changed.notify_all()
        if found or ended:
            self._wake()


class _Fetching:
    """A client, and which partitions it has assigned and paused."""

    def __init__(self, reader: MessageReader) -> None:
        self.reader = reader
        self._assignment = -1
        self._paused: set[TopicPartition] = set()

    def pauses(self, partition: TopicPartition) -> bool:
        return partition in self._paused

    def follows(self, assignment: int) -> bool:
        return assignment == self._assignment

    def follow(self, assignment: int, offsets: Mapping[TopicPartition, int], paused: set[TopicPartition]) -> None:
        if assignment != self._assignment:
            self.reader.assign(offsets)
            self._assignment, self._paused = assignment, set()
        if paused != self._paused:
            self.reader.resume(sorted(self._paused - paused))
            self.reader.pause(sorted(paused - self._paused))
            self._paused = paused
