"""The manifest of a checkpoint as a file, and the rules of which manifests count and what they keep alive.

A manifest is one line of header (format version, checksum of the rest), then JSON: a person can read what a checkpoint
consists of. A generation is recorded with the checkpoint that it adopted; a manifest is void if a later generation
adopted an older checkpoint than it (D11): some coordinator wrote it after it had been replaced.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec
import xxhash

from clonos_py.checkpoint.chunks import DAMAGED_REMEDY
from clonos_py.checkpoint.layout import Location
from clonos_py.model.errors import CheckpointError
from clonos_py.model.snapshots import Manifest

FORMAT_VERSION = 1
_MAGIC = b"clonos-manifest"


class Generation(msgspec.Struct, frozen=True):
    """The start of a generation: ``adopted`` is the checkpoint it resumed from, None if it began anew."""

    number: int
    adopted: int | None


def encode(manifest: Manifest) -> bytes:
    body = msgspec.json.encode(manifest)
    return b"%s %d %016x\n%s" % (_MAGIC, manifest.format_version, xxhash.xxh3_64_intdigest(body), body)


def decode(content: bytes, job: str, path: str) -> Manifest:
    """Raises CheckpointError if the file is damaged, of another format version or of another job."""
    header, _, body = content.partition(b"\n")
    fields = header.split(b" ")
    if len(fields) != 3 or fields[0] != _MAGIC or not fields[1].isdigit():
        raise CheckpointError(f"{path} is corrupt: it does not begin like a manifest; {DAMAGED_REMEDY}")
    if int(fields[1]) != FORMAT_VERSION:
        raise CheckpointError(
            f"{path} has format version {int(fields[1])}, this version of clonos-py reads {FORMAT_VERSION}: "
            "run the version that wrote it, or start anew with --fresh"
        )
    if fields[2] != b"%016x" % xxhash.xxh3_64_intdigest(body):
        raise CheckpointError(f"{path} is corrupt: its checksum differs; {DAMAGED_REMEDY}")
    manifest = _decode_body(body, path)
    if manifest.job != job:
        raise CheckpointError(
            f"{path} belongs to job {manifest.job!r}, not to {job!r}: choose another checkpoint folder"
        )
    return manifest


def _decode_body(body: bytes, path: str) -> Manifest:
    try:
        return msgspec.json.decode(body, type=Manifest)
    except msgspec.DecodeError as error:
        raise CheckpointError(f"{path} cannot be decoded ({error}); {DAMAGED_REMEDY}") from error


def encode_generation(generation: Generation) -> bytes:
    return msgspec.json.encode(generation)


def decode_generation(content: bytes, path: str) -> Generation:
    try:
        return msgspec.json.decode(content, type=Generation)
    except msgspec.DecodeError as error:
        raise CheckpointError(f"{path} is corrupt ({error}); {DAMAGED_REMEDY}") from error


def is_void(checkpoint: int, generation: int, generations: Iterable[Generation]) -> bool:
    """Whether a later generation went on from an earlier checkpoint than this one."""
    return any(
        later.number > generation and (later.adopted is None or later.adopted < checkpoint) for later in generations
    )


def check_not_fenced(manifest: Manifest, generations: Sequence[Generation]) -> None:
    newest = max((generation.number for generation in generations), default=0)
    if manifest.generation < newest:
        raise CheckpointError(
            f"checkpoint {manifest.checkpoint} of job {manifest.job!r} is refused: generation {newest} has taken over "
            f"from generation {manifest.generation}; stop this run"
        )


def check_newest(generation: int | None, newest: int, job: str) -> None:
    """Whoever wants to go on after ``generation`` must not have been replaced; None: it has nothing to go on after."""
    if generation is not None and generation != newest:
        raise CheckpointError(
            f"job {job!r} cannot go on after generation {generation}: generation {newest} has taken over; stop this run"
        )


def referenced_files(manifest: Manifest) -> frozenset[str]:
    """The chunk files that a checkpoint needs."""
    tables = (
        table for task in manifest.tasks for operator in task.operators.values() for table in operator.tables.values()
    )
    return frozenset(Location.parse(chunk.location).file for chunks in tables for chunk in chunks)


def collectable(files: Mapping[str, int | None], referenced: frozenset[str], oldest_kept: int) -> list[str]:
    """The files (by the checkpoint that wrote them) that nobody can need any more.

    A file of an earlier checkpoint than the oldest kept one, to which no kept manifest refers, is dead: state that
    still lived after that checkpoint was part of it. A later file may belong to a checkpoint being written.
    """
    return [
        file
        for file, checkpoint in files.items()
        if checkpoint is not None and checkpoint < oldest_kept and file not in referenced
    ]
