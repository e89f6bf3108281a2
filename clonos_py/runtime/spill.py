"""Retained frames on local disk, where a spill policy sends them (D3).

Frames are appended to files of about 128 MiB. A file is unlinked as soon as it is open. So its space is freed with its
last frame (truncation frees frames in the order of writing), or when the process ends in any way: a replacement makes
the frames again. A frame counts as stored when it can be read back, even if it is only in the page cache.
"""

from __future__ import annotations

import errno
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

from clonos_py.model.errors import CapacityError, SpillError

FILE_BYTES = 128 << 20


class FrameShelf(Protocol):
    """Stores the bodies of frames. Used by one thread only."""

    def write(self, body: Any) -> Any:
        """Stores a body and returns its place. Raises CapacityError when it cannot."""
        ...

    def read(self, place: Any) -> Any:
        """The body at a place. Raises SpillError when it cannot be read."""
        ...

    def free(self, place: Any) -> None: ...

    def close(self) -> None:
        """Frees everything."""
        ...


class _File:
    """One file: the bytes written, and the number of frames that are not freed."""

    def __init__(self, folder: Path) -> None:
        self.descriptor, name = tempfile.mkstemp(dir=folder, suffix=".frames")
        os.unlink(name)
        self.size_bytes = 0
        self.frames = 0

    def append(self, message: memoryview) -> int:
        """Appends a message and returns its offset. After an OSError the file has its former size."""
        offset = self.size_bytes
        try:
            while message:
                count = os.pwrite(self.descriptor, message, self.size_bytes)
                self.size_bytes += count
                message = message[count:]
        except OSError:
            self.size_bytes = offset
            os.ftruncate(self.descriptor, offset)
            raise
        self.frames += 1
        return offset


@dataclass(frozen=True, slots=True)
class SpilledAt:
    """The place of a frame. ``schema``: of a body that was a batch; None if it was a serialized message."""

    file: _File
    offset: int
    size_bytes: int
    schema: pa.Schema | None


class FileShelf:
    """The shelf of one process, in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files: set[_File] = set()
        self._writing: _File | None = None

    def write(self, body: pa.Buffer | pa.RecordBatch) -> SpilledAt:
        """Appends a body to a file. Raises CapacityError when the disk is full or cannot be written."""
        schema = body.schema if isinstance(body, pa.RecordBatch) else None
        message = body.serialize() if isinstance(body, pa.RecordBatch) else body
        try:
            file = self._open()
            return SpilledAt(file, file.append(memoryview(message).cast("B")), message.size, schema)
        except OSError as problem:
            self._finish()
            full = "is full" if problem.errno == errno.ENOSPC else f"cannot be written: {problem.strerror}"
            raise CapacityError(f"the disk for retained frames, {self._folder}, {full}") from problem

    def _open(self) -> _File:
        if self._writing is None or self._writing.size_bytes >= FILE_BYTES:
            self._finish()
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._writing = _File(self._folder)
            self._files.add(self._writing)
        return self._writing

    def _finish(self) -> None:
        """Ends the current file: it gets no more frames. After a full disk this frees its space sooner."""
        file, self._writing = self._writing, None
        if file is not None and not file.frames:
            self._close(file)

    def _close(self, file: _File) -> None:
        self._files.discard(file)
        os.close(file.descriptor)

    def read(self, place: SpilledAt) -> pa.Buffer | pa.RecordBatch:
        """The body that was written there. Raises SpillError if the disk cannot return all of it."""
        try:
            message = pa.py_buffer(os.pread(place.file.descriptor, place.size_bytes, place.offset))
        except OSError as problem:
            raise SpillError(f"retained frames cannot be read from {self._folder}: {problem.strerror}") from problem
        if message.size != place.size_bytes:
            raise SpillError(f"retained frames in {self._folder} have been cut short by another process")
        return message if place.schema is None else pa.ipc.read_record_batch(message, place.schema)

    def free(self, place: SpilledAt) -> None:
        place.file.frames -= 1
        if not place.file.frames and place.file is not self._writing:
            self._close(place.file)

    def close(self) -> None:
        self._writing = None
        for file in list(self._files):
            self._close(file)


class MemoryShelf:
    """The in-memory twin, for simulated disks. ``frames_max``: the number of frames at which the disk is full."""

    def __init__(self, frames_max: int | None = None) -> None:
        self._frames_max = frames_max
        self._kept: dict[int, Any] = {}
        self._count = 0

    def write(self, body: Any) -> int:
        """Raises CapacityError when it is full."""
        if self._frames_max is not None and len(self._kept) >= self._frames_max:
            raise CapacityError("the simulated disk is full")
        self._count += 1
        self._kept[self._count] = body
        return self._count

    def read(self, place: int) -> Any:
        return self._kept[place]

    def free(self, place: int) -> None:
        del self._kept[place]

    def close(self) -> None:
        self._kept.clear()
