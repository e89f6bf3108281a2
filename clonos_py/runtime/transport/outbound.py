"""The send queue of one connection, without I/O and without copies."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from itertools import islice

from clonos_py.runtime.transport.wire import WireKind, preamble

_GATHER_MAX = 64
"""Buffers per system call; the operating system allows 1,024."""


class Outbound:
    """A queue of frames. The caller sends the ``pieces()``, then passes the number of sent bytes to ``advance``. Bodies
    are referenced, not copied, and must not change until they are sent."""

    def __init__(self) -> None:
        self._pieces: deque[memoryview] = deque()
        self.unsent_bytes = 0

    def add(self, kind: WireKind, header: bytes, bodies: Iterable[memoryview] = ()) -> None:
        """Queues a frame whose body is the concatenation of ``bodies`` (memoryviews of bytes)."""
        parts = [body for body in bodies if body.nbytes]
        body_bytes = sum(part.nbytes for part in parts)
        head = preamble(kind, header, body_bytes) + header
        self._pieces.append(memoryview(head))
        self._pieces.extend(parts)
        self.unsent_bytes += len(head) + body_bytes

    def pieces(self) -> list[memoryview]:
        """The buffers to send next, in order; empty if none is left."""
        return list(islice(self._pieces, _GATHER_MAX))

    def advance(self, count: int) -> None:
        """Drops the first ``count`` bytes, which were sent."""
        self.unsent_bytes -= count
        while count:
            first = self._pieces[0]
            if count < first.nbytes:
                self._pieces[0] = first[count:]
                return
            count -= first.nbytes
            self._pieces.popleft()
