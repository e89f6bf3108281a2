"""The layout of a checkpoint folder: names and paths of its files.

::

    FOLDER/JOB/generations/00000002          two small files per generation, the first made exclusively (D11)
    FOLDER/JOB/generations/00000002.adopted
    FOLDER/JOB/line/manifests/000000000007.00000002.manifest
    FOLDER/JOB/line/savepoints/NAME.manifest
    FOLDER/JOB/line/state/000000000007.join-0.2.1.0.chunks
    FOLDER/JOB/line/answers/000000000007.join-0.3.6b1f0c.answer
    FOLDER/JOB/line/records/000000000/000000000007.join-0.2.1.record
    FOLDER/JOB/line/records/000000000/000000000007.join-0.2.1.tail     what a failed job held after its last checkpoint
    FOLDER/JOB/line/bases/000000000007.00000002.1732890164000.base
    FOLDER/JOB/runs/1732890164000-6b1f.../job  what a detached run consists of, by time and digest
    FOLDER/JOB/runs/1732890164000-6b1f.../end  how it has ended
    FOLDER/JOB/runs/1732890164000-6b1f.../parallelism  what it was given while it ran, if anything
    FOLDER/JOB/archive/0001/                 a former ``line``, moved aside whole by ``--fresh``
    FOLDER/JOB/archive/0001.generations/     its generations, if they were damaged; else their numbers continue

A chunk file holds chunks of one task's snapshot, and the frames that are stored with it. Its name begins with the
checkpoint that wrote it, so that retention can be decided from names alone. Task, attempt and a running number make the
name unique, so that no file is ever overwritten. All paths in handles are relative to ``line``: an archived line stays
readable.

A record file holds the pieces of a task's log that are new with its snapshot (F1). A job that records has many such
files. So they lie in *buckets*, one folder for every thousand checkpoints, which are deleted whole. A base is a
checkpoint whose state is kept for the record. Its file only marks it, so that retention reads no other manifest.
"""

from __future__ import annotations

import functools
import re
from typing import NamedTuple
from urllib.parse import quote, unquote

import xxhash

from clonos_py.model.errors import START_OVER, UnreadableCheckpointError
from clonos_py.model.ids import Attempt, TaskId

GENERATIONS = "generations"
LINE = "line"
ARCHIVE = "archive"
RUNS = "runs"
MANIFESTS = "manifests"
SAVEPOINTS = "savepoints"
STATE = "state"
ANSWERS = "answers"
RECORDS = "records"
BASES = "bases"
BUCKET_CHECKPOINTS = 1_000
MANIFEST_SUFFIX = ".manifest"
ADOPTED_SUFFIX = ".adopted"
TAIL_SUFFIX = ".tail"
TEMPORARY_SUFFIX = ".incomplete"

_ANSWER = re.compile(r"\d{12}\.[\w.~%-]+\.[0-9a-f]{32}\.answer", re.ASCII)
_ORIGIN = re.compile(
    rf"(?P<epoch>\d{{12}})\.(?P<writer>.+-\d+)\.(\d+\.\d+\.\d+\.chunks|\d+\.[0-9a-f]{{32}}\.answer)({re.escape(TEMPORARY_SUFFIX)})?",
    re.ASCII,
)
_LOCATION = re.compile(
    rf"(?P<file>{STATE}/\d{{12}}\.[\w.~%-]+\.chunks"
    rf"|{RECORDS}/(?P<bucket>\d{{9}})/(?P=bucket)\d{{3}}\.[\w.~%-]+\.record)"
    rf"#(?P<offset>\d{{1,18}})\+(?P<size>\d{{1,18}}):(?P<checksum>[0-9a-f]{{16}})",
    re.ASCII,
)
_RECORD = re.compile(r"(?P<checkpoint>\d{12})\.(?P<writer>.+-\d+)\.\d+\.\d+\.record", re.ASCII)


def name_in_folder(name: str) -> str:
    """A user-given name as one path component, the same on every file system."""
    quoted = quote(name, safe="")
    return quoted.replace(".", "%2E", 1) if quoted.startswith(".") else quoted


def generation_name(generation: int) -> str:
    return f"{generation:08d}"


def generation_number(name: str) -> int | None:
    """The number in the name of a file that begins a generation; None for any other file."""
    return int(name) if name.isascii() and name.isdigit() and generation_name(int(name)) == name else None


def adoption_name(generation: int) -> str:
    return f"{generation_name(generation)}{ADOPTED_SUFFIX}"


def manifest_name(checkpoint: int, generation: int) -> str:
    return f"{checkpoint:012d}.{generation:08d}{MANIFEST_SUFFIX}"


def writer_name(task: TaskId) -> str:
    """The name of a task in the names of its files."""
    return f"{name_in_folder(task.vertex)}-{task.index}"


def chunk_file_name(task: TaskId, attempt: Attempt, checkpoint: int, number: int) -> str:
    return f"{checkpoint:012d}.{writer_name(task)}.{attempt}.{number}.chunks"


def bucket_name(checkpoint: int) -> str:
    """The name of the folder of the record files that snapshots for this checkpoint write."""
    return f"{checkpoint // BUCKET_CHECKPOINTS:09d}"


def bucket_end(name: str) -> int | None:
    """The first checkpoint after those of a bucket; None for a foreign folder."""
    return (int(name) + 1) * BUCKET_CHECKPOINTS if re.fullmatch(r"\d{9}", name, re.ASCII) else None


def record_file(task: TaskId, attempt: Attempt, checkpoint: int) -> str:
    """The record file of a snapshot, relative to ``line``."""
    return f"{RECORDS}/{bucket_name(checkpoint)}/{checkpoint:012d}.{writer_name(task)}.{attempt}.record"


def tail_file(task: TaskId, attempt: Attempt, checkpoint: int) -> str:
    """The file of what a process held of logs when its job failed after this checkpoint, relative to ``line``."""
    return f"{RECORDS}/{bucket_name(checkpoint)}/{checkpoint:012d}.{writer_name(task)}.{attempt}{TAIL_SUFFIX}"


def record_origin(file: str) -> FileOrigin | None:
    """The origin of a record file, by its path relative to ``line``; None for any other file."""
    found = _RECORD.fullmatch(file.rpartition("/")[2]) if file.startswith(f"{RECORDS}/") else None
    return FileOrigin(int(found["checkpoint"]), found["writer"]) if found else None


def base_name(checkpoint: int, generation: int, completed_ms: int) -> str:
    """The name of the file that marks a checkpoint as a base of the record, with the time of its completion."""
    return f"{checkpoint:012d}.{generation:08d}.{completed_ms}.base"


def base_numbers(name: str) -> tuple[int, int, int] | None:
    """Checkpoint, generation and time in a name made by ``base_name``; None for any other file."""
    found = re.fullmatch(r"(\d{12})\.(\d{8})\.(\d{1,18})\.base", name, re.ASCII)
    return (int(found[1]), int(found[2]), int(found[3])) if found else None


def answer_name(epoch: int, task: TaskId, process: int, content: bytes) -> str:
    """The name of an answer's file, which differs for different content."""
    return f"{epoch:012d}.{writer_name(task)}.{process}.{xxhash.xxh3_128_hexdigest(content)}.answer"


def check_answer_name(name: str) -> None:
    """Raises CheckpointError unless ``answer_name`` can make the name: a log is input, and must name no other file."""
    if not _ANSWER.fullmatch(name):
        raise UnreadableCheckpointError(
            f"{name!r} is not the name of a stored answer: the log that names it is damaged; resume with an intact "
            f"copy of it, {START_OVER}"
        )


def is_answer(name: str, content: bytes) -> bool:
    """Whether this content was stored under this name."""
    return name.split(".")[-2] == xxhash.xxh3_128_hexdigest(content)


def checkpoint_of(name: str) -> int | None:
    """The checkpoint in the name of a manifest's file, incomplete ones included; None for a foreign file."""
    number = name.split(".", 1)[0]
    return int(number) if number.isascii() and number.isdigit() else None


class FileOrigin(NamedTuple):
    """The writer of a file, and the epoch for which it was written."""

    epoch: int
    writer: str


def origin(name: str) -> FileOrigin | None:
    """The origin of a file of chunks or of an answer, incomplete ones included; None for a foreign file."""
    found = _ORIGIN.fullmatch(name)
    return FileOrigin(int(found["epoch"]), found["writer"]) if found else None


def manifest_mark(name: str) -> tuple[int, int] | None:
    """Checkpoint and generation of a manifest's file; None for any other file, such as an incomplete one."""
    parts = name.removesuffix(MANIFEST_SUFFIX).split(".")
    if not name.endswith(MANIFEST_SUFFIX) or len(parts) != 2 or not all(part.isdigit() for part in parts):
        return None
    return int(parts[0]), int(parts[1])


def archive_number(name: str) -> int:
    """The number of an archive; 0 for a foreign file."""
    number = name.split(".", 1)[0]
    return int(number) if number.isascii() and number.isdigit() else 0


def savepoint_name(file: str) -> str:
    return unquote(file.removesuffix(MANIFEST_SUFFIX))


class Location(NamedTuple):
    """The location of a chunk: a range of bytes in a file, and their checksum.

    As text it is ``Chunk.location``: the holder of a stored chunk can refer to it without access to storage."""

    file: str
    offset: int
    size_bytes: int
    checksum: int

    @property
    def is_record(self) -> bool:
        """Whether it is in a record file."""
        return self.file.startswith(f"{RECORDS}/")

    def __str__(self) -> str:
        return f"{self.file}#{self.offset}+{self.size_bytes}:{self.checksum:016x}"

    @classmethod
    @functools.lru_cache(maxsize=1 << 14)
    def parse(cls, text: str) -> Location:
        """Parses a location. Raises CheckpointError if it is none, or if its file is named neither by
        ``chunk_file_name`` nor by ``record_file``: a manifest is input, and must lead to no other file. Results are
        cached, since successive manifests repeat locations."""
        found = _LOCATION.fullmatch(text)
        if found is None:
            raise UnreadableCheckpointError(f"{text!r} is no location of a chunk: the checkpoint's manifest is damaged")
        return cls(found["file"], int(found["offset"]), int(found["size"]), int(found["checksum"], 16))
