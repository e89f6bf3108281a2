"""``CheckpointStore`` in memory, for the simulator and for jobs that need no durability.

Values are encoded as for files, so that a snapshot cannot be changed later. Chunks are immutable and are stored without
encoding. This store checks what files cannot check cheaply: that no manifest refers to a deleted chunk. ``fail_next``
injects failures, ``be_silent`` outages.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec
import pyarrow as pa

from clonos_py.checkpoint import layout, manifest_chain
from clonos_py.checkpoint.log_chunks import log_chunk, logs_in
from clonos_py.checkpoint.manifest import (
    Adoption,
    Generations,
    Mark,
    check_needs_no_log,
    check_newest,
    check_not_fenced,
    is_void,
)
from clonos_py.checkpoint.manifest_chain import DELTAS_MAX, ManifestChain
from clonos_py.checkpoint.record_retention import (
    RecordBase,
    RecordMeasures,
    answers_from,
    first_needed,
    first_record,
    kept_bases,
    taken_bytes,
)
from clonos_py.checkpoint.retention import collectable, oldest_epochs
from clonos_py.checkpoint.storage import encode_values, fresh_chunks, fresh_frames, stored_frames
from clonos_py.model.errors import CheckpointError, StorageUnavailableError
from clonos_py.model.ids import Attempt, TaskId
from clonos_py.model.segments import LogSegment
from clonos_py.model.snapshots import (
    FrameRun,
    Manifest,
    OperatorHandle,
    RecordTail,
    StoredChunk,
    TaskHandle,
    TaskSnapshot,
)
from clonos_py.model.state import Chunk, OperatorState

_AWAITED = frozenset({"write", "write_manifest", "read", "keep_answer", "kept_answer", "open_generation", "retire"})


class _Decoded(NamedTuple):
    """A manifest, and the files that it is composed of, the whole one first."""

    manifest: Manifest
    files: dict[Mark, bytes]


class MemoryStore:
    """The checkpoints of one job in this process; see ``SnapshotStore``."""

    def __init__(self, job: str, deltas_max: int = DELTAS_MAX) -> None:
        self.job = job
        self.requests: Mapping[str, int] = {}
        self._chain = ManifestChain(deltas_max)
        self._chunks: dict[str, pa.RecordBatch] = {}
        self._runs: dict[str, FrameRun] = {}
        self._records: dict[str, pa.RecordBatch] = {}
        self._tails: list[RecordTail] = []
        self._bases: list[RecordBase] = []
        self._manifests: dict[Mark, bytes] = {}
        self._decoded: dict[Mark, _Decoded] = {}
        """By mark: manifests that were read. One that was deleted or overwritten since is read again."""
        self._savepoints: dict[str, Manifest] = {}
        self._generations = Generations(0)
        self._parts_written = 0
        self._answers: dict[str, bytes] = {}
        self._archived = 0
        self._failures: dict[str, list[Exception]] = {}
        self._silent_calls = 0
        """How many of the next calls get no answer."""
        self._silent_calls_then: int | None = None
        """The next manifest is written and gets no answer, and no more do so many calls after it; None: it does."""

    def fail_next(self, method: str, error: Exception | None = None) -> None:
        """The next call of ``method`` raises ``error`` and changes nothing; further failures queue up behind it."""
        planned = error or CheckpointError(f"planned failure of {method}; nothing was changed")
        self._failures.setdefault(method, []).append(planned)

    def fail_no_more(self) -> None:
        """Drops the failures that were planned and have not happened."""
        self._failures.clear()

    def be_silent(self, calls: int) -> None:
        """The next calls of methods that tasks and coordinators wait for raise StorageUnavailableError and change
        nothing."""
        self._silent_calls, self._silent_calls_then = calls, None

    def be_silent_after_manifest(self, calls: int) -> None:
        """The next manifest is written, and the call and those after it raise StorageUnavailableError."""
        self._silent_calls_then = calls

    def write(self, snapshot: TaskSnapshot, attempt: Attempt) -> TaskHandle:
        self._fail_if_planned("write")
        logs = log_chunk(snapshot.logs) if snapshot.logs else None
        chunks = fresh_chunks(snapshot, logs)
        for chunk in chunks:
            chunk.location = self._next_location(snapshot, attempt)
            self._chunks[chunk.location] = chunk.rows
        for piece in snapshot.record:
            if piece.location is None:
                piece.location = self._next_record_location(snapshot, attempt)
                self._records[piece.location] = piece.rows
        runs = {self._next_location(snapshot, attempt): run for run in fresh_frames(snapshot)}
        self._runs |= runs
        sizes = [chunk.rows.nbytes for chunk in chunks] + [r.size_bytes for run in runs.values() for r in run.records]
        operators = {name: self._handle(name, state) for name, state in snapshot.operators.items()}
        return TaskHandle(
            task=snapshot.task,
            checkpoint=snapshot.checkpoint,
            operators=operators,
            progress=snapshot.progress,
            committables={name: list(named) for name, named in snapshot.committables.items()},
            written_bytes=sum(sizes),
            frames=stored_frames(snapshot, runs),
            logs=self._stored(logs) if logs else None,
            forced=snapshot.forced,
            record=[self._stored_piece(piece) for piece in snapshot.record],
            without_log=snapshot.without_log,
        )

    def _next_record_location(self, snapshot: TaskSnapshot, attempt: Attempt) -> str:
        self._parts_written += 1
        file = layout.record_file(snapshot.task, attempt, snapshot.checkpoint)
        return str(layout.Location(file, self._parts_written, 0, 0))

    def _stored_piece(self, piece: Chunk) -> StoredChunk:
        location = piece.location or ""
        self._check_recorded(location)
        return StoredChunk(location, piece.rows.num_rows, piece.rows.nbytes, 0)

    def read_record(self, record: Iterable[StoredChunk]) -> list[LogSegment]:
        segments: list[LogSegment] = []
        for location in (piece.location for piece in record):
            self._check_recorded(location)
            segments += logs_in(Chunk(self._records[location], location))
        return segments

    def write_tail(self, tail: RecordTail) -> None:
        self._tails.append(tail)

    def tails(self) -> list[RecordTail]:
        return list(self._tails)

    def _check_recorded(self, location: str) -> None:
        if location not in self._records:
            raise CheckpointError(f"{location!r} is missing: it was deleted while a checkpoint still referred to it")

    def _next_location(self, snapshot: TaskSnapshot, attempt: Attempt) -> str:
        self._parts_written += 1
        name = layout.chunk_file_name(snapshot.task, attempt, snapshot.checkpoint, self._parts_written)
        return str(layout.Location(f"{layout.STATE}/{name}", 0, 0, 0))

    def _handle(self, operator: str, state: OperatorState) -> OperatorHandle:
        tables = {table: [self._stored(chunk) for chunk in chunks] for table, chunks in state.tables.items()}
        return OperatorHandle(tables, encode_values(operator, state))

    def _stored(self, chunk: Chunk) -> StoredChunk:
        location = chunk.location or ""
        self._check_present(location)
        return StoredChunk(location, chunk.rows.num_rows, chunk.rows.nbytes, 0, chunk.groups)

    def read(self, handle: OperatorHandle, known: Mapping[str, Chunk] | None = None) -> OperatorState:
        self._fail_if_planned("read")
        tables = {
            table: [c.unread() if c.of_others else self._chunk(c.location, known or {}) for c in chunks]
            for table, chunks in handle.tables.items()
        }
        return OperatorState(tables, msgspec.msgpack.decode(handle.values))

    def read_chunks(self, stored: Iterable[StoredChunk]) -> dict[str, Chunk]:
        return {chunk.location: self._chunk(chunk.location, {}) for chunk in stored}

    def _chunk(self, location: str, known: Mapping[str, Chunk]) -> Chunk:
        if location in known:
            return known[location]
        self._check_present(location)
        return Chunk(self._chunks[location], location)

    def read_frames(self, locations: Iterable[str]) -> dict[str, FrameRun]:
        for location in (found := list(locations)):
            self._check_present(location)
        return {location: self._runs[location] for location in found}

    def keep_answer(self, epoch: int, task: TaskId, process: int, content: bytes) -> str:
        self._fail_if_planned("keep_answer")
        name = layout.answer_name(epoch, task, process, content)
        self._answers[name] = content
        return name

    def kept_answer(self, name: str) -> bytes:
        self._fail_if_planned("kept_answer")
        layout.check_answer_name(name)
        if name not in self._answers:
            raise CheckpointError(f"answer {name!r} is missing: it was reclaimed while a log still referred to it")
        return self._answers[name]

    def open_generation(self, after: int | None = None) -> int:
        self._fail_if_planned("open_generation")
        self._chain.end()
        number, adoptions = self._generations
        check_newest(after, number, self.job)
        newest = self.latest()
        adoption = Adoption(number + 1, newest.checkpoint if newest else None)
        self._generations = Generations(number + 1, (*adoptions, adoption))
        return number + 1

    def write_manifest(self, manifest: Manifest) -> None:
        self._fail_if_planned("write_manifest")
        check_not_fenced(manifest, self._generations)
        for location in _locations(manifest):
            self._check_present(location)
        for piece in (piece for handle in manifest.handles for piece in handle.record):
            self._check_recorded(piece.location)
        content = self._chain.encode(manifest)
        self._manifests[manifest.checkpoint, manifest.generation] = content
        if self._silent_calls_then is not None:
            self.be_silent(self._silent_calls_then + 1)
            self._fail_if_planned("write_manifest")
        self._chain.written(manifest, content)

    def latest(self) -> Manifest | None:
        self._fail_if_planned("latest")
        marks = self._valid_marks()
        return self._read(marks[-1])[0] if marks else None

    def manifests(self) -> list[Manifest]:
        return [self._read(mark)[0] for mark in self._valid_marks()]

    def _valid_marks(self) -> list[Mark]:
        return [mark for mark in sorted(self._manifests) if not is_void(*mark, self._generations)]

    def _read(self, mark: Mark) -> tuple[Manifest, list[Mark]]:
        """The manifest, and the marks of the files that it is composed of."""
        known = self._decoded.get(mark)
        if known is None or any(self._manifests.get(part) is not content for part, content in known.files.items()):
            manifest, marks = manifest_chain.read(mark, self._file, self.job)
            known = self._decoded[mark] = _Decoded(manifest, {part: self._manifests[part] for part in marks})
        return known.manifest, list(known.files)

    def _file(self, mark: Mark) -> tuple[bytes, str]:
        if mark not in self._manifests:
            raise CheckpointError(f"manifest {mark} is missing: it was deleted while it was the base of another")
        return self._manifests[mark], f"manifest {mark}"

    def write_savepoint(self, name: str, manifest: Manifest) -> None:
        check_needs_no_log(manifest)
        if name in self._savepoints:
            raise CheckpointError(f"savepoint {name!r} exists: savepoints are never overwritten, choose another name")
        self._savepoints[name] = manifest

    def savepoints(self) -> dict[str, Manifest]:
        return dict(self._savepoints)

    def retire(self, keep: int = 2) -> None:
        self._fail_if_planned("retire")
        newest = [self._read(mark) for mark in self._valid_marks()[-keep:]]
        if not newest:
            return
        self._bases = self._kept_bases(newest[-1][0])
        kept = [*(self._read(base.mark) for base in self._bases), *newest]
        oldest_kept = min((manifest for manifest, _ in kept), key=lambda manifest: manifest.checkpoint)
        needed = frozenset(mark for _, marks in kept for mark in marks)
        self._manifests = {
            mark: content
            for mark, content in self._manifests.items()
            if mark[0] >= oldest_kept.checkpoint or mark in needed
        }
        self._decoded = {mark: known for mark, known in self._decoded.items() if mark in self._manifests}
        referenced = frozenset(
            location for m in (*(m for m, _ in kept), *self._savepoints.values()) for location in _locations(m)
        )
        oldest_state = oldest_epochs(newest[0][0])
        for parts in (self._chunks, self._runs):
            for location in collectable({location: _origin(location) for location in parts}, referenced, oldest_state):
                del parts[location]
        answers = {name: layout.origin(name) for name in self._answers}
        for name in collectable(answers, (), answers_from(oldest_kept)):
            del self._answers[name]
        first = first_record(oldest_kept)
        self._records = {location: rows for location, rows in self._records.items() if _recorded_for(location) >= first}

    def _kept_bases(self, newest: Manifest) -> list[RecordBase]:
        if newest.recorded is None:
            return []
        counting = set(self._valid_marks())
        bases = (base for base in self._bases if base.mark in counting)
        mark = (newest.checkpoint, newest.generation)
        return kept_bases(list(bases), mark, newest.recorded, RecordMeasures(self._grown, self._taken))

    def record_bytes(self) -> int:
        return self._taken(self._bases)[0] if self._bases else 0

    def _grown(self, base: RecordBase) -> int:
        """See RecordMeasures."""
        return sum(size for checkpoint, size in self._record_sizes() if checkpoint > base.checkpoint)

    def _taken(self, bases: Sequence[RecordBase]) -> list[int]:
        """See RecordMeasures."""
        kept = [self._read(base.mark) for base in bases]
        state = [{location: self._size_bytes(location) for location in _locations(base)} for base, _ in kept]
        return taken_bytes([first_needed(*each) for each in kept], state, self._record_sizes())

    def _record_sizes(self) -> Iterator[tuple[int, int]]:
        """The checkpoint and the bytes of each manifest, piece of a log and answer."""
        yield from ((checkpoint, len(content)) for (checkpoint, _), content in self._manifests.items())
        yield from ((_recorded_for(location), rows.nbytes) for location, rows in self._records.items())
        yield from ((layout.checkpoint_of(name) or 0, len(content)) for name, content in self._answers.items())

    def _size_bytes(self, location: str) -> int:
        if location in self._runs:
            return sum(record.size_bytes for record in self._runs[location].records)
        return self._chunks[location].nbytes

    def bases(self) -> list[Manifest]:
        counting = set(self._valid_marks())
        return [self._read(base.mark)[0] for base in self._bases if base.mark in counting]

    def archive(self) -> str | None:
        """Drops the former line, since archives in memory could not be read."""
        if not self._manifests and not self._savepoints:
            return None
        self._manifests.clear()
        self._savepoints.clear()
        self._chain.end()
        self._chunks.clear()
        self._runs.clear()
        self._records.clear()
        self._tails.clear()
        self._bases.clear()
        self._answers.clear()
        self._archived += 1
        return f"memory, archive {self._archived}"

    def _check_present(self, location: str) -> None:
        if location not in self._chunks and location not in self._runs:
            raise CheckpointError(f"{location!r} is missing: it was reclaimed while something still referred to it")

    def _fail_if_planned(self, method: str) -> None:
        if self._silent_calls and method in _AWAITED:
            self._silent_calls -= 1
            raise StorageUnavailableError(f"{method} gets no answer; {self._silent_calls} more calls get none")
        if failures := self._failures.get(method):
            raise failures.pop(0)


def _origin(location: str) -> layout.FileOrigin | None:
    return layout.origin(layout.Location.parse(location).file.removeprefix(f"{layout.STATE}/"))


def _recorded_for(location: str) -> int:
    """The checkpoint that wrote a piece of a log."""
    origin = layout.record_origin(layout.Location.parse(location).file)
    assert origin is not None
    return origin.epoch


def _locations(manifest: Manifest) -> frozenset[str]:
    return frozenset(location for task in manifest.handles for location in task.locations)
