"""Decodes the next batches of a file by another thread, while the task works on the one before.

Batches come in the order of the iterator, and with its errors, so nothing depends on the thread but the time that a
read takes. Arrow decodes without the interpreter lock. With two batches ahead the other thread is busy also while a
task works on a batch for longer than one takes.
"""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from weakref import WeakSet

import pyarrow as pa

_THREADS = 2
_DEPTH = 2
"""How many batches of one file are decoded ahead."""
_AHEAD_MAX = 8
"""At most about this many batches are decoded ahead in a process, so that many open files do not hold much memory."""

_Decoded = Future[pa.RecordBatch | None]

_ahead: WeakSet[DecodedAhead] = WeakSet()
"""Those that hold, or wait for, batches decoded ahead."""


class DecodedAhead(Iterator[pa.RecordBatch]):
    """The batches of an iterator. One call at a time, by one thread."""

    def __init__(self, batches: Iterator[pa.RecordBatch], *, ahead: bool) -> None:
        """``ahead``: whether another thread decodes at all."""
        self._batches, self._is_ahead = batches, ahead
        self._next: deque[_Decoded] = deque()

    def __next__(self) -> pa.RecordBatch:
        batch = self._taken() if self._next else next(self._batches, None)
        if batch is None:
            raise StopIteration
        while self._is_ahead and self._may_decode():
            _ahead.add(self)
            self._next.append(_decoders().submit(_decode, self._batches, self._next[-1] if self._next else None))
        return batch

    def close(self) -> None:
        """Waits until the other thread no longer reads. Its batches are dropped, and so are its errors: nobody has
        asked for these rows."""
        for decoded in self._next:
            decoded.cancel()
        wait(self._next)
        self._next.clear()
        _ahead.discard(self)

    def _may_decode(self) -> bool:
        if not self._next:
            return len(_ahead) < _AHEAD_MAX
        return len(self._next) < _DEPTH and len(_ahead) * _DEPTH <= _AHEAD_MAX

    def _taken(self) -> pa.RecordBatch | None:
        try:
            return self._next.popleft().result()
        finally:
            if not self._next:
                _ahead.discard(self)


def _decode(batches: Iterator[pa.RecordBatch], before: _Decoded | None) -> pa.RecordBatch | None:
    """The next batch. ``before``: that of the batch before it, which began earlier and may not have ended."""
    if before is not None:
        wait([before])
    return next(batches, None)


@functools.cache
def _decoders() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_THREADS, thread_name_prefix="decoder")
