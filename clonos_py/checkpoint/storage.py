"""Checkpoints as files behind ``pyarrow.fs`` (D15).

New chunks of a snapshot share files of about ``FILE_BYTES``: few enough files for an object store, small enough that a
long-lived chunk does not keep much dead state from being reclaimed. See ``layout`` for names, ``folder`` for
durability, ``manifest`` for which checkpoints count. Used by one I/O thread of a process at a time for writing; reading
is free of shared state.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa

from clonos_py.checkpoint import frames, layout
from clonos_py.checkpoint import manifest as manifests
from clonos_py.checkpoint.chunks import DAMAGED_REMEDY, Scratch, decode
from clonos_py.checkpoint.folder import open_folder
from clonos_py.checkpoint.layout import Location
from clonos_py.checkpoint.manifest import Adoption, Generation, Generations
from clonos_py.model.errors import CheckpointError
from clonos_py.model.ids import Attempt
from clonos_py.model.segments import LogSegment
from clonos_py.model.snapshots import (
    FrameRun,
    Manifest,
    OperatorHandle,
    StoredChunk,
    StoredFrames,
    TaskHandle,
    TaskSnapshot,
)
from clonos_py.model.state import Chunk, OperatorState

FILE_BYTES = 8 << 20

_GENERATIONS = layout.GENERATIONS
_MANIFESTS = f"{layout.LINE}/{layout.MANIFESTS}"
_SAVEPOINTS = f"{layout.LINE}/{layout.SAVEPOINTS}"
_STATE = f"{layout.LINE}/{layout.STATE}"
_ANSWERS = f"{layout.LINE}/{layout.ANSWERS}"


class _Needs(NamedTuple):
    """What a manifest keeps: the files to which it refers, and all that was written for its oldest epoch or later."""

    files: frozenset[str]
    oldest_epoch: int


class CheckpointStore:
    """The checkpoints of one job in a folder; see ``SnapshotStore`` for what it promises."""

    def __init__(self, uri: str, job: str) -> None:
        self.job = job
        self._folder = open_folder(uri, layout.name_in_folder(job))
        self._scratch = Scratch()
        self._files_written = 0
        self._needs: dict[str, _Needs] = {}
        """By path of a manifest."""
        self._begun: dict[int, Generation] = {}
        self._adoptions: dict[int, Adoption] = {}

    @property
    def path(self) -> str:
        return self._folder.root

    # Snapshots of tasks

    def write(self, snapshot: TaskSnapshot, attempt: Attempt) -> TaskHandle:
        values = {name: encode_values(name, state) for name, state in snapshot.operators.items()}
        logs = log_chunk(snapshot.logs)
        chunks = fresh_chunks(snapshot, logs)
        locations = list(self._write_parts(snapshot, attempt, [*chunks, *fresh_frames(snapshot)]))
        for chunk, location in zip(chunks, locations, strict=False):
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
            frames=stored_frames(snapshot, map(str, locations[len(chunks) :])),
            logs=_stored(logs) if logs else None,
            forced=snapshot.forced,
        )

    def _write_parts(
        self, snapshot: TaskSnapshot, attempt: Attempt, parts: Iterable[Chunk | FrameRun]
    ) -> Iterator[Location]:
        """Encodes chunks and frames into files, each written when it is full."""
        self._scratch.clear()
        file = self._next_file(snapshot, attempt)
        for part in parts:
            if self._scratch.used_bytes >= FILE_BYTES:
                self._folder.write(f"{layout.LINE}/{file}", self._scratch.content())
                self._scratch.clear()
                file = self._next_file(snapshot, attempt)
            if isinstance(part, Chunk):
                yield Location(file, *self._scratch.add(part.rows))
            else:
                yield Location(file, *frames.add(part, self._scratch))
        if self._scratch.used_bytes:
            self._folder.write(f"{layout.LINE}/{file}", self._scratch.content())

    def _next_file(self, snapshot: TaskSnapshot, attempt: Attempt) -> str:
        self._files_written += 1
        name = layout.chunk_file_name(snapshot.task, attempt, snapshot.checkpoint, self._files_written)
        return f"{layout.STATE}/{name}"

    def read(self, handle: OperatorHandle, known: Mapping[str, Chunk] | None = None) -> OperatorState:
        found = dict(known or {})
        missing = [c for chunks in handle.tables.values() for c in chunks if c.location not in found]
        found |= self.read_chunks(missing)
        tables = {table: [found[c.location] for c in chunks] for table, chunks in handle.tables.items()}
        return OperatorState(tables, self._decoded_values(handle))

    def _decoded_values(self, handle: OperatorHandle) -> Any:
        try:
            return msgspec.msgpack.decode(handle.values)
        except msgspec.DecodeError as error:
            raise CheckpointError(
                f"{self.path}: values of a snapshot cannot be decoded ({error}); {DAMAGED_REMEDY}"
            ) from error

    def read_chunks(self, stored: Iterable[StoredChunk]) -> dict[str, Chunk]:
        rows = {chunk.location: chunk.rows for chunk in stored}
        return {
            str(location): Chunk(decode(content, rows[str(location)], location.checksum, path), str(location))
            for location, content, path in self._read(rows)
        }

    def read_frames(self, locations: Iterable[str]) -> dict[str, FrameRun]:
        return {
            str(location): frames.decode(content, location.checksum, path)
            for location, content, path in self._read(locations)
        }

    def _read(self, locations: Iterable[str]) -> Iterator[tuple[Location, pa.Buffer, str]]:
        """What lies there, and in which file; file by file, however it is spread over them."""
        by_file: dict[str, list[Location]] = {}
        for location in map(Location.parse, locations):
            by_file.setdefault(location.file, []).append(location)
        for file, wanted in by_file.items():
            ranges = [(location.offset, location.size_bytes) for location in wanted]
            contents = self._folder.read_ranges(f"{layout.LINE}/{file}", ranges)
            for location, content in zip(wanted, contents, strict=True):
                yield location, content, f"{self.path}/{layout.LINE}/{file}"

    # Answers

    def keep_answer(self, epoch: int, owner: str, content: bytes) -> str:
        name = layout.answer_name(epoch, owner, content)
        self._folder.write(f"{_ANSWERS}/{name}", content)
        return name

    def kept_answer(self, name: str) -> bytes:
        layout.check_answer_name(name)
        content = self._read_file(f"{_ANSWERS}/{name}")
        if not layout.is_answer(name, content):
            raise CheckpointError(f"{self.path}/{_ANSWERS}/{name} is corrupt: its checksum differs; {DAMAGED_REMEDY}")
        return content

    # Generations

    def open_generation(self, after: int | None = None) -> int:
        self.latest()  # a line that is damaged is refused before anything is made
        number = self._begin_generation(after)
        newest = self.latest()
        adoption = Adoption(number, newest.checkpoint if newest else None)
        self._folder.write(f"{_GENERATIONS}/{layout.adoption_name(number)}", manifests.encode_generation(adoption))
        manifests.check_newest(number, self._generations().newest, self.job)
        return number

    def _begin_generation(self, after: int | None) -> int:
        while True:
            newest = self._generations().newest
            manifests.check_newest(after, newest, self.job)
            record = manifests.encode_generation(Generation(newest + 1))
            if self._folder.create(f"{_GENERATIONS}/{layout.generation_name(newest + 1)}", record):
                return newest + 1

    def _generations(self) -> Generations:
        """Each file is read once: they never change."""
        folder, names = f"{self.path}/{_GENERATIONS}", self._folder.names(_GENERATIONS)
        numbers = [number for name in names if (number := layout.generation_number(name)) is not None]
        newest = manifests.check_numbers(numbers, folder)
        for number in numbers:
            name, adopted = layout.generation_name(number), layout.adoption_name(number)
            if number not in self._begun:
                content = self._read_file(f"{_GENERATIONS}/{name}")
                self._begun[number] = manifests.decode_generation(content, number, f"{folder}/{name}")
            if number not in self._adoptions and adopted in names:
                content = self._read_file(f"{_GENERATIONS}/{adopted}")
                self._adoptions[number] = manifests.decode_adoption(content, number, f"{folder}/{adopted}")
        return Generations(newest, tuple(adoption for _, adoption in sorted(self._adoptions.items())))

    # Manifests

    def write_manifest(self, manifest: Manifest) -> None:
        self._check_job(manifest)
        manifests.check_not_fenced(manifest, self._generations())
        needed = manifests.needed_bytes(manifest)
        sizes = self._folder.sizes(_STATE)
        manifests.check_present(
            needed, {f"{layout.STATE}/{file}": size for file, size in sizes.items()}, f"{self.path}/{layout.LINE}"
        )
        name = layout.manifest_name(manifest.checkpoint, manifest.generation)
        self._folder.write(f"{_MANIFESTS}/{name}", manifests.encode(manifest))
        manifests.check_not_fenced(manifest, self._generations())
        self._needs[f"{_MANIFESTS}/{name}"] = _Needs(frozenset(needed), manifest.oldest_epoch)

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
        for _, generation in marks.values():
            manifests.check_begun(generation, generations, f"{self.path}/{_GENERATIONS}")
        valid = [name for name, mark in marks.items() if not manifests.is_void(*mark, generations)]
        if self._folder.names(layout.LINE):
            checkpoints = [marks[name][0] for name in valid]
            manifests.check_adopted(checkpoints, generations, f"{self.path}/{_MANIFESTS}")
        return valid

    def _savepoint_files(self) -> list[str]:
        return [file for file in self._folder.names(_SAVEPOINTS) if file.endswith(layout.MANIFEST_SUFFIX)]

    def _check_job(self, manifest: Manifest) -> None:
        if manifest.job != self.job:
            raise CheckpointError(f"{self.path} belongs to job {self.job!r}: the manifest is of job {manifest.job!r}")

    def _read_manifest(self, path: str) -> Manifest:
        mark = layout.manifest_mark(path.removeprefix(f"{_MANIFESTS}/"))
        return manifests.decode(self._read_file(path), self.job, f"{self.path}/{path}", mark)

    def _read_file(self, path: str) -> bytes:
        return self._folder.read(path).to_pybytes()

    # Retention

    def retire(self, keep: int = 2) -> None:
        kept = self._valid_names()[-keep:]
        if not kept:
            return
        self._look_up_needs(kept)
        referenced = frozenset[str]().union(*(needs.files for needs in self._needs.values()))
        chunks = frozenset(file.removeprefix(f"{layout.STATE}/") for file in referenced)
        oldest_epoch = self._needs[f"{_MANIFESTS}/{kept[0]}"].oldest_epoch
        problems = [
            *self._remove_before(_MANIFESTS, layout.checkpoint_of(kept[0]) or 0, frozenset(kept)),
            *self._remove_before(_ANSWERS, oldest_epoch, frozenset()),
            *self._remove_before(_STATE, oldest_epoch, chunks),
        ]
        if problems:
            others = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
            raise CheckpointError(f"{problems[0]}{others}")

    def _look_up_needs(self, kept: Iterable[str]) -> None:
        """Of the kept manifests (each is read once, none that this store wrote itself) and all savepoints."""
        paths = [
            *(f"{_MANIFESTS}/{name}" for name in kept),
            *(f"{_SAVEPOINTS}/{file}" for file in self._savepoint_files()),
        ]
        self._needs = {path: self._needs.get(path) or self._read_needs(path) for path in paths}

    def _read_needs(self, path: str) -> _Needs:
        manifest = self._read_manifest(path)
        return _Needs(frozenset(manifests.needed_bytes(manifest)), manifest.oldest_epoch)

    def _remove_before(self, folder: str, oldest_kept: int, needed: frozenset[str]) -> Iterator[CheckpointError]:
        """A file that cannot be deleted does not keep the others."""
        names = {name: layout.checkpoint_of(name) for name in self._folder.names(folder)}
        for name in manifests.collectable(names, needed, oldest_kept):
            try:
                self._folder.remove(f"{folder}/{name}")
            except CheckpointError as problem:
                yield problem

    def archive(self) -> str | None:
        taken = [layout.archive_number(name) for name in self._folder.names(layout.ARCHIVE)]
        target = f"{layout.ARCHIVE}/{max(taken, default=0) + 1:04d}"
        had_line = bool(self._folder.names(layout.LINE))
        if had_line:
            self._folder.move(layout.LINE, target)
        self._archive_damaged_generations(f"{target}.{_GENERATIONS}")
        self._needs.clear()
        return f"{self.path}/{target}" if had_line else None

    def _archive_damaged_generations(self, target: str) -> None:
        """Nothing could ever begin with them. The next one is numbered beyond them."""
        try:
            self._generations()
        except CheckpointError:
            numbers = map(layout.generation_number, self._folder.names(_GENERATIONS))
            newest = max((number for number in numbers if number is not None), default=0)
            self._folder.move(_GENERATIONS, target)
            self._begun.clear()
            self._adoptions.clear()
            record = manifests.encode_generation(Generation(newest + 1))
            self._folder.create(f"{_GENERATIONS}/{layout.generation_name(newest + 1)}", record)


def log_chunk(logs: Sequence[LogSegment]) -> Chunk | None:
    """The segments as rows, each encoded."""
    if not logs:
        return None
    return Chunk(pa.record_batch({"segment": pa.array([msgspec.msgpack.encode(s) for s in logs], pa.binary())}))


def logs_in(chunk: Chunk) -> list[LogSegment]:
    """The segments that ``log_chunk`` made rows of. Raises CheckpointError on anything else."""
    try:
        rows: list[bytes] = chunk.rows.column("segment").to_pylist()  # type: ignore[assignment]
        return [msgspec.msgpack.decode(row, type=LogSegment) for row in rows]
    except (msgspec.MsgspecError, KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"{chunk.location} holds no determinants ({error}); {DAMAGED_REMEDY}") from error


def fresh_chunks(snapshot: TaskSnapshot, logs: Chunk | None) -> list[Chunk]:
    """The chunks of a snapshot that are not stored yet."""
    tables = (chunks for state in snapshot.operators.values() for chunks in state.tables.values())
    every = chain(chain.from_iterable(tables), [logs] if logs else [])
    return [chunk for chunk in every if chunk.location is None]


def fresh_frames(snapshot: TaskSnapshot) -> list[FrameRun]:
    """The frames of a snapshot that are not stored yet."""
    return [part for parts in snapshot.frames.values() for part in parts if isinstance(part, FrameRun)]


def stored_frames(snapshot: TaskSnapshot, locations: Iterable[str]) -> dict[int, list[StoredFrames]]:
    """Where all frames of a snapshot lie. ``locations``: of the fresh ones, in their order."""
    fresh = iter(locations)
    return {
        output: [
            StoredFrames(next(fresh), part.start, part.stop, part.rows) if isinstance(part, FrameRun) else part
            for part in parts
        ]
        for output, parts in snapshot.frames.items()
        if parts
    }


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
