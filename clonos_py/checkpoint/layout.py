"""Where things lie in a checkpoint folder.

::

    FOLDER/JOB/generations/00000002          one small file per generation, made exclusively (D11)
    FOLDER/JOB/line/manifests/000000000007.00000002.manifest
    FOLDER/JOB/line/savepoints/NAME.manifest
    FOLDER/JOB/line/state/000000000007.join-0.2.1.0.chunks
    FOLDER/JOB/line/answers/000000000007.join-0.3.6b1f0c.answer
    FOLDER/JOB/archive/0001/                 a former ``line``, whole, moved aside by ``--fresh``

A chunk file holds one or more chunks of one task's snapshot. Its name begins with the checkpoint that wrote it, so that
retention can be decided from names alone; task, attempt and a running number make it unique, so that nothing is ever
overwritten. All paths in handles are below ``line``: an archived line stays readable.
"""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import quote, unquote

import xxhash

from clonos_py.model.errors import CheckpointError
from clonos_py.model.ids import Attempt, TaskId

GENERATIONS = "generations"
LINE = "line"
ARCHIVE = "archive"
MANIFESTS = "manifests"
SAVEPOINTS = "savepoints"
STATE = "state"
ANSWERS = "answers"
MANIFEST_SUFFIX = ".manifest"
TEMPORARY_SUFFIX = ".incomplete"


def name_in_folder(name: str) -> str:
    """A name of the user's as one path component, the same on every file system."""
    quoted = quote(name, safe="")
    return quoted.replace(".", "%2E", 1) if quoted.startswith(".") else quoted


def generation_name(generation: int) -> str:
    return f"{generation:08d}"


def manifest_name(checkpoint: int, generation: int) -> str:
    return f"{checkpoint:012d}.{generation:08d}{MANIFEST_SUFFIX}"


def chunk_file_name(task: TaskId, attempt: Attempt, checkpoint: int, number: int) -> str:
    return f"{checkpoint:012d}.{name_in_folder(task.vertex)}-{task.index}.{attempt}.{number}.chunks"


def answer_name(epoch: int, owner: str, content: bytes) -> str:
    """The same for the same content only."""
    return f"{epoch:012d}.{name_in_folder(owner)}.{xxhash.xxh3_128_hexdigest(content)}.answer"


def checkpoint_of(name: str) -> int | None:
    """The checkpoint that wrote a manifest or chunk file, incomplete ones included; None for a foreign file."""
    number = name.split(".", 1)[0]
    return int(number) if number.isascii() and number.isdigit() else None


def manifest_mark(name: str) -> tuple[int, int] | None:
    """Checkpoint and generation of a manifest's file; None for anything else, such as an incomplete one."""
    parts = name.removesuffix(MANIFEST_SUFFIX).split(".")
    if not name.endswith(MANIFEST_SUFFIX) or len(parts) != 2 or not all(part.isdigit() for part in parts):
        return None
    return int(parts[0]), int(parts[1])


def savepoint_name(file: str) -> str:
    return unquote(file.removesuffix(MANIFEST_SUFFIX))


class Location(NamedTuple):
    """Which bytes of which file a chunk is, and their checksum.

    As text it is ``Chunk.location``: whoever holds a stored chunk can refer to it without asking storage."""

    file: str
    offset: int
    size_bytes: int
    checksum: int

    def __str__(self) -> str:
        return f"{self.file}#{self.offset}+{self.size_bytes}:{self.checksum:016x}"

    @classmethod
    def parse(cls, text: str) -> Location:
        """Raises CheckpointError on anything that ``str`` of a location does not give."""
        try:
            file, _, span = text.rpartition("#")
            extent, _, checksum = span.partition(":")
            offset, _, size_bytes = extent.partition("+")
            return cls(file, int(offset), int(size_bytes), int(checksum, 16))
        except ValueError:
            raise CheckpointError(f"{text!r} is no location of a chunk: the checkpoint's manifest is damaged") from None
