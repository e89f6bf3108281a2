"""Decodes the next batch of a file by another thread, while the task works on the one before.

Batches come in the order of the iterator, and with its errors, so nothing depends on the thread but the time that a
read takes. Arrow decodes without the interpreter lock.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from weakref import WeakSet

import pyarrow as pa

_THREADS = 2
_AHEAD_MAX = 8
"""At most about this many batches are decoded ahead in a process, so that many open files do not hold much memory."""

_ahead: WeakSet[DecodedAhead] = WeakSet()
"""Those that hold, or wait for, a batch decoded ahead."""


class DecodedAhead(Iterator[pa.RecordBatch]):
    """The batches of an iterator. One call at a time, by one thread."""

    def __init__(self, batches: Iterator[pa.RecordBatch], *, ahead: bool) -> None:
        """``ahead``: whether another thread decodes at all."""
        self._batches, self._is_ahead = batches, ahead
        self._next: Future[pa.RecordBatch | None] | None = None

    def __next__(self) -> pa.RecordBatch:
        batch = next(self._batches, None) if self._next is None else self._taken(self._next)
        if batch is None:
            raise StopIteration
        if self._is_ahead and len(_ahead) < _AHEAD_MAX:
            _ahead.add(self)
            self._next = _decoders().submit(next, self._batches, None)
        return batch

    def close(self) -> None:
        """Waits until the other thread no longer reads. Its batch is dropped, and so is its error: nobody has asked for
        these rows."""
        if self._next is not None:
            self._next.cancel()
            wait([self._next])
            self._forget()

    def _taken(self, decoded: Future[pa.RecordBatch | None]) -> pa.RecordBatch | None:
        try:
            return decoded.result()
        finally:
            self._forget()

    def _forget(self) -> None:
        self._next = None
        _ahead.discard(self)


@functools.cache
def _decoders() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_THREADS, thread_name_prefix="decoder")
