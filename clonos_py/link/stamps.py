"""Stamps of frames on one connection: whole in a process, as differences between two (E10)."""

from __future__ import annotations

from clonos_py.channel.stamps import HmnrStamp, StampReader, StampWriter


class SentStamps:
    """Of a job with so many tasks. Frames of an earlier run may have none; they come before all others."""

    def __init__(self, tasks: int) -> None:
        self._tasks = tasks
        self._writer = StampWriter()
        self._before = b""

    def write(self, stamp: bytes) -> bytes:
        """What travels of a whole one. Raises CodecError if it is none."""
        if stamp == self._before:
            return b""
        self._before = stamp
        return self._writer.write(HmnrStamp.decode(stamp, self._tasks))


class ReceivedStamps:
    """The other end of the connection."""

    def __init__(self, tasks: int) -> None:
        self._reader = StampReader(tasks)
        self._before = b""

    def read(self, data: bytes) -> bytes:
        """The whole stamp that was written. Raises CodecError."""
        if data:
            self._before = self._reader.read(data).encode()
        return self._before
