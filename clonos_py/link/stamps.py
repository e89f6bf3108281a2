"""Stamps of frames on one connection: in full form inside a process, as differences on the wire (E10)."""

from __future__ import annotations

from clonos_py.channel.stamps import HmnrStamp, StampReader, StampWriter


class SentStamps:
    """Encodes stamps for a job with ``tasks`` tasks. Frames of an earlier run may have none; they come first."""

    def __init__(self, tasks: int) -> None:
        self._tasks = tasks
        self._writer = StampWriter()
        self._before = b""

    def write(self, stamp: bytes) -> bytes:
        """The wire form of a stamp in full form. Raises CodecError if it is not one."""
        if stamp == self._before:
            return b""
        self._before = stamp
        return self._writer.write(HmnrStamp.decode(stamp, self._tasks))


class ReceivedStamps:
    """Decodes stamps at the other end of the connection."""

    def __init__(self, tasks: int) -> None:
        self._reader = StampReader(tasks)
        self._before = b""

    def read(self, data: bytes) -> bytes:
        """The full form of the stamp that was written. Raises CodecError."""
        if data:
            self._before = self._reader.read(data).encode()
        return self._before
