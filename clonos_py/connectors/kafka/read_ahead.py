"""Reads messages of some partitions ahead, in a thread.

Normal reads and replay take messages from the same buffers. A replay requests ranges of offsets in the order in which
they were read.
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from clonos_py.connectors.kafka.client import (
    Client,
    Failure,
    Fields,
    KafkaFailure,
    MessageReader,
    Messages,
    TopicPartition,
)
from clonos_py.model.errors import type_and_text

_FETCH_S = 0.1
"""How long the thread waits for messages before it checks for other work."""
_RETRY_S = 0.2
_BUFFERED_MESSAGES = 50_000
_SMALL_MESSAGES = 1_000
"""Shorter pieces are extended until part of them is taken, so that a task that lags behind reads more at once."""
_BUFFERED_BYTES = 16 << 20
"""While every partition has this much buffered, nothing is fetched. A partition with twice as much is paused if others
have less, because clients drop messages that they have fetched for paused partitions."""


class Taken(NamedTuple):
    """Messages, and their position in the piece that was fetched together."""

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
    """The buffered messages of one partition. The client has passed all offsets below ``position``."""

    def __init__(self, position: int, end: int | None) -> None:
        self._pieces: deque[Messages] = deque()
        self._taken = 0
        """The number of messages taken from the first piece, so that the rest need not be copied at each take."""
        self._messages = self._size_bytes = 0
        self.position, self._end = position, end

    def put(self, messages: Messages) -> None:
        """Adds messages; those at or after the end are dropped."""
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
    def ended(self) -> bool:
        """Whether the client has passed all messages before the end."""
        return self._end is not None and self.position >= self._end

    @property
    def waiting(self) -> bool:
        return bool(self._pieces)

    @property
    def fill(self) -> float:
        """The fill level relative to the limits."""
        return max(self._messages / _BUFFERED_MESSAGES, self._size_bytes / _BUFFERED_BYTES)

    def take(self, most: int | None = None, below: int | None = None) -> Taken | None:
        """Takes messages of the first piece: at most ``most``, and only offsets below ``below``."""
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
    """The thread and its buffers. The thread calls ``wake`` when there are messages to take, or an error to raise."""

    def __init__(self, client: Client, fields: Fields, wake: Callable[[], None]) -> None:
        self._client, self._fields, self._wake = client, fields, wake
        self._changed = threading.Condition()
        self._room = threading.Event()
        self._buffers: dict[TopicPartition, _Buffer] = {}
        self._assignment = 0
        self._failure: KafkaFailure | None = None
        self._closed = False
        self._thread: threading.Thread | None = None

    # ---- called by the task

    def assign(self, offsets: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]) -> None:
        """Replaces the assigned partitions, each from its offset; ``ends``: the end offsets of some of them. The thread
        starts with the first request for messages."""
        with self._changed:
            self._buffers = {partition: _Buffer(at, ends.get(partition)) for partition, at in offsets.items()}
            self._assignment += 1

    def add(self, offsets: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]) -> None:
        """Adds assigned partitions."""
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
        """Whether there are messages to take."""
        with self._changed:
            return any(buffer.waiting for buffer in self._buffers.values())

    def has_ended(self, partition: TopicPartition) -> bool:
        """Whether the partition has ended and all its messages are taken."""
        with self._changed:
            buffer = self._buffers[partition]
            return not buffer.waiting and buffer.ended

    def passed(self, partition: TopicPartition) -> int:
        """The offset below which all messages are taken, as far as the client has seen: it is past records that are
        never returned, such as the ends of transactions. 0 while messages wait."""
        with self._changed:
            buffer = self._buffers.get(partition)
            return 0 if buffer is None or buffer.waiting else buffer.position

    def wait_for_change(self) -> None:
        """Waits until messages are fetched, or a short time has passed."""
        with self._changed:
            self._changed.wait(_FETCH_S)

    def take_below(self, partition: TopicPartition, stop: int) -> Sequence[Taken]:
        """All next messages below ``stop``; waits until the client has passed them. Raises KafkaFailure."""
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
        """Stores a failure; the next call that takes messages raises it."""
        with self._changed:
            self._failure = self._failure or failure
            self._changed.notify_all()
        self._wake()

    def close(self) -> None:
        """Closes; the thread ends soon."""
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
        """Retries while the cluster is unreachable. The thread that watches the cluster decides when to give up (see
        ``fail``)."""
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
                elif reader is not None:  # it may have lost messages, or have outdated leaders
                    reader.close()
                    reader = fetching = None
                    time.sleep(_RETRY_S)
            except Exception as problem:  # noqa: BLE001 - the waiting task must get an error
                self.fail(KafkaFailure(Failure.REFUSED, type_and_text(problem)))
        if reader is not None:
            reader.close()

    def _step(self, fetching: _Fetching) -> None:
        with self._changed:
            assignment, buffers = self._assignment, dict(self._buffers)
            fills = [buffer.fill for buffer in buffers.values() if not buffer.ended]
            full = bool(fills) and min(fills) >= 1
            paused = {p for p, b in buffers.items() if b.ended or b.fill >= (1 if fetching.pauses(p) else 2)}
            offsets = {partition: buffer.position for partition, buffer in buffers.items()}
            unended = [partition for partition, buffer in buffers.items() if not buffer.ended]
            self._room.clear()
        if full and fetching.follows(assignment):
            self._room.wait(_FETCH_S)
            return
        fetching.follow(assignment, offsets, paused)
        found = fetching.reader.fetch(_FETCH_S)
        passed = {partition: fetching.reader.position(partition) for partition in buffers}
        with self._changed:
            if assignment != self._assignment:
                return  # the new assignment fetches these messages again if it needs them
            for messages in found:
                buffers[messages.partition].put(messages)
            for partition, offset in passed.items():
                buffers[partition].position = max(buffers[partition].position, offset)
            ended = any(buffers[partition].ended for partition in unended)
            self._changed.notify_all()
        if found or ended:
            self._wake()


class _Fetching:
    """A reader, with its current assignment and its paused partitions."""

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
