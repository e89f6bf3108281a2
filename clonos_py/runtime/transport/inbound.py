"""Assembles frames from a stream of bytes, without I/O.

Small frames are cut out of a staging buffer, many per read. The body of a large frame is read directly into memory of
Arrow's allocator. It needs no copy, and is freed when no array refers to it any more. The allocator is set to keep its
memory (``model/allocation.py``), so that it is reused without page faults.

Memory is not touched before its bytes arrive, even if a frame claims a large length. A peer that has not proven the
secret gets only a staging buffer that is large enough for its handshake.
"""

from __future__ import annotations

import pyarrow as pa

from clonos_py.model.errors import CodecError
from clonos_py.runtime.transport.wire import PREAMBLE_BYTES, Limits, Preamble, WireFrame, read_preamble

STAGING_BYTES = 128 << 10
STAGING_BYTES_UNPROVEN = 512


class Inbound:
    """The receiving half of a connection. The caller reads into ``targets()``, passes the number of bytes to
    ``advance``, then takes frames with ``next_frame`` until it returns None. ``trust`` may be called between two
    frames."""

    def __init__(self, limits: Limits, staging_bytes: int = STAGING_BYTES) -> None:
        self._limits = limits
        self._staging = memoryview(bytearray(staging_bytes))
        self._start = 0
        self._end = 0
        self._partial: _Partial | None = None

    def trust(self, limits: Limits) -> None:
        """Sets new limits and enlarges the staging buffer, so that many frames fit into one read."""
        rest = self._staging[self._start : self._end]
        staging = memoryview(bytearray(STAGING_BYTES))
        staging[: len(rest)] = rest
        self._limits, self._staging, self._start, self._end = limits, staging, 0, len(rest)

    def targets(self) -> list[memoryview]:
        """The memory for the next bytes, never empty: the rest of the current frame, then the staging buffer."""
        rest = self._end - self._start
        if self._start:
            self._staging[:rest] = bytes(self._staging[self._start : self._end])
            self._start, self._end = 0, rest
        free = self._staging[rest:]
        return [*self._partial.missing, free] if self._partial else [free]

    def advance(self, count: int) -> None:
        """``count`` bytes were written into ``targets()``."""
        if self._partial:
            count = self._partial.advance(count)
        self._end += count

    def next_frame(self) -> WireFrame | None:
        """The next complete frame; None if there is none. Raises CodecError if the bytes are no frame."""
        if self._partial:
            return self._finish_partial()
        if self._end - self._start < PREAMBLE_BYTES:
            return None
        head = read_preamble(self._staging, self._start, self._limits)
        start = self._start + PREAMBLE_BYTES
        stop = start + head.header_bytes + head.body_bytes
        if stop <= self._end:
            self._start = stop
            return _small(head, self._staging, start, stop)
        self._partial = _Partial(head, self._staging[start : self._end])
        self._start = self._end
        return None

    def _finish_partial(self) -> WireFrame | None:
        assert self._partial is not None
        if self._partial.missing:
            return None
        frame = self._partial.frame()
        self._partial = None
        return frame


class _Partial:
    """A frame that has arrived in part."""

    def __init__(self, head: Preamble, arrived: memoryview) -> None:
        self._head = head
        try:
            self._header, self._body = pa.allocate_buffer(head.header_bytes), pa.allocate_buffer(head.body_bytes)
        except MemoryError as error:
            raise CodecError(f"no memory for a frame of {head.header_bytes} + {head.body_bytes} bytes") from error
        self.missing = [memoryview(part).cast("B") for part in (self._header, self._body) if part.size]
        self._fill(arrived)

    def _fill(self, arrived: memoryview) -> None:
        while arrived:
            count = min(len(arrived), len(self.missing[0]))
            self.missing[0][:count] = arrived[:count]
            arrived = arrived[count:]
            self.advance(count)

    def advance(self, count: int) -> int:
        """Records ``count`` bytes written into ``missing``. Returns how many of them lie beyond this frame."""
        while count and self.missing:
            step = min(count, len(self.missing[0]))
            count -= step
            if step == len(self.missing[0]):
                del self.missing[0]
            else:
                self.missing[0] = self.missing[0][step:]
        return count

    def frame(self) -> WireFrame:
        header = self._header.to_pybytes()
        self._head.check(header)
        return WireFrame(self._head.kind, header, self._body if self._body.size else None)


def _small(head: Preamble, staging: memoryview, start: int, stop: int) -> WireFrame:
    body_start = start + head.header_bytes
    header = bytes(staging[start:body_start])
    head.check(header)
    body = pa.py_buffer(bytes(staging[body_start:stop])) if head.body_bytes else None
    return WireFrame(head.kind, header, body)
