"""The manifest of a checkpoint as a file, and the rules that decide which manifests count.

A manifest is one header line (format version, checksum of the rest), then JSON, so that a person can read what a
checkpoint consists of. The two files of a generation have the same format. The first is created exclusively and only
records that the generation has begun. Then its coordinator looks for the newest manifest, and the second file records
which checkpoint it adopted.

A manifest is void if a later generation adopted an older checkpoint (D11): its coordinator had been replaced when it
wrote it. A coordinator looks for later generations before and after it writes a manifest. If there are none, every
later generation finds this manifest when it looks for the newest. Otherwise the write counts as failed, and the later
generation decides whether the manifest is valid.

Detected damage: every file is checked against its checksum and its name, so flipped bits, truncated files and swapped
files are errors. Generations are numbered without gaps, and the checkpoint that the newest one adopted, or a later one,
must exist.

Undetected damage, since it leaves no trace: the newest manifests written since the newest generation began were removed
(then files of sinks that are visible beyond the checkpoint reveal it); the newest generation was removed before it
wrote a manifest; everything was removed.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple, TypeVar

import msgspec
import xxhash

from clonos_py.checkpoint.layout import adoption_name, generation_name
from clonos_py.checkpoint.retention import check_records, needed_bytes
from clonos_py.model.errors import DAMAGED_REMEDY, START_OVER, CheckpointError, UnreadableCheckpointError
from clonos_py.model.ids import TaskId
from clonos_py.model.snapshots import KeptEstimates, Manifest, Recorded, TaskHandle

FORMAT_VERSION = 7
_MANIFEST = "manifest"
_DELTA = "delta"
_GENERATION = "generation"
Mark = tuple[int, int]
"""Checkpoint and generation of a manifest."""
S = TypeVar("S")


class Base(msgspec.Struct, frozen=True):
    """The base of a delta, of the same generation. ``checksum``: as in the header of its file."""

    checkpoint: int
    checksum: str


class NamedEpochs(msgspec.Struct, frozen=True, array_like=True):
    """The snapshots of a task that a manifest names, by epoch, oldest first."""

    task: TaskId
    epochs: list[int]


class ManifestDelta(msgspec.Struct, frozen=True):
    """A manifest that differs from its base only in the snapshots of some tasks (``manifest_chain``)."""

    job: str
    checkpoint: int
    generation: int
    base: Base
    named: list[NamedEpochs]
    """The tasks for which the base names other snapshots."""
    handles: list[TaskHandle]
    """The snapshots that the base does not name."""
    estimates: KeptEstimates | None = None
    recorded: Recorded | None = None


class Generation(msgspec.Struct, frozen=True):
    """A generation has begun."""

    number: int


class Adoption(msgspec.Struct, frozen=True):
    """Generation ``number`` starts from the checkpoint ``adopted``; None: from the beginning."""

    number: int
    adopted: int | None


class Generations(NamedTuple):
    """All generations that have begun: the number of the newest (0: none), and the adoptions written so far."""

    newest: int
    adoptions: tuple[Adoption, ...] = ()


def encode(manifest: Manifest | ManifestDelta) -> bytes:
    return _sealed(_MANIFEST if isinstance(manifest, Manifest) else _DELTA, manifest)


def is_delta(content: bytes) -> bool:
    """Whether this is the file of a delta."""
    return content.startswith(_begin(_DELTA))


def checksum(content: bytes) -> str:
    """The checksum in the header of an undamaged file."""
    return content.partition(b"\n")[0].split(b" ")[-1].decode()


def encode_generation(record: Generation | Adoption) -> bytes:
    return _sealed(_GENERATION, record)


def _sealed(kind: str, content: msgspec.Struct) -> bytes:
    body = msgspec.json.encode(content)
    return b"%s%d %016x\n%s" % (_begin(kind), FORMAT_VERSION, xxhash.xxh3_64_intdigest(body), body)


def _begin(kind: str) -> bytes:
    return b"clonos-%s " % kind.encode()


def decode(content: bytes, job: str, path: str, mark: Mark | None = None) -> Manifest:
    """Decodes a manifest. ``mark``: the checkpoint and generation that it must have. Raises CheckpointError if the file
    is damaged, of another format version, of another job or checkpoint, or refers to anything but chunk files."""
    return _checked(_unsealed(_MANIFEST, content, Manifest, path), job, path, mark)


def decode_delta(content: bytes, job: str, path: str, mark: Mark) -> ManifestDelta:
    """Decodes a delta; see ``decode``."""
    return _checked(_unsealed(_DELTA, content, ManifestDelta, path), job, path, mark)


M = TypeVar("M", Manifest, ManifestDelta)


def _checked(manifest: M, job: str, path: str, mark: Mark | None) -> M:
    if mark is not None and mark != (manifest.checkpoint, manifest.generation):
        raise UnreadableCheckpointError(
            f"{path} is the manifest of checkpoint {manifest.checkpoint}, generation {manifest.generation}; "
            f"{DAMAGED_REMEDY}"
        )
    try:
        needed_bytes(manifest.handles)
        check_records(manifest.handles)
    except CheckpointError as problem:
        raise UnreadableCheckpointError(f"{path}: {problem}; {DAMAGED_REMEDY}") from problem
    if manifest.job != job:
        raise CheckpointError(
            f"{path} belongs to job {manifest.job!r}, not to {job!r}: choose another checkpoint folder"
        )
    return manifest


def decode_generation(content: bytes, number: int, path: str) -> Generation:
    """Raises CheckpointError if the file is damaged, or has another number."""
    return _numbered(_unsealed(_GENERATION, content, Generation, path), number, path)


def decode_adoption(content: bytes, number: int, path: str) -> Adoption:
    """Raises CheckpointError if the file is damaged, or has another number."""
    return _numbered(_unsealed(_GENERATION, content, Adoption, path), number, path)


G = TypeVar("G", Generation, Adoption)


def _numbered(record: G, number: int, path: str) -> G:
    if record.number != number:
        raise UnreadableCheckpointError(f"{path} is the file of generation {record.number}; {DAMAGED_REMEDY}")
    return record


def _unsealed(kind: str, content: bytes, type_: type[S], path: str) -> S:
    header, _, body = content.partition(b"\n")
    fields = header.split(b" ")
    if len(fields) != 3 or not header.startswith(_begin(kind)) or not fields[1].isdigit():
        raise UnreadableCheckpointError(f"{path} is corrupt: it does not begin like a {kind}; {DAMAGED_REMEDY}")
    if int(fields[1]) != FORMAT_VERSION:
        raise CheckpointError(
            f"{path} has format version {int(fields[1])}, this version of clonos-py reads {FORMAT_VERSION}: "
            f"run the version that wrote it, {START_OVER}"
        )
    if fields[2] != b"%016x" % xxhash.xxh3_64_intdigest(body):
        raise UnreadableCheckpointError(f"{path} is corrupt: its checksum differs; {DAMAGED_REMEDY}")
    try:
        return msgspec.json.decode(body, type=type_)
    except msgspec.DecodeError as error:
        raise UnreadableCheckpointError(f"{path} cannot be decoded ({error}); {DAMAGED_REMEDY}") from error


def check_numbers(numbers: Collection[int], folder: str) -> int:
    """The number of the newest generation; 0 if there is none. Raises CheckpointError if one in between is missing."""
    newest = max(numbers, default=0)
    for number in range(min(numbers, default=1), newest):
        if number not in numbers:
            raise UnreadableCheckpointError(f"{folder}/{generation_name(number)} is missing; {DAMAGED_REMEDY}")
    return newest


def is_void(checkpoint: int, generation: int, generations: Generations) -> bool:
    """Whether a later generation adopted an earlier checkpoint than this one, or none."""
    return any(
        later.number > generation and (later.adopted is None or later.adopted < checkpoint)
        for later in generations.adoptions
    )


def check_begun(generation: int, generations: Generations, folder: str) -> None:
    """Raises CheckpointError unless the generation of a manifest has begun and has adopted a checkpoint."""
    if generation > generations.newest:
        raise UnreadableCheckpointError(f"{folder}/{generation_name(generation)} is missing; {DAMAGED_REMEDY}")
    if all(adoption.number != generation for adoption in generations.adoptions):
        raise UnreadableCheckpointError(f"{folder}/{adoption_name(generation)} is missing; {DAMAGED_REMEDY}")


def check_adopted(checkpoints: Collection[int], generations: Generations, folder: str) -> None:
    """Raises CheckpointError if the newest generation's adopted checkpoint is missing and there is no later one."""
    adopted = generations.adoptions[-1].adopted if generations.adoptions else None
    if adopted is not None and max(checkpoints, default=0) < adopted:
        raise UnreadableCheckpointError(f"{folder}: the manifest of checkpoint {adopted} is missing; {DAMAGED_REMEDY}")


def check_not_fenced(manifest: Manifest, generations: Generations) -> None:
    if manifest.generation < generations.newest:
        raise CheckpointError(
            f"checkpoint {manifest.checkpoint} of job {manifest.job!r} is refused: generation {generations.newest} has "
            f"taken over from generation {manifest.generation}; stop this run"
        )


def check_newest(generation: int | None, newest: int, job: str) -> None:
    """Raises CheckpointError if a later generation than ``generation`` has begun: the coordinator has been replaced.
    None: it does not continue another."""
    if generation is not None and generation != newest:
        raise CheckpointError(
            f"job {job!r} cannot continue after generation {generation}: generation {newest} has taken over; "
            "stop this run"
        )


def check_needs_no_log(manifest: Manifest) -> None:
    """Raises CheckpointError for a manifest that cannot be kept for good, since its snapshots need logs."""
    if any(handle.logs is not None for handle in manifest.handles):
        raise CheckpointError(
            f"checkpoint {manifest.checkpoint} cannot be kept: its tasks take snapshots alone, which need logs whose "
            "answers are not kept for long; stop the job first, or run it with protocol = aligned"
        )
