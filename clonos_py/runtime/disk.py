"""Reads and writes the snapshots of a process in checkpoint storage, and returns the results as events."""

from __future__ import annotations

from collections.abc import Collection, Mapping, MutableMapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from clonos_py.checkpoint.frames import between
from clonos_py.checkpoint.log_chunks import logs_in
from clonos_py.checkpoint.store import SnapshotStore, requests_since
from clonos_py.link.instructions import Loaded, LoadFailed, Persist, Persisted, PersistFailed
from clonos_py.model.errors import CheckpointError, StorageUnavailableError, one_line, type_and_text
from clonos_py.model.messages import Restore
from clonos_py.model.segments import LogSegment
from clonos_py.model.snapshots import FrameRun, RecordTail, StoredChunk
from clonos_py.model.state import Chunk


@dataclass(frozen=True)
class _Known:
    """Immutable parts that the last load has read, by location."""

    chunks: Mapping[str, Chunk] = field(default_factory=dict)
    runs: Mapping[str, FrameRun] = field(default_factory=dict)
    logs: Mapping[str, Sequence[LogSegment]] = field(default_factory=dict)


class Snapshots:
    """The snapshots of one process in checkpoint storage. A standby loads one snapshot after the other: it does not
    read again what the last load has read, and releases what the newest snapshot does not name."""

    def __init__(self, store: SnapshotStore, shared: MutableMapping[str, Chunk] | None = None) -> None:
        """``shared``: by location, chunks that processes in the same host process have written and still hold. They
        are not read from storage. None if no process shares its chunks."""
        self._store, self._shared = store, shared
        self._known = _Known()
        self._reported: Mapping[str, int] = {}
        """The requests that were reported with earlier snapshots."""

    @property
    def known(self) -> set[str]:
        """The locations that are not read again."""
        return {*self._known.chunks, *self._known.runs, *self._known.logs}

    def load(self, restore: Restore) -> Loaded | LoadFailed:
        here = {**self._known.chunks, **dict(() if self._shared is None else self._shared.items())}
        try:
            operators = {
                name: [self._store.read(handle, here) for handle in handles]
                for name, handles in restore.operators.items()
            }
            runs = self._runs({part.location for parts in restore.frames.values() for part in parts})
            frames = {
                output: [between(runs[part.location], part) for part in parts]
                for output, parts in restore.frames.items()
            }
            logs = self._logs(restore.logs)
        except CheckpointError as problem:
            return LoadFailed(restore, problem)
        states = [state for parts in operators.values() for state in parts]
        chunks = [chunk for state in states for table in state.tables.values() for chunk in table]
        self._known = _Known({chunk.location: chunk for chunk in chunks if chunk.location is not None}, runs, logs)
        return Loaded(restore, operators, frames, next(iter(logs.values()), ()))

    def _runs(self, locations: Collection[str]) -> Mapping[str, FrameRun]:
        kept = {location: run for location, run in self._known.runs.items() if location in locations}
        return kept | self._store.read_frames(location for location in locations if location not in kept)

    def _logs(self, stored: StoredChunk | None) -> Mapping[str, Sequence[LogSegment]]:
        if stored is None:
            return {}
        if stored.location in self._known.logs:
            return self._known.logs
        return {stored.location: logs_in(self._store.read_chunks([stored])[stored.location])}

    def persist(self, request: Persist) -> Persisted | PersistFailed:
        """Writes a snapshot. The caller fills in the time, since there is no clock here. A task that persists does not
        load any more, so what earlier loads have read is released."""
        self._known = _Known()
        try:
            handle = self._store.write(request.snapshot, request.attempt)
        except CheckpointError as problem:
            return PersistFailed(
                request.snapshot.checkpoint, str(problem), isinstance(problem, StorageUnavailableError)
            )
        except Exception as problem:  # noqa: BLE001 - the coordinator waits for the snapshot
            return PersistFailed(
                request.snapshot.checkpoint,
                f"the snapshot of {request.snapshot.task}: {one_line(type_and_text(problem))}",
            )
        if self._shared is not None:
            states = request.snapshot.operators.values()
            chunks = [chunk for state in states for table in state.tables.values() for chunk in table]
            self._shared.update((chunk.location, chunk) for chunk in chunks if chunk.location is not None)
        requests, before = dict(self._store.requests), self._reported
        self._reported = requests
        return Persisted(handle, 0.0, requests=requests_since(before, requests))


def keep_tail(tail: RecordTail, store: SnapshotStore) -> None:
    """Keeps the end of the record of a job that has failed. If that fails, too, the record ends with its last
    checkpoint."""
    with suppress(Exception):
        store.write_tail(tail)
