"""Retained frames on local disk: what the in-flight log writes when its memory threshold is reached (D3).

Frames go into numbered files of about 64 MiB, one after the other; a file is deleted when its last frame is freed,
which truncation does in the order of writing. The files serve this process only: a replacement rebuilds its frames.
"""

from __future__ import annotations

import errno
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import pyarrow as pa

from clonos_py.model.errors import CapacityError

FILE_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class Place:
    """Where a frame lies; ``schema`` if it was a batch and not a message already."""

    file: int
    offset: int
    size_bytes: int
    schema: pa.Schema | None


class FileSpill:
    """The ``Spill`` of one process, in a folder of its own. Used by the link thread only."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._frames_in: dict[int, int] = {}
        self._writing: IO[bytes] | None = None
        self._number = 0
        self._offset = 0

    def write(self, body: pa.Buffer | pa.RecordBatch) -> Place:
        """Raises CapacityError when the disk takes no more."""
        schema = body.schema if isinstance(body, pa.RecordBatch) else None
        message = body.serialize() if isinstance(body, pa.RecordBatch) else body
        try:
            file = self._open()
            file.write(memoryview(message))
            file.flush()
        except OSError as problem:
            raise CapacityError(self._explained(problem)) from problem
        place = Place(self._number, self._offset, message.size, schema)
        self._frames_in[self._number] += 1
        self._offset += message.size
        return place

    def _open(self) -> IO[bytes]:
        if self._writing is None or self._offset >= FILE_BYTES:
            self.close()
            self._number += 1
            self._offset = 0
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._writing = self._path(self._number).open("wb")
            self._frames_in[self._number] = 0
        return self._writing

    def read(self, place: Place) -> pa.Buffer | pa.RecordBatch:
        """What was written there. Raises CapacityError if the disk does not give it back."""
        try:
            with self._path(place.file).open("rb") as file:
                file.seek(place.offset)
                message = pa.py_buffer(file.read(place.size_bytes))
        except OSError as problem:
            raise CapacityError(self._explained(problem)) from problem
        return message if place.schema is None else pa.ipc.read_record_batch(message, place.schema)

    def free(self, place: Place) -> None:
        self._frames_in[place.file] -= 1
        if not self._frames_in[place.file] and place.file != self._number:
            del self._frames_in[place.file]
            self._path(place.file).unlink(missing_ok=True)

    def close(self) -> None:
        if self._writing is not None:
            self._writing.close()
            self._writing = None
            if not self._frames_in[self._number]:
                del self._frames_in[self._number]
                self._path(self._number).unlink(missing_ok=True)

    def _path(self, number: int) -> Path:
        return self._folder / f"{number:08}.frames"

    def _explained(self, problem: OSError) -> str:
        full = "the disk is full" if problem.errno == errno.ENOSPC else problem.strerror
        return f"retained frames cannot be kept in {self._folder}: {full}; free space there or checkpoint more often"
