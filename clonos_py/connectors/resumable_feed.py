"""Sources of rows that a server gives from a cursor on, such as the id of the last event, and may give otherwise when
it is asked again.

Rows are logged, as those of a server that only pushes, and the cursor behind them with each read. A replacement replays
the rows from the log and asks for what follows the last of them. A job that starts from a checkpoint asks for what
follows that.
"""

from __future__ import annotations

import threading
import time
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import httpx
import pyarrow as pa

from clonos_py.columns.compact import checksum
from clonos_py.connectors.malformed import RequestedColumns
from clonos_py.connectors.pushed_rows import WAIT_US, PushedRowsReader
from clonos_py.model.errors import ServiceError, SourceError, type_and_text
from clonos_py.model.operators import End, Read, Wait

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

_PAUSE_S_MIN, _PAUSE_S_MAX = 0.1, 30.0
_BUFFERED_ITEMS = 1_000
_WAIT_S = 0.1
PASSING = (OSError, httpx.HTTPError, httpx.StreamError, ServiceError)
"""Failures that may pass."""


class ReceivedItem(NamedTuple, Generic[T]):
    """``cursor``: where to go on behind it."""

    content: T
    cursor: Any


class Receiver(Protocol[T_co]):
    """Asks a server for what follows a cursor."""

    def receive(self, cursor: Any, put: Callable[[T_co, Any], bool]) -> float | None:
        """Calls ``put`` with each content and the cursor behind it, until that returns False or there is no more.
        Returns the seconds until it is to be called again; None at the end. Raises one of ``PASSING`` for a failure
        that may pass, and SourceError."""
        ...

    def interrupt(self) -> None:
        """Ends the current ``receive`` soon. Any thread may call it."""
        ...

    def close(self) -> None:
        """Called once, by the thread that receives, when it has ended."""
        ...


class ResumableFeed(Generic[T]):
    """The thread that receives, and its buffer. It calls ``wake`` when there is something to take. ``where`` is named
    in errors."""

    def __init__(self, receiver: Receiver[T], cursor: Any, where: str, away_s: float, wake: Callable[[], None]) -> None:
        self._receiver, self._cursor, self._where, self._away_s, self._wake = receiver, cursor, where, away_s, wake
        self._changed = threading.Condition()
        self._items: deque[ReceivedItem[T]] = deque()
        self._failure = ""
        self._ended = self._closed = False
        threading.Thread(target=self._run, name=f"rows of {where}", daemon=True).start()

    # ---- called by the task

    def take(self, most: int) -> Sequence[ReceivedItem[T]]:
        """What was received. Raises SourceError once all is taken and the feed has failed."""
        with self._changed:
            taken = [self._items.popleft() for _ in range(min(most, len(self._items)))]
            if not taken and self._failure:
                raise SourceError(self._failure)
            self._changed.notify_all()
            return taken

    @property
    def ended(self) -> bool:
        with self._changed:
            return self._ended and not self._items

    def wait_for_change(self) -> None:
        with self._changed:
            if not self._items and not self._ended and not self._failure:
                self._changed.wait(_WAIT_S)

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._receiver.interrupt()

    # ---- the thread

    def _run(self) -> None:
        self._receive_on()
        self._receiver.close()

    def _receive_on(self) -> None:
        since: float | None = None
        pause_s = _PAUSE_S_MIN
        while not self._closed and not self._ended and not self._failure:
            before = self._cursor
            try:
                wait_s = self._receiver.receive(self._cursor, self._put)
            except PASSING as problem:
                if self._cursor != before:
                    since, pause_s = None, _PAUSE_S_MIN
                since = time.monotonic() if since is None else since
                if time.monotonic() - since + pause_s > self._away_s:
                    self._fail(f"{type_and_text(problem)}; it was tried again for {self._away_s:g} s (away=)")
                self._pause(pause_s)
                pause_s = min(2 * pause_s, _PAUSE_S_MAX)
            except SourceError as problem:
                self._fail(str(problem))
            except Exception as problem:  # noqa: BLE001 - the waiting task must get an error
                self._fail(type_and_text(problem))
            else:
                since, pause_s = None, _PAUSE_S_MIN
                if wait_s is None:
                    self._end()
                else:
                    self._pause(wait_s)

    def _put(self, content: T, cursor: Any) -> bool:
        with self._changed:
            self._changed.wait_for(lambda: self._closed or len(self._items) < _BUFFERED_ITEMS)
            self._items.append(ReceivedItem(content, cursor))
            self._cursor = cursor
            self._changed.notify_all()
        self._wake()
        return not self._closed

    def _pause(self, seconds: float) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._closed, seconds)

    def _end(self) -> None:
        with self._changed:
            self._ended = True
            self._changed.notify_all()
        self._wake()

    def _fail(self, text: str) -> None:
        with self._changed:
            self._failure = self._failure or f"{self._where}: {text}"
            self._changed.notify_all()
        self._wake()


class ResumableReader(PushedRowsReader, Generic[T]):
    """The reader of one task. Offsets count what was received; ``start`` is the first cursor."""

    def __init__(
        self, requested: RequestedColumns, read_rows: int | None, where: str, away_s: float, start: Any
    ) -> None:
        super().__init__(requested, read_rows)
        self.where, self._away_s, self._start = where, away_s, start
        self._cursor, self._over = start, False
        self._position = 0
        self._wake: Callable[[], None] = lambda: None
        self._feed: ResumableFeed[T] | None = None

    @abstractmethod
    def receiver(self) -> Receiver[T]:
        """A new receiver."""

    @abstractmethod
    def rows_of(
        self, received: Sequence[ReceivedItem[T]], position: int
    ) -> tuple[pa.RecordBatch | None, pa.RecordBatch | None, dict[str, int]]:
        """The rows, the dead letters and what is counted. ``position``: that of the first. Raises SourceError."""

    def close(self) -> None:
        feed, self._feed = self._feed, None
        if feed is not None:
            feed.close()

    def notify(self, wake: Callable[[], None]) -> None:
        self._wake = wake

    def wait_for_rows(self) -> bool:
        if self._feed is not None:
            self._feed.wait_for_change()
        return False

    def snapshot(self) -> Any:
        return {"cursor": self._cursor, "over": self._over} if self.reads else None

    def restore(self, saved: Any) -> None:
        self._cursor, self._over = saved["cursor"], bool(saved["over"])

    def passed(self, read: Read) -> None:
        self._cursor, self._over = read.note, read.last

    def seek(self, positions: Mapping[int, int]) -> None:
        self.close()
        self._position = positions.get(0, 0)
        if not positions:
            self._cursor, self._over = self._start, False

    def poll(self, now: int) -> Read | Wait | End:
        if not self.reads or self._over:
            return End()
        if self._feed is None:
            self._feed = ResumableFeed(self.receiver(), self._cursor, self.where, self._away_s, self._wake)
        if received := self._feed.take(self.rows_max or _BUFFERED_ITEMS):
            rows, letters, counts = self.rows_of(received, self._position)
            start, self._position = self._position, self._position + len(received)
            self._cursor = received[-1].cursor
            shown = rows if rows is not None and rows.num_rows else None
            ports = (shown, letters)[: self.requested.count]
            events = sum(counts.values()) + (0 if rows is None else rows.num_rows)
            digest = 0 if shown is None else checksum(shown)
            return Read(0, start, self._position, ports, digest, events, counts=counts, note=self._cursor)
        if self._feed.ended:
            self._over = True
            return Read(0, self._position, self._position, self.no_rows, 0, 0, last=True, note=self._cursor)
        return Wait(now + WAIT_US)

    def reread(self, partition: int, start: int, stop: int) -> Read:
        """The log ended before the rows of this read. No task depends on them: they are received again."""
        return Read(0, start, stop, self.no_rows, 0, 0, note=self._cursor)
