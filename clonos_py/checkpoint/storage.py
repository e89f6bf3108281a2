"""Checkpoints as files in a folder (D15).

New chunks of a snapshot share files of about ``FILE_BYTES``. So there are few enough files for an object store, and a
long-lived chunk does not prevent much dead state from being deleted. See ``layout`` for names, ``folder`` for
durability, ``manifest_files`` for which checkpoints count, ``retention`` for which files these need. One I/O thread of
a process writes at a time; reading uses no shared state.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa

from clonos_py.checkpoint import frames, layout, retention
from clonos_py.checkpoint.chunks import Scratch, decode
from clonos_py.checkpoint.folders import open_folder
from clonos_py.checkpoint.layout import Location
from clonos_py.checkpoint.log_chunks import decode_tail, encode_tail, log_chunk, logs_in
from clonos_py.checkpoint.manifest import Mark
from clonos_py.checkpoint.manifest_files import ManifestFiles
from clonos_py.checkpoint.record_files import RecordFiles
from clonos_py.checkpoint.record_retention import RecordBase, answers_from, first_needed, first_record, taken_bytes
from clonos_py.checkpoint.retention import OldestEpochs, oldest_epochs
from clonos_py.columns.compact import compact
from clonos_py.model.errors import DAMAGED_REMEDY, CheckpointError, UnreadableCheckpointError
from clonos_py.model.ids import Attempt, TaskId
from clonos_py.model.segments import LogSegment
from clonos_py.model.snapshots import (
    FrameRun,
    Manifest,
    OperatorHandle,
    Recorded,
    RecordTail,
    StoredChunk,
    StoredFrames,
    TaskHandle,
    TaskSnapshot,
)
from clonos_py.model.state import Chunk, OperatorState

FILE_BYTES = 8 << 20

_STATE = f"{layout.LINE}/{layout.STATE}"
_ANSWERS = f"{layout.LINE}/{layout.ANSWERS}"
_RECORDS = f"{layout.LINE}/{layout.RECORDS}"


class _Needs(NamedTuple):
    """What a manifest needs: the files of the chunks that it refers to, the manifests that it is composed of,
    everything written for its oldest epochs or later, answers of ``answers`` and record files of ``first_record`` or
    later; all files of the record that it needs are of checkpoint ``first`` or later."""

    files: frozenset[str]
    marks: Sequence[Mark]
    oldest: OldestEpochs
    answers: OldestEpochs
    first_record: int
    first: int
    recorded: Recorded | None


class CheckpointStore:
    """The checkpoints of one job in a folder; see ``SnapshotStore`` for its guarantees."""

    def __init__(self, uri: str, job: str, read_soon: bool = True) -> None:
        """``read_soon``: whether other processes read what this one writes, as standbys do."""
        self.job = job
        self._folder = open_folder(uri, layout.name_in_folder(job), read_soon=read_soon)
        self._scratch = Scratch()
        self._files_written = 0
        self._manifests = ManifestFiles(self._folder, job)
        self._records = RecordFiles(self._folder)
        self._written: list[Mark] = []
        """The manifests that this store has written since it has opened a generation, and has not deleted."""
        self._listed: Mapping[str, int] | None = None
        """The sizes of the chunk files, as they were listed for the manifest that was written last."""
        self._sweeps = True
        """Whether there may be manifests and answers to delete. In a job that records this is rare."""
        self._has_others = True
        """Whether there may be manifests that this store has not written."""
        self._needs: dict[Mark | str, _Needs] = {}
        """By mark of a manifest, and by file of a savepoint."""

    @property
    def path(self) -> str:
        return self._folder.root

    @property
    def requests(self) -> Mapping[str, int]:
        return self._folder.requests

    # Snapshots of tasks

    def write(self, snapshot: TaskSnapshot, attempt: Attempt) -> TaskHandle:
        values = {name: encode_values(name, state) for name, state in snapshot.operators.items()}
        logs = log_chunk(snapshot.logs) if snapshot.logs else None
        chunks = fresh_chunks(snapshot, logs)
        locations = list(self._write_parts(snapshot, attempt, [*chunks, *fresh_frames(snapshot)]))
        recorded = self._write_record(snapshot, attempt)
        for chunk, location in chain(zip(chunks, locations, strict=False), recorded):
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
            written_bytes=sum(location.size_bytes for location in chain(locations, (at for _, at in recorded))),
            frames=stored_frames(snapshot, map(str, locations[len(chunks) :])),
            logs=_stored(logs) if logs else None,
            forced=snapshot.forced,
            record=[_stored(piece) for piece in snapshot.record],
            without_log=snapshot.without_log,
        )

    def _write_record(self, snapshot: TaskSnapshot, attempt: Attempt) -> list[tuple[Chunk, Location]]:
        """Writes the new pieces of the task's log into one file. Returns each with its location."""
        fresh = [piece for piece in snapshot.record if piece.location is None]
        if not fresh:
            return []
        self._scratch.clear()
        file = layout.record_file(snapshot.task, attempt, snapshot.checkpoint)
        written = [(piece, Location(file, *self._scratch.add(piece.rows, compressed=True))) for piece in fresh]
        self._folder.write(f"{layout.LINE}/{file}", self._scratch.content())
        return written

    def _write_parts(
        self, snapshot: TaskSnapshot, attempt: Attempt, parts: Iterable[Chunk | FrameRun]
    ) -> Iterator[Location]:
        """Encodes chunks and frames into files, each written when it is full. Equal rows have equal bytes, so that a
        replay can compare checksums (F2)."""
        self._scratch.clear()
        file = self._next_file(snapshot, attempt)
        for part in parts:
            if self._scratch.used_bytes >= FILE_BYTES:
                self._folder.write(f"{layout.LINE}/{file}", self._scratch.content())
                self._scratch.clear()
                file = self._next_file(snapshot, attempt)
            if isinstance(part, Chunk):
                yield Location(file, *self._scratch.add(compact(part.rows)))
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
        every = [chunk for chunks in handle.tables.values() for chunk in chunks]
        found |= self.read_chunks(c for c in every if not c.of_others and c.location not in found)
        tables = {
            table: [c.unread() if c.of_others else found[c.location] for c in chunks]
            for table, chunks in handle.tables.items()
        }
        return OperatorState(tables, self._decoded_values(handle))

    def _decoded_values(self, handle: OperatorHandle) -> Any:
        try:
            return msgspec.msgpack.decode(handle.values)
        except msgspec.DecodeError as error:
            raise UnreadableCheckpointError(
                f"{self.path}: values of a snapshot cannot be decoded ({error}); {DAMAGED_REMEDY}"
            ) from error

    def read_chunks(self, stored: Iterable[StoredChunk]) -> dict[str, Chunk]:
        rows = {chunk.location: chunk.rows for chunk in stored}
        return {
            str(location): Chunk(decode(content, rows[str(location)], location.checksum, path), str(location))
            for location, content, path in self._read(rows)
        }

    def read_record(self, record: Iterable[StoredChunk]) -> list[LogSegment]:
        pieces = list(record)
        found = self.read_chunks(pieces)
        return [segment for piece in pieces for segment in logs_in(found[piece.location])]

    def write_tail(self, tail: RecordTail) -> None:
        file = layout.tail_file(tail.task, tail.attempt, tail.interval.checkpoint)
        self._folder.write(f"{layout.LINE}/{file}", encode_tail(tail))

    def tails(self) -> list[RecordTail]:
        newest = self._manifests.latest()
        before = newest.checkpoint - 1 if newest is not None else 0  # the newest may not have been known to be complete
        first, found = layout.bucket_name(max(before, 0)), []
        for bucket in self._folder.names(_RECORDS):
            for name in self._folder.names(f"{_RECORDS}/{bucket}") if bucket >= first else ():
                if name.endswith(layout.TAIL_SUFFIX):
                    path = f"{_RECORDS}/{bucket}/{name}"
                    found.append(decode_tail(self._folder.read(path).to_pybytes(), f"{self.path}/{path}"))
        return found

    def read_frames(self, locations: Iterable[str]) -> dict[str, FrameRun]:
        return {
            str(location): frames.decode(content, location.checksum, path)
            for location, content, path in self._read(locations)
        }

    def _read(self, locations: Iterable[str]) -> Iterator[tuple[Location, pa.Buffer, str]]:
        """The content of each location and the path of its file. Each file is read once, in any order of locations."""
        by_file: dict[str, list[Location]] = {}
        for location in map(Location.parse, locations):
            by_file.setdefault(location.file, []).append(location)
        for file, requested in by_file.items():
            ranges = [(location.offset, location.size_bytes) for location in requested]
            contents = self._folder.read_ranges(f"{layout.LINE}/{file}", ranges)
            for location, content in zip(requested, contents, strict=True):
                yield location, content, f"{self.path}/{layout.LINE}/{file}"

    # Answers

    def keep_answer(self, epoch: int, task: TaskId, process: int, content: bytes) -> str:
        name = layout.answer_name(epoch, task, process, content)
        self._folder.write(f"{_ANSWERS}/{name}", content)
        return name

    def kept_answer(self, name: str) -> bytes:
        layout.check_answer_name(name)
        content = self._folder.read(f"{_ANSWERS}/{name}").to_pybytes()
        if not layout.is_answer(name, content):
            raise UnreadableCheckpointError(
                f"{self.path}/{_ANSWERS}/{name} is corrupt: its checksum differs; {DAMAGED_REMEDY}"
            )
        return content

    # Manifests

    def open_generation(self, after: int | None = None) -> int:
        number = self._manifests.open_generation(after)
        self._written, self._has_others = [], True
        return number

    def write_manifest(self, manifest: Manifest) -> None:
        self._manifests.check(manifest)
        needed = retention.needed_bytes(manifest.handles)
        self._listed = self._folder.sizes(_STATE)
        retention.check_present(needed, self._state_sizes(self._listed), f"{self.path}/{layout.LINE}")
        marks = self._manifests.write(manifest)
        self._needs[marks[-1]] = _needs(manifest, marks)
        self._written = [*self._written, marks[-1]]
        pieces = (piece for handle in manifest.handles for piece in handle.record)
        self._records.written(self._manifests.written_bytes, {piece.location: piece.size_bytes for piece in pieces})

    def latest(self) -> Manifest | None:
        return self._manifests.latest()

    def manifests(self) -> list[Manifest]:
        return list(self._manifests.read_each(self._manifests.valid()))

    def readable(self) -> list[Manifest]:
        """The complete checkpoints whose state is kept, oldest first; the newest one in any case. Of others only the
        manifests are left."""
        sizes, found = self._state_sizes(self._folder.sizes(_STATE)), self.manifests()
        return [one for one in found if one is found[-1] or retention.are_present(one, sizes)]

    def _state_sizes(self, listed: Mapping[str, int]) -> dict[str, int]:
        """By chunk file that exists, as manifests name it: its size in bytes."""
        return {f"{layout.STATE}/{file}": size for file, size in listed.items()}

    def write_savepoint(self, name: str, manifest: Manifest) -> None:
        self._manifests.write_savepoint(name, manifest)

    def savepoints(self) -> dict[str, Manifest]:
        files = self._manifests.savepoints()
        return {layout.savepoint_name(file): self._manifests.read_savepoint(file) for file in files}

    def remove_savepoint(self, name: str) -> None:
        """Deletes a savepoint; its files go with the next checkpoint. Raises CheckpointError if there is none."""
        self.savepoint(name)
        self._manifests.remove_savepoint(name)

    def savepoint(self, name: str) -> Manifest:
        """The savepoint of this name. Raises CheckpointError if there is none."""
        found = self.savepoints()
        if name not in found:
            there = ", ".join(map(repr, sorted(found))) or "none"
            raise CheckpointError(f"{self.path} has no savepoint {name!r}; savepoints: {there}")
        return found[name]

    def copy(self, manifest: Manifest, target: CheckpointStore) -> None:
        """Copies a checkpoint with all files that it needs into a folder of its own, from which a run can continue.
        Its record stays behind. Raises CheckpointError if the folder has checkpoints of the job."""
        if target._folder.names(f"{layout.LINE}/{layout.MANIFESTS}"):
            raise CheckpointError(f"{target.path} has checkpoints already: name another folder")
        for file in retention.needed_bytes(manifest.handles):
            target._folder.write(f"{layout.LINE}/{file}", memoryview(self._folder.read(f"{layout.LINE}/{file}")))
        bare = msgspec.structs.replace(
            manifest,
            generation=target.open_generation(),
            recorded=None,
            tasks=[msgspec.structs.replace(handle, record=[]) for handle in manifest.tasks],
            earlier=[msgspec.structs.replace(handle, record=[]) for handle in manifest.earlier],
        )
        target.write_manifest(bare)

    # Retention

    def bases(self) -> list[Manifest]:
        counting = set(self._manifests.valid())
        return [self._manifests.read(base.mark)[0] for base in self._records.bases() if base.mark in counting]

    def retire(self, keep: int = 2) -> None:
        kept = self._newest(keep)
        if not kept:
            return
        newest = kept[-1]
        if self._records.keep(newest, self._needed_by(newest).recorded, self._manifests.valid, self._taken):
            self._sweeps = True
        bases = [base.mark for base in self._records.bases()]
        folders = self._folder.names(layout.LINE)
        self._look_up_needs({*bases, *kept}, self._manifests.savepoints() if layout.SAVEPOINTS in folders else ())
        first = min((*bases, kept[0]))
        useless = [*self._useless_chunks(kept[0]), *self._useless_manifests(first, recorded=bool(bases))]
        if layout.ANSWERS in folders and (self._sweeps or not bases):
            answers = self._folder.names(_ANSWERS)
            useless += self._written_before(_ANSWERS, answers, self._needs[first].answers, ())
        first_record, recorded = self._needs[first].first_record, self._needs[newest].recorded
        if recorded is not None and recorded.record_bytes and self._sweeps:
            useless += self._records.files_before(first_record)
        problems = [*self._folder.remove_all(useless), *self._records.remove_before(first_record)]
        self._sweeps = bool(problems)
        if problems:
            others = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
            raise CheckpointError(f"{problems[0]}{others}")

    def _useless_chunks(self, oldest: Mark) -> list[str]:
        """``oldest``: the oldest checkpoint whose state is kept."""
        needed = {file.removeprefix(f"{layout.STATE}/") for needs in self._needs.values() for file in needs.files}
        listed, self._listed = self._listed, None
        files = self._folder.sizes(_STATE) if listed is None else listed
        return self._written_before(_STATE, files, self._needs[oldest].oldest, needed)

    def _useless_manifests(self, first: Mark, recorded: bool) -> list[str]:
        """Those before ``first``. They are listed only if some may be there that this store has not written."""
        needed = {mark for needs in self._needs.values() for mark in needs.marks}
        own, self._written = self._written, [m for m in self._written if m[0] >= first[0] or m in needed]
        if self._sweeps or (self._has_others and not recorded):
            self._has_others = not needed.issubset(own)
            return self._manifests.before(first[0], needed)
        return [] if recorded else self._manifests.paths(mark for mark in own if mark not in self._written)

    def record_bytes(self) -> int:
        bases = self._records.bases()
        return self._taken(bases)[0] if bases else 0

    def _taken(self, bases: Sequence[RecordBase]) -> list[int]:
        """See RecordMeasures."""
        needs = [self._needed_by(base.mark) for base in bases]
        sizes = self._state_sizes(self._folder.sizes(_STATE))
        state = [{file: sizes.get(file, 0) for file in each.files} for each in needs]
        return taken_bytes([each.first for each in needs], state, self._records.sizes())

    def _newest(self, keep: int) -> list[Mark]:
        """The newest manifests that count, oldest first. They are not listed if this store has written enough."""
        recent = self._written[-keep:]
        return recent if len(recent) == keep else self._manifests.valid()[-keep:]

    def _needed_by(self, mark: Mark) -> _Needs:
        if mark not in self._needs:
            self._needs[mark] = _needs(*self._manifests.read(mark))
        return self._needs[mark]

    def _look_up_needs(self, kept: Collection[Mark], savepoints: Iterable[str]) -> None:
        """Collects the needs of the kept manifests and all savepoints; reads those that this store has not written."""
        known, self._needs = self._needs, {mark: self._needed_by(mark) for mark in kept}
        for file in savepoints:
            self._needs[file] = known.get(file) or _needs(self._manifests.read_savepoint(file), ())

    def _written_before(
        self, folder: str, names: Iterable[str], oldest: OldestEpochs, needed: Collection[str]
    ) -> list[str]:
        files = {name: layout.origin(name) for name in names}
        return [f"{folder}/{name}" for name in retention.collectable(files, needed, oldest)]

    def archive(self) -> str | None:
        taken = [layout.archive_number(name) for name in self._folder.names(layout.ARCHIVE)]
        target = f"{layout.ARCHIVE}/{max(taken, default=0) + 1:04d}"
        had_line = bool(self._folder.names(layout.LINE))
        if had_line:
            self._folder.move(layout.LINE, target)
        self._manifests.archived(f"{target}.{layout.GENERATIONS}")
        self._needs.clear()
        self._records.forget()
        self._written, self._has_others = [], True
        return f"{self.path}/{target}" if had_line else None


def _needs(manifest: Manifest, marks: Sequence[Mark]) -> _Needs:
    files = frozenset(retention.needed_bytes(manifest.handles))
    oldest = oldest_epochs(manifest)
    record, first = first_record(manifest), first_needed(manifest, marks)
    return _Needs(files, marks, oldest, answers_from(manifest), record, first, manifest.recorded)


def fresh_chunks(snapshot: TaskSnapshot, logs: Chunk | None) -> list[Chunk]:
    """The chunks of a snapshot that are not stored yet."""
    tables = (chunks for state in snapshot.operators.values() for chunks in state.tables.values())
    every = chain(chain.from_iterable(tables), [logs] if logs else [])
    return [chunk for chunk in every if chunk.location is None]


def fresh_frames(snapshot: TaskSnapshot) -> list[FrameRun]:
    """The frames of a snapshot that are not stored yet."""
    return [part for parts in snapshot.frames.values() for part in parts if isinstance(part, FrameRun)]


def stored_frames(snapshot: TaskSnapshot, locations: Iterable[str]) -> dict[int, list[StoredFrames]]:
    """The locations of all frames of a snapshot. ``locations``: those of the fresh ones, in order."""
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
    """Encodes the values of an operator. Raises CheckpointError for a value that is not plain data."""
    try:
        return msgspec.msgpack.encode(dict(state.values))
    except (TypeError, OverflowError, ValueError) as error:
        raise CheckpointError(
            f"operator {operator!r} has a value that cannot be stored ({error}): keep plain data"
        ) from error


def _stored(chunk: Chunk) -> StoredChunk:
    location = Location.parse(chunk.location or "")
    return StoredChunk(str(location), chunk.rows.num_rows, location.size_bytes, location.checksum, chunk.groups)
