"""Checkpoints as files behind ``pyarrow.fs`` (D15).

New chunks of a snapshot share files of about ``FILE_BYTES``: few enough files for an object store, small enough that a
long-lived chunk does not keep much dead state from being reclaimed. See ``layout`` for names, ``folder`` for
durability, ``manifest`` for which checkpoints count. Used by one I/O thread of a process at a time for writing; reading
is free of shared state.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from clonos_py.checkpoint import layout
from clonos_py.checkpoint import manifest as manifests
from clonos_py.checkpoint.chunks import Scratch, decode
from clonos_py.checkpoint.folder import open_folder
from clonos_py.checkpoint.layout import Location
from clonos_py.checkpoint.manifest import Generation
from clonos_py.model.errors import CheckpointError
from clonos_py.model.ids import Attempt
from clonos_py.model.snapshots import Manifest, OperatorHandle, StoredChunk, TaskHandle, TaskSnapshot
from clonos_py.model.state import Chunk, OperatorState

FILE_BYTES = 8 << 20

_MANIFESTS = f"{layout.LINE}/{layout.MANIFESTS}"
_SAVEPOINTS = f"{layout.LINE}/{layout.SAVEPOINTS}"
_STATE = f"{layout.LINE}/{layout.STATE}"
_ANSWERS = f"{layout.LINE}/{layout.ANSWERS}"


class CheckpointStore:
    """The checkpoints of one job in a folder; see ``SnapshotStore`` for what it promises."""

    def __init__(self, uri: str, job: str) -> None:
        self.job = job
        self._folder = open_folder(uri, layout.name_in_folder(job))
        self._scratch = Scratch()
        self._files_written = 0
        self._referenced: dict[str, frozenset[str]] = {}

    @property
    def path(self) -> str:
        return self._folder.root

    # Snapshots of tasks

    def write(self, snapshot: TaskSnapshot, attempt: Attempt) -> TaskHandle:
        values = {name: encode_values(name, state) for name, state in snapshot.operators.items()}
        fresh = [chunk for chunk in chunks_of(snapshot.operators.values()) if chunk.location is None]
        locations = list(self._write_chunks(snapshot, attempt, fresh))
        for chunk, location in zip(fresh, locations, strict=True):
            chunk.location = str(location)
        return TaskHandle(
            task=snapshot.task,
            checkpoint=snapshot.checkpoint,
            operators={
                name: OperatorHandle(
                    {table: [_stored(chunk) for chunk in chunks] for table, chunks in state.tables.items()},
                    values[name],
                )
                for name, state in snapshot.operators.items()
            },
            progress=snapshot.progress,
            committables={name: list(named) for name, named in snapshot.committables.items()},
            written_bytes=sum(location.size_bytes for location in locations),
        )

    def _write_chunks(self, snapshot: TaskSnapshot, attempt: Attempt, fresh: Iterable[Chunk]) -> Iterator[Location]:
        """Encodes chunks into files, each written when it is full."""
        self._scratch.clear()
        file = self._next_file(snapshot, attempt)
        for chunk in fresh:
            if self._scratch.used_bytes >= FILE_BYTES:
                self._folder.write(f"{layout.LINE}/{file}", self._scratch.content())
                self._scratch.clear()
                file = self._next_file(snapshot, attempt)
            yield Location(file, *self._scratch.add(chunk.rows))
        if self._scratch.used_bytes:
            self._folder.write(f"{layout.LINE}/{file}", self._scratch.content())

    def _next_file(self, snapshot: TaskSnapshot, attempt: Attempt) -> str:
        self._files_written += 1
        name = layout.chunk_file_name(snapshot.task, attempt, snapshot.checkpoint, self._files_written)
        return f"{layout.STATE}/{name}"

    def read(self, handle: OperatorHandle, known: Mapping[str, Chunk] | None = None) -> OperatorState:
        found = dict(known or {})
        missing = [c for chunks in handle.tables.values() for c in chunks if c.location not in found]
        for chunk in self._read_chunks(missing):
            found[chunk.location or ""] = chunk
        tables = {table: [found[c.location] for c in chunks] for table, chunks in handle.tables.items()}
        return OperatorState(tables, msgspec.msgpack.decode(handle.values))

    def _read_chunks(self, stored: Iterable[StoredChunk]) -> Iterator[Chunk]:
        """File by file, however the chunks are spread over them."""
        by_file: dict[str, list[tuple[Location, int]]] = {}
        for chunk in stored:
            location = Location.parse(chunk.location)
            by_file.setdefault(location.file, []).append((location, chunk.rows))
        for file, wanted in by_file.items():
            ranges = [(location.offset, location.size_bytes) for location, _ in wanted]
            contents = self._folder.read_ranges(f"{layout.LINE}/{file}", ranges)
            for (location, rows), content in zip(wanted, contents, strict=True):
                batch = decode(content, rows, location.checksum, f"{self.path}/{layout.LINE}/{file}")
                yield Chunk(batch, str(location))

    # Answers

    def keep_answer(self, epoch: int, owner: str, content: bytes) -> str:
        name = layout.answer_name(epoch, owner, content)
        self._folder.write(f"{_ANSWERS}/{name}", content)
        return name

    def kept_answer(self, name: str) -> bytes:
        return self._read(f"{_ANSWERS}/{name}")

    # Generations

    def open_generation(self, after: int | None = None) -> int:
        while True:
            number = max((generation.number for generation in self._generations()), default=0) + 1
            manifests.check_newest(after, number - 1, self.job)
            newest = self.latest()
            record = Generation(number, newest.checkpoint if newest else None)
            path = f"{layout.GENERATIONS}/{layout.generation_name(number)}"
            if self._folder.create(path, manifests.encode_generation(record)):
                return number

    def _generations(self) -> list[Generation]:
        paths = [f"{layout.GENERATIONS}/{name}" for name in self._folder.names(layout.GENERATIONS) if name.isdigit()]
        return [manifests.decode_generation(self._read(path), f"{self.path}/{path}") for path in paths]

    # Manifests

    def write_manifest(self, manifest: Manifest) -> None:
        self._check_job(manifest)
        manifests.check_not_fenced(manifest, self._generations())
        name = layout.manifest_name(manifest.checkpoint, manifest.generation)
        self._folder.write(f"{_MANIFESTS}/{name}", manifests.encode(manifest))
        self._referenced[f"{_MANIFESTS}/{name}"] = manifests.referenced_files(manifest)

    def latest(self) -> Manifest | None:
        names = self._valid_names()
        return self._read_manifest(f"{_MANIFESTS}/{names[-1]}") if names else None

    def manifests(self) -> list[Manifest]:
        return [self._read_manifest(f"{_MANIFESTS}/{name}") for name in self._valid_names()]

    def write_savepoint(self, name: str, manifest: Manifest) -> None:
        self._check_job(manifest)
        path = f"{_SAVEPOINTS}/{layout.name_in_folder(name)}{layout.MANIFEST_SUFFIX}"
        if not self._folder.create(path, manifests.encode(manifest)):
            raise CheckpointError(f"{self.path}/{path} exists: savepoints are never overwritten, choose another name")

    def savepoints(self) -> dict[str, Manifest]:
        return {
            layout.savepoint_name(file): self._read_manifest(f"{_SAVEPOINTS}/{file}")
            for file in self._savepoint_files()
        }

    def _valid_names(self) -> list[str]:
        """The files of the manifests that count, oldest checkpoint first."""
        generations = self._generations()
        marks = {name: mark for name in self._folder.names(_MANIFESTS) if (mark := layout.manifest_mark(name))}
        return [name for name, mark in marks.items() if not manifests.is_void(*mark, generations)]

    def _savepoint_files(self) -> list[str]:
        return [file for file in self._folder.names(_SAVEPOINTS) if file.endswith(layout.MANIFEST_SUFFIX)]

    def _check_job(self, manifest: Manifest) -> None:
        if manifest.job != self.job:
            raise CheckpointError(f"{self.path} belongs to job {self.job!r}: the manifest is of job {manifest.job!r}")

    def _read_manifest(self, path: str) -> Manifest:
        return manifests.decode(self._read(path), self.job, f"{self.path}/{path}")

    def _read(self, path: str) -> bytes:
        return self._folder.read(path).to_pybytes()

    # Retention

    def retire(self, keep: int = 2) -> None:
        kept = self._valid_names()[-keep:]
        if not kept:
            return
        oldest_kept = layout.checkpoint_of(kept[0]) or 0
        referenced = self._files_referenced(kept)
        self._remove_before(_MANIFESTS, oldest_kept, frozenset(kept))
        self._remove_before(_ANSWERS, oldest_kept, frozenset())
        self._remove_before(
            _STATE, oldest_kept, frozenset(file.removeprefix(f"{layout.STATE}/") for file in referenced)
        )

    def _files_referenced(self, kept: Iterable[str]) -> frozenset[str]:
        """By the kept manifests (each is read once, none that this store wrote itself) and all savepoints."""
        paths = [
            *(f"{_MANIFESTS}/{name}" for name in kept),
            *(f"{_SAVEPOINTS}/{file}" for file in self._savepoint_files()),
        ]
        self._referenced = {
            path: self._referenced[path]
            if path in self._referenced
            else manifests.referenced_files(self._read_manifest(path))
            for path in paths
        }
        return frozenset().union(*self._referenced.values())

    def _remove_before(self, folder: str, oldest_kept: int, needed: frozenset[str]) -> None:
        names = {name: layout.checkpoint_of(name) for name in self._folder.names(folder)}
        for name in manifests.collectable(names, needed, oldest_kept):
            self._folder.remove(f"{folder}/{name}")

    def archive(self) -> str | None:
        if not self._folder.names(layout.LINE):
            return None
        taken = [int(name) for name in self._folder.names(layout.ARCHIVE) if name.isdigit()]
        target = f"{layout.ARCHIVE}/{max(taken, default=0) + 1:04d}"
        self._folder.move(layout.LINE, target)
        self._referenced.clear()
        return f"{self.path}/{target}"


def chunks_of(states: Iterable[OperatorState]) -> Iterator[Chunk]:
    for state in states:
        for chunks in state.tables.values():
            yield from chunks


def encode_values(operator: str, state: OperatorState) -> bytes:
    """Raises CheckpointError for a value that is not plain data."""
    try:
        return msgspec.msgpack.encode(dict(state.values))
    except (TypeError, OverflowError, ValueError) as error:
        raise CheckpointError(
            f"operator {operator!r} has a value that cannot be stored ({error}): keep plain data"
        ) from error


def _stored(chunk: Chunk) -> StoredChunk:
    location = Location.parse(chunk.location or "")
    return StoredChunk(str(location), chunk.rows.num_rows, location.size_bytes, location.checksum)
